"""Each method learns, on a small real stream, and the paper's point is there: three seeds that chose no recipe."""

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from ider import recipe
from ider.engine.run import run

SEEDS = (200, 201, 202)


@pytest.fixture(scope="module")
def faa(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Final average accuracy on digits, memory 30, mean over the seeds."""
    found = {}
    for name in ("finetune", "er", "er-matched", "er+id", "joint"):
        config = recipe("digits", name)
        config = replace(config, engine=replace(config.engine, device="cpu", precision="fp32", threads=1))
        folder: Path = tmp_path_factory.mktemp(name)
        records = [run(config, seed, folder / str(seed)) for seed in SEEDS]
        found[name] = statistics.fmean(record["metrics"]["faa"] for record in records)
    return found


@pytest.mark.parametrize("method", ["er", "er-matched", "er+id", "joint"])
def test_beats_finetuning_by_fifty_points(faa: dict[str, float], method: str) -> None:
    assert faa[method] > faa["finetune"] + 50


@pytest.mark.parametrize("method", ["er", "er-matched"])
def test_idempotence_adds_at_least_three_points(faa: dict[str, float], method: str) -> None:
    assert faa["er+id"] >= faa[method] + 3


def test_joint_training_is_the_ceiling(faa: dict[str, float]) -> None:
    assert max(faa, key=lambda name: faa[name]) == "joint"
