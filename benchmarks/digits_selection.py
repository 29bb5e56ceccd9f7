"""How the `digits` recipes were chosen: FAA on seeds 100 to 104, which no table shows, for a grid of settings.

    python benchmarks/digits_selection.py results/digits-selection.json

Net, epochs, batch sizes and memory are the recipes'; the grid varies the learning rate of every method and the weights
of the fixed-point terms. The recipes then take each method's best learning rate, ER+ID's best weights, and for
ER-matched the learning rate of ER+ID.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from ider import RunConfig, recipe
from ider.methods import Idempotent
from ider.records import load_run, write_json
from ider.sweeps.runner import Job, execute

SEEDS = (100, 101, 102, 103, 104)
RATES = (0.03, 0.1, 0.2)
WEIGHTS = (0.01, 0.02, 0.05, 0.1)


def candidates() -> dict[str, RunConfig]:
    """Every setting of the grid, by a name that tells it."""
    found = {}
    for name in ("finetune", "er", "er-matched", "er+id", "joint"):
        for lr in RATES:
            config = recipe("digits", name)
            config = replace(
                config, seeds=SEEDS, train=replace(config.train, lr=lr), engine=replace(config.engine, threads=1)
            )
            if isinstance(config.method, Idempotent):
                for weight in WEIGHTS:
                    method = replace(config.method, current_weight=weight, memory_weight=weight)
                    found[f"{name} lr={lr} weight={weight}"] = replace(config, method=method)
            else:
                found[f"{name} lr={lr}"] = config
    return found


def main(output: Path) -> None:
    """Run the grid and write mean and standard deviation of FAA and ECE for each setting."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = candidates()
        jobs = [
            Job(config, seed, Path(folder) / name / f"seed-{seed}") for name, config in chosen.items() for seed in SEEDS
        ]
        execute(jobs, lambda job, step: None)
        rows = {name: summary(Path(folder) / name) for name in chosen}
    write_json(output, {"schema": 1, "seeds": list(SEEDS), "metrics": rows})
    for name, row in rows.items():
        print(f"{name:32s}", *(f"{metric} {mean:6.2f} +- {std:5.2f}" for metric, (mean, std) in row.items()), sep="   ")


def summary(folder: Path) -> dict[str, list[float]]:
    """Mean and sample standard deviation over the seeds."""
    records = load_run(folder)
    values = {metric: [record["metrics"][metric] for record in records] for metric in ("faa", "ece")}
    return {metric: [fmean(found), stdev(found)] for metric, found in values.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
