"""Choose the fixed-point weights of `+id` methods on held-out training images; the test sets are not looked at.

    python benchmarks/select_weights.py cifar100 500 er-ace+id,der+id,derpp+id,xder+id runs/weights

A tenth of each class's training images is kept from training and scored. Each method is tried with its recipe's
settings, 15 epochs a task (the schedule scales along), one seed that no table shows, and the same weight on current and
remembered images. On a GPU five runs go side by side. What the folder has already is not run again, and what was cut
short goes on, so the command can be repeated until it has finished; then it writes FOLDER/selection.json, with the
accuracy on the first and the last task too: too large a weight keeps the first and does not learn the last. The best
weights belong into the recipes' table, and the record into results/.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import selection
from selection import Settings

from ider import METHODS, RunConfig
from ider.engine.device import device_name, resolve
from ider.settings import override_all
from ider.version import __version__

SHARE = 0.1


def main(options: argparse.Namespace) -> None:
    """Run the grid, print it and write the record."""
    wanted = [f"train.epochs={options.epochs}", f"engine.checkpoint_every={options.checkpoint_every}", *options.set]

    def config(name: str, settings: Settings) -> RunConfig:
        made = selection.held_out((options.benchmark, options.memory), name, settings, SHARE)
        made = override_all(made, wanted, METHODS)
        return replace(made, seeds=tuple(options.seeds))

    rows = [{"method.current_weight": weight, "method.memory_weight": weight} for weight in options.weights]
    candidates = dict.fromkeys(options.methods.split(","), rows)
    found = selection.tried(candidates, options.folder / "runs", config)
    selection.write(options.folder / "selection.json", about(options, config(next(iter(found)), rows[0])), found)
    for name, tried in found.items():
        for row in tried:
            chosen = "  best" if row is selection.best(tried) else ""
            scores = "  ".join(f"{metric} {row[metric][0]:6.2f}" for metric in ("faa", "ece", "first", "last"))
            print(f"{name:12s} weight {row['settings']['method.memory_weight']:<6} {scores}{chosen}")


def about(options: argparse.Namespace, config: RunConfig) -> dict[str, Any]:
    """What the record says of the runs as a whole."""
    return {
        "schema": 2,
        "benchmark": options.benchmark,
        "memory": options.memory,
        "seeds": options.seeds,
        "held_out": SHARE,
        "epochs": options.epochs,
        "set": options.set,
        "version": __version__,
        "device": device_name(resolve(config.engine, len(options.seeds))),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("memory", type=int)
    parser.add_argument("methods", help="separated by commas")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.02, 0.05, 0.1, 0.2, 0.4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--checkpoint-every", type=int, default=2000, help="steps between checkpoints")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="any setting; repeatable")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
