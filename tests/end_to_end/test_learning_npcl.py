"""NPCL learns on a small real stream: three seeds that chose none of its settings."""

import statistics
from dataclasses import replace
from pathlib import Path

from ider import RunConfig, recipe
from ider.engine.run import run
from ider.methods import NPCL

SEEDS = (200, 201, 202)


def faa(config: RunConfig, folder: Path) -> float:
    config = replace(config, engine=replace(config.engine, device="cpu", precision="fp32", threads=1))
    return statistics.fmean(run(config, seed, folder / str(seed))["metrics"]["faa"] for seed in SEEDS)


def test_it_beats_finetune_by_fifty_points(tmp_path: Path) -> None:
    """Half of the recipe's epochs, so that it takes half of its time."""
    finetune = recipe("digits", "finetune")
    method = NPCL(draws=4, test_draws=8, latent=32, decoder=64)
    npcl = replace(finetune, method=method, recipe="npcl", train=replace(finetune.train, epochs=10, lr=0.1))
    assert faa(npcl, tmp_path / "npcl") > faa(finetune, tmp_path / "finetune") + 50
