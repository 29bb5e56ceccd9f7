"""What the scripts that choose settings share: grids, runs scored on held-out training images, compact records."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ider import METHODS, RunConfig, recipe
from ider.config import run_id
from ider.records import Record, load_run, write_bytes
from ider.settings import override_all
from ider.sweeps.runner import Job, execute

Settings = dict[str, Any]
Rows = dict[str, list[Settings]]
"""By recipe the settings that were tried, each with what it reached once that is known."""


def grid(axes: Mapping[str, Iterable[Any]]) -> list[Settings]:
    """Every combination of the values."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def held_out(where: tuple[str, int | None], name: str, settings: Settings, share: float) -> RunConfig:
    """A recipe of a benchmark and memory size with some settings, scored on a share of the training images."""
    assignments = [f"{path}={value}" for path, value in settings.items()]
    config = override_all(recipe(where[0], name, where[1]), assignments, METHODS)
    return replace(
        config,
        stream=replace(config.stream, hold_out=share),
        evaluation=replace(config.evaluation, on="held-out"),
    )


def tried(candidates: Rows, folder: Path, make: Callable[[str, Settings], RunConfig]) -> Rows:
    """Run all candidates with all seeds, but for what the folder has already; the rows with mean and spread."""
    configs = {(name, i): make(name, row) for name, rows in candidates.items() for i, row in enumerate(rows)}
    folders = {key: folder / f"{key[0]}-{run_id(config, 0)}" for key, config in configs.items()}
    jobs = [
        Job(config, seed, folders[key] / f"seed-{seed}") for key, config in configs.items() for seed in config.seeds
    ]
    execute(jobs, lambda job, progress: None if progress else print(job.name, flush=True))
    return {
        name: [{"settings": row} | scores(load_run(folders[name, i])) for i, row in enumerate(rows)]
        for name, rows in candidates.items()
    }


def scores(records: list[Record]) -> dict[str, Any]:
    """FAA and ECE, and the accuracy on the first and the last task at the end: mean and sample standard deviation."""
    seeds = {"seeds": len(records)}
    values = {metric: [record["metrics"][metric] for record in records] for metric in ("faa", "ece")}
    for metric, task in (("first", 0), ("last", -1)):
        values[metric] = [record["accuracy"][-1][task] for record in records]
    return seeds | {
        metric: [round(fmean(found), 2), *([round(stdev(found), 2)] if len(found) > 1 else [])]
        for metric, found in values.items()
    }


def best(rows: list[Settings]) -> Settings:
    """The row with the highest mean FAA."""
    return max(rows, key=lambda row: row["faa"][0])


def write(path: Path, about: Mapping[str, Any], rows: Rows) -> None:
    """A record with a line a row."""
    lines = {name: ",\n   ".join(json.dumps(row) for row in found) for name, found in rows.items()}
    grid_ = ",\n  ".join(f"{json.dumps(name)}: [\n   {text}]" for name, text in lines.items())
    head = json.dumps(dict(about), indent=1).removesuffix("\n}")
    write_bytes(path, f'{head},\n "grid": {{\n  {grid_}\n }}\n}}\n'.encode())
