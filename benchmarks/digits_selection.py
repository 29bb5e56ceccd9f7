"""How the recipes of `digits` were chosen: FAA on held-out training images, for a grid of settings of every method.

    python benchmarks/digits_selection.py results/digits-selection.json FOLDER

A fifth of each class's training images is kept from training and scored instead of the test set, on seeds 100 to 102,
which no table shows. Net, batch sizes and memory are the recipes'. First every method alone: its learning rate, and the
settings that depend on how long a run is. Then `+id` with the settings that its method did best with, and a grid of
fixed-point weights, the same for current and remembered images. What FOLDER has already is not run again.
"""

import sys
from dataclasses import replace
from pathlib import Path

import selection
from selection import Rows, Settings

from ider import METHODS, RunConfig

SEEDS = (100, 101, 102)
SHARE = 0.2
RATES = (0.03, 0.1, 0.2)
LOWER = (0.01, *RATES)
WEIGHTS = (0.005, 0.02, 0.1)
EVEN_LESS = dict.fromkeys(("er-ace+id", "sarl+id"), (0.001, *WEIGHTS))
OWN: dict[str, Settings] = {
    "er-ace": {"train.lr": LOWER},
    "der": {"train.lr": LOWER},
    "xder": {"train.lr": LOWER},
    "lucir": {"train.lr": (0.01, 0.03, 0.1)},  # with momentum
    "lwf": {"method.distill_weight": (1, 3, 10)},
    "ewc": {"method.penalty_weight": (10, 1000)},
    "gdumb": {"train.epochs": (20, 100)},
    "cls-er": {"method.decay": (0.9, 0.97, 0.99)},
    "scommer": {"method.decay": (0.9, 0.95, 0.98, 0.99)},
}
UNDER = {"er+id": "er-matched"}  # whose settings `+id` takes, where not those of the method of that name


def main(output: Path, folder: Path) -> None:
    """Run the grid, and write what each setting reached."""

    def config(name: str, settings: Settings) -> RunConfig:
        made = selection.held_out(("digits", None), name, settings, SHARE)
        return replace(made, seeds=SEEDS, engine=replace(made.engine, device="cpu", threads=1))

    found = selection.tried(alone(), folder, config)
    found |= selection.tried(combined(found), folder, config)
    about = {"schema": 2, "benchmark": "digits", "memory": 30, "seeds": SEEDS, "held_out": SHARE}
    selection.write(output, about, found)


def alone() -> Rows:
    """The grid of every method without fixed-point terms."""
    names = ["er-matched", *(name for name in METHODS if not name.endswith("+id"))]
    return {name: selection.grid({"train.lr": RATES, **OWN.get(name, {})}) for name in names}


def combined(found: Rows) -> Rows:
    """The grid of every method with them, given what was found for the methods alone."""
    rows = {}
    for name in (name for name in METHODS if name.endswith("+id")):
        best = selection.best(found[UNDER.get(name, name.removesuffix("+id"))])["settings"]
        base = {path.replace("method.", "method.base."): value for path, value in best.items()}
        rows[name] = [
            base | {"method.current_weight": w, "method.memory_weight": w} for w in EVEN_LESS.get(name, WEIGHTS)
        ]
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
