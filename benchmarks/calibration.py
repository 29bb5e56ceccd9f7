"""What each calibrator makes of ER's and ER+ID's confidence on digits: five seeds, raw and calibrated side by side.

    python benchmarks/calibration.py results/digits-calibration.json

Each method is trained with the benchmark's memory, once with all images and once with a fifth of them held out, and
with a memory five times as large. The calibrators start from the same saved learners: they differ in nothing else.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ider import METHODS, RunConfig, recipe
from ider.records import Summary, write_json
from ider.settings import override_all
from ider.sweeps import calibration, folders

SEEDS = (0, 1, 2, 3, 4)
SHOWN = ("faa", "ece", "ece_pooled", "overconfidence", "nll", "temperature")
CALIBRATORS: dict[str, tuple[str, list[str]]] = {
    "temperature": ("temperature", []),
    "rc": ("rc", []),
    "t-cil": ("t-cil", []),
    "t-cil, released solver": ("t-cil", ["calibration.solver=sgd"]),
    "temperature, newest task's held-out": ("temperature", ["calibration.on=newest"]),
    "temperature, all held-out": ("temperature", ["calibration.on=all"]),
}
ARMS = ((30, 0.0, ["temperature"]), (30, 0.2, list(CALIBRATORS)), (150, 0.2, list(CALIBRATORS)))
"""Memory, share held out, calibrators."""


def main(output: Path) -> None:
    """Train, calibrate, and write mean and standard deviation of each."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for memory, share, names in ARMS:
            for method in ("er", "er+id"):
                config = override_all(recipe("digits", method, memory), [f"stream.hold_out={share}"], METHODS)
                config = replace(config, seeds=SEEDS, engine=replace(config.engine, device="cpu", threads=1))
                name = f"{method}, memory {memory}, held out {share:g}"
                found[name] = measured(config, Path(folder) / name, names)
    write_json(output, {"schema": 1, "runs": found})
    for name, entry in found.items():
        print(f"\n{name} (FAA {entry['raw']['first']['faa']['mean']:.2f})")
        for calibrator, answers in [("raw", entry["raw"]), *entry["calibrated"].items()]:
            print(f"  {calibrator:36s}", *(cell(answers["first"], metric) for metric in SHOWN[1:]))


def measured(config: RunConfig, folder: Path, names: list[str]) -> dict[str, Any]:
    """The run's raw numbers, and those of each calibrator."""
    raw = folders.start_run(config, folder, lambda job, step: None)
    calibrated = {}
    for name in names:
        calibrator, assignments = CALIBRATORS[name]
        (summary,) = calibration.calibrate(folder, calibration.chosen(calibrator, assignments))
        entry = summary["calibrated"][calibrator]
        cost = {"withheld": entry["withheld"], "held_out": entry["held_out"]["mean"]}
        calibrated[name] = numbers(entry) | cost | {"calibrator": entry["calibrator"]}
    return {
        **{key: raw[key] for key in ("config", "provenance", "seeds")},
        "raw": numbers(raw),
        "calibrated": calibrated,
    }


def numbers(summary: Summary) -> dict[str, Any]:
    """What is shown of each answer."""
    return {
        answer: {name: spread for name, spread in metrics.items() if name in SHOWN}
        for answer, metrics in summary["answers"].items()
    }


def cell(metrics: dict[str, Any], name: str) -> str:
    """One number with its deviation."""
    spread = metrics.get(name)
    return "" if spread is None else f"{name} {spread['mean']:7.2f} +- {spread['std']:5.2f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
