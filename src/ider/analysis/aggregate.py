"""What the figures draw, as numbers: the records of a method's seeds reduced to a few arrays.

Legend of the shapes: T tasks, B confidence bins. Accuracies and shares are in percent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ider.errors import UserError
from ider.records import Record, side_by_side

Runs = Mapping[str, Sequence[Record]]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over the seeds; a single seed has none."""

    mean: Array
    std: Array | None


@dataclass(frozen=True)
class Bins:
    """A reliability diagram pooled over the seeds; an empty bin has no confidence and no accuracy (nan)."""

    share_B: Array
    confidence_B: Array
    accuracy_B: Array


def task_count(runs: Runs) -> int:
    """The number of tasks that all records have in common; a UserError where there is no such number."""
    if not runs or not all(runs.values()):
        empty = [name for name, records in runs.items() if not records]
        raise UserError(f"a figure needs at least one record of every method, got none of {', '.join(empty) or 'any'}")
    counts = {name: {len(record["tasks"]) for record in records} for name, records in runs.items()}
    if len(set().union(*counts.values())) > 1:
        found = ", ".join(f"{name}: {' and '.join(map(str, sorted(each)))}" for name, each in counts.items())
        raise UserError(f"the records of one figure must have the same number of tasks, got {found}")
    tasks = counts[next(iter(counts))].pop()
    for name, records in runs.items():
        _check_rows(name, records, tasks)
    return tasks


def _check_rows(name: str, records: Sequence[Record], tasks: int) -> None:
    rows = sorted({len(record["accuracy"]) for record in records})
    if rows not in ([1], [tasks]):
        found = " and ".join(map(str, rows))
        raise UserError(
            f"the records of {name} hold {found} rows of accuracy; {tasks} tasks leave {tasks}, or 1 at once"
        )


def with_calibrated(runs: Runs, most: int) -> Runs:
    """The runs, each followed by what each calibrator makes of it; the runs alone, if these would be too many."""
    found: dict[str, list[Record]] = {}
    for name, records in runs.items():
        for record in side_by_side(records):
            calibration = record.get("calibration")
            found.setdefault(f"{name}, {calibration}" if calibration else name, []).append(record)
    return found if len(found) <= most else runs


def is_ceiling(records: Sequence[Record]) -> bool:
    """Whether the method was trained once, on all tasks: one row of accuracies although there are several tasks."""
    return len(records[0]["accuracy"]) == 1 < len(records[0]["tasks"])


def seen_accuracy(records: Sequence[Record]) -> Spread:
    """After each task (or once): the class-IL accuracy averaged over the tasks seen so far."""
    return _spread([[float(np.mean(_floats(row))) for row in record["accuracy"]] for record in records])


def mean_matrix(records: Sequence[Record]) -> Array:
    """Accuracy on task j (column) after task t (row), mean over the seeds; nan where task j was still to come."""
    rows, tasks = len(records[0]["accuracy"]), len(records[0]["tasks"])
    matrix = np.full((len(records), rows, tasks), np.nan)
    for seed, record in enumerate(records):
        for row, accuracies in enumerate(record["accuracy"]):
            matrix[seed, row, : len(accuracies)] = _floats(accuracies)
    mean: Array = matrix.mean(axis=0)
    return mean


def task_mass(records: Sequence[Record]) -> Spread:
    """The share of probability mass the final model gives to each task's classes, headline answer."""
    return _spread([_floats(record["task_mass"][headline_answer(record)]) for record in records])


def balanced_share(runs: Runs) -> Array:
    """The share of the test images that belong to each task: the mass a model without bias would give it."""
    shares = [_floats(record["test_share"]) for records in runs.values() for record in records]
    mean: Array = np.mean(shares, axis=0)
    return mean


def reliability_bins(records: Sequence[Record]) -> Bins:
    """Confidence and accuracy of each bin over all seeds' images (so weighted by count), headline answer."""
    bins = [record["reliability"][headline_answer(record)] for record in records]
    count_SB = np.array([_floats(each["count"]) for each in bins])
    total_B = count_SB.sum(axis=0)
    filled_B = np.where(total_B > 0, total_B, np.nan)

    def pooled(key: str) -> Array:
        value_SB = np.array([_floats(each[key]) for each in bins])
        weighted_SB = np.where(count_SB > 0, value_SB, 0.0) * count_SB
        return np.asarray(100 * weighted_SB.sum(axis=0) / filled_B)

    return Bins(100 * total_B / max(total_B.sum(), 1), pooled("confidence"), pooled("accuracy"))


def metric_mean(records: Sequence[Record], name: str) -> float | None:
    """The mean of a headline metric over the seeds that have it; None where none has."""
    known = [record["metrics"][name] for record in records if record["metrics"].get(name) is not None]
    return float(np.mean(known)) if known else None


def headline_answer(record: Record) -> str:
    """Which answer the run's headline metrics score: first, second or mean."""
    return str(record["config"]["evaluation"]["answer"])


def _spread(values: Sequence[Any]) -> Spread:
    array = np.asarray(values, dtype=np.float64)
    return Spread(array.mean(axis=0), array.std(axis=0, ddof=1) if len(array) > 1 else None)


def _floats(values: Sequence[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
