"""Each method learns, on a small real stream, and the paper's point is there: three seeds that chose no recipe."""

import statistics
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ider import METHODS, recipe
from ider.engine.run import run

SEEDS = (200, 201, 202)
EPOCHS = 8  # of the recipes' 20 (GDumb: 100), so that the suite stays short
# Points above finetune's 27 that a method must reach; measured, it was at least ten more.
# LwF and EWC keep no samples and are near finetune where the task is not told (+3 and +7): here they must not be worse.
MARGINS = {"lwf": -3, "ewc": -3, "scommer": 25, "scommer+id": 25, "sarl+id": 25}
USUAL = 40


@cache  # a test of its own for each method, so that several processes share them; each makes finetune's runs once
def faa_of(name: str) -> float:
    """Final average accuracy on digits, memory 30, mean over the seeds."""
    config = recipe("digits", name)
    config = replace(
        config,
        engine=replace(config.engine, device="cpu", precision="fp32", threads=1),
        train=replace(config.train, epochs=config.train.epochs * EPOCHS // 20),
    )
    with tempfile.TemporaryDirectory() as folder:
        records = [run(config, seed, Path(folder) / str(seed)) for seed in SEEDS]
    return statistics.fmean(record["metrics"]["faa"] for record in records)


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"finetune"}))
def test_every_method_beats_finetune(name: str) -> None:
    assert faa_of(name) > faa_of("finetune") + MARGINS.get(name, USUAL)


def test_joint_training_is_the_bound_and_idempotence_adds_to_er() -> None:
    faa = {name: faa_of(name) for name in ("er", "er-matched", "er+id", "joint")}
    for name in ("er", "er-matched"):
        assert faa["er+id"] >= faa[name] + 3, faa
    assert max(faa, key=lambda name: faa[name]) == "joint", faa
