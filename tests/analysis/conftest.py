"""Records as an engine would leave them, with numbers that can be checked by hand."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ider.records
from ider.records import ANSWERS, Record

RecordMaker = Callable[..., Record]

METRICS: dict[str, float | None] = {
    "faa": 80.0,
    "ff": 10.0,
    "ff_paper": 9.0,
    "bwt": -10.0,
    "fwt": None,
    "task_il": 97.0,
    "accuracy": 80.0,
    "ece": 5.0,
    "ece_pooled": 4.0,
    "ace": 4.5,
    "nll": 0.7,
    "brier": 0.3,
    "aurc": 0.05,
    "e_aurc": 0.02,
    "auroc_error": 0.85,
    "fpr95": 0.5,
    "overconfidence": 3.0,
    "idempotence_gap": 0.1,
}


@pytest.fixture
def make_record() -> RecordMaker:
    """A record of `tasks` tasks; `at_once` leaves one row of accuracies, keywords replace metrics."""

    def make(
        method: str = "er", seed: int = 0, tasks: int = 3, at_once: bool = False, **metrics: float | None
    ) -> Record:
        rows = [[_accuracy(row, column, seed) for column in range(row + 1)] for row in range(tasks)]
        scores = METRICS | metrics
        return {
            "schema": 1,
            "benchmark": "digits",
            "method": method,
            "memory": 30,
            "seed": seed,
            "config": {"evaluation": {"answer": "first"}},
            "provenance": {"seconds": 1.0},
            "classes": [str(label) for label in range(2 * tasks)],
            "tasks": [[2 * task, 2 * task + 1] for task in range(tasks)],
            "accuracy": rows[-1:] if at_once else rows,
            "task_il": rows[-1:] if at_once else rows,
            "metrics": scores,
            "answers": {answer: scores | {"faa": 70.0 + index} for index, answer in enumerate(ANSWERS)},
            "reliability": {answer: _reliability(seed) for answer in ANSWERS},
            "task_mass": {answer: _mass(tasks, seed) for answer in ANSWERS},
            "test_share": [100 / tasks] * tasks,
        }

    return make


@pytest.fixture
def loaded_by() -> Callable[[str], set[str]]:
    """The modules that importing one of ours loads, without the package's own ``__init__``, which loads everything."""

    def load(module: str) -> set[str]:
        folder = str(Path(ider.records.__file__).parent)
        code = (
            "import sys, types; package = types.ModuleType('ider'); "
            f"package.__path__ = [{folder!r}]; sys.modules['ider'] = package; import {module}; print(*sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    return load


def _accuracy(row: int, column: int, seed: int) -> float:
    return max(90.0 - 20.0 * (row - column), 0.0) + 2.0 * seed


def _mass(tasks: int, seed: int) -> list[float]:
    weights = [task + 1 + seed for task in range(tasks)]
    return [100 * weight / sum(weights) for weight in weights]


def _reliability(seed: int) -> dict[str, Any]:
    """Only the two surest of 15 bins hold images: one too sure, one (for seed 0) too modest."""
    empty: list[float | None] = [0.0] * 13
    return {
        "count": [0] * 13 + [100, 300 + 200 * seed],
        "confidence": [*empty, 0.9, 0.95],
        "accuracy": [*empty, 0.8, 1.0 - 0.2 * seed],
    }
