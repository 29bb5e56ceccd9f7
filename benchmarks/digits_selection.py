"""How the recipes of `digits` were chosen: FAA on held-out training images, for a grid of settings of every method.

    python benchmarks/digits_selection.py results/digits-selection.json [RUNS_AT_ONCE]

A fifth of each class's training images is kept from training and scored instead of the test set, on seeds 100 to 102,
which no table shows. Net, batch sizes and memory are the recipes'. First every method alone: its learning rate, and the
settings that depend on how long a run is. Then `+id` with the settings that its method did best with, and a grid of
fixed-point weights, the same for current and remembered images.
"""

import itertools
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ider import METHODS, RunConfig, recipe
from ider.records import load_run, write_json
from ider.settings import override_all
from ider.sweeps.runner import Job, execute

SEEDS = (100, 101, 102)
RATES = (0.03, 0.1, 0.2)
WEIGHTS = (0.005, 0.01, 0.02, 0.05, 0.1)
OWN = {
    "lucir": {"train.lr": (0.01, 0.03, 0.1)},  # with momentum
    "lwf": {"method.distill_weight": (1, 3)},
    "ewc": {"method.penalty_weight": (10, 1000)},
    "gdumb": {"train.epochs": (20, 100)},
    "cls-er": {"method.decay": (0.9, 0.97, 0.99)},
    "scommer": {"method.decay": (0.9, 0.95, 0.98)},
}
UNDER = {"er+id": "er-matched"}  # whose settings `+id` takes, where not those of the method of that name
Settings = dict[str, Any]


def main(output: Path, at_once: int) -> None:
    """Run the grid and write mean and standard deviation of FAA and ECE for each setting."""
    alone = ["er-matched", *(name for name in METHODS if not name.endswith("+id"))]
    found = tried({name: grid({"train.lr": RATES} | OWN.get(name, {})) for name in alone}, at_once)
    best = {name: max(rows, key=lambda row: row["faa"][0])["settings"] for name, rows in found.items()}
    combined = {}
    for name in (name for name in METHODS if name.endswith("+id")):
        base = best[UNDER.get(name, name.removesuffix("+id"))]
        base = {path.replace("method.", "method.base."): (value,) for path, value in base.items()}
        weights = grid(base | {"method.current_weight": WEIGHTS})
        combined[name] = [row | {"method.memory_weight": row["method.current_weight"]} for row in weights]
    found |= tried(combined, at_once)
    write_json(output, {"schema": 2, "seeds": list(SEEDS), "on": "held-out", "grid": found})


def grid(axes: dict[str, Iterable[Any]]) -> list[Settings]:
    """Every combination of the values."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def tried(candidates: dict[str, list[Settings]], at_once: int) -> dict[str, list[Settings]]:
    """For each recipe and its settings what they reached: mean and sample standard deviation over the seeds."""
    with tempfile.TemporaryDirectory() as temporary:
        folders = {
            (name, i): Path(temporary) / name / str(i) for name, rows in candidates.items() for i in range(len(rows))
        }
        jobs = [
            Job(configured(name, candidates[name][i], at_once), seed, folder / f"seed-{seed}")
            for (name, i), folder in folders.items()
            for seed in SEEDS
        ]
        execute(jobs, lambda job, progress: None)
        found: dict[str, list[Settings]] = {name: [] for name in candidates}
        for (name, i), folder in folders.items():
            row = {"settings": candidates[name][i]} | summary(folder)
            print(name, row, flush=True)
            found[name].append(row)
    return found


def configured(name: str, settings: Settings, at_once: int) -> RunConfig:
    """A recipe with some settings, scored on held-out images."""
    config = override_all(recipe("digits", name), [f"{path}={value}" for path, value in settings.items()], METHODS)
    return replace(
        config,
        seeds=SEEDS,
        stream=replace(config.stream, hold_out=0.2),
        evaluation=replace(config.evaluation, on="held-out"),
        engine=replace(config.engine, device="cpu", threads=1, at_once=at_once),
    )


def summary(folder: Path) -> dict[str, list[float]]:
    """Mean and sample standard deviation over the seeds."""
    records = load_run(folder)
    values = {metric: [record["metrics"][metric] for record in records] for metric in ("faa", "ece")}
    return {metric: [round(fmean(found), 2), round(stdev(found), 2)] for metric, found in values.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
