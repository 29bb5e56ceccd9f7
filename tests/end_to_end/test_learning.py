"""Each method learns, on a small real stream, and the paper's point is there: three seeds that chose no recipe."""

import statistics
from dataclasses import replace
from pathlib import Path

from ider import recipe
from ider.engine.run import run

SEEDS = (200, 201, 202)


def faa_of(name: str, folder: Path) -> float:
    """Final average accuracy on digits, memory 30, mean over the seeds."""
    config = recipe("digits", name)
    config = replace(config, engine=replace(config.engine, device="cpu", precision="fp32", threads=1))
    records = [run(config, seed, folder / name / str(seed)) for seed in SEEDS]
    return statistics.fmean(record["metrics"]["faa"] for record in records)


def test_every_method_learns_and_idempotence_adds(tmp_path: Path) -> None:  # one test, so that the runs are made once
    faa = {name: faa_of(name, tmp_path) for name in ("finetune", "er", "er-matched", "er+id", "joint")}
    for name in ("er", "er-matched", "er+id", "joint"):
        assert faa[name] > faa["finetune"] + 50, faa
    for name in ("er", "er-matched"):
        assert faa["er+id"] >= faa[name] + 3, faa
    assert max(faa, key=lambda name: faa[name]) == "joint", faa
