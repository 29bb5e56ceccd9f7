"""Accuracy over the stream: how much is known at the end, and how much was forgotten on the way.

The matrix holds one row per task: row t = accuracies in percent on the test sets 0..t, measured after task t.
A method trained once on everything (`joint`) leaves a single row of length T > 1: it forgets nothing (FF 0) and
has no backward transfer (None).
"""

from collections.abc import Sequence

import numpy as np

from ider.errors import UserError
from ider.metrics.checks import Floats, check_finite

Matrix = Sequence[Sequence[float]]


def faa(matrix: Matrix) -> float:
    """Final average accuracy: unweighted mean over test sets of the last row (also on GCIL, whose sets nest)."""
    return float(_rows(matrix)[-1].mean())


def ff_code(matrix: Matrix, before: Sequence[float] | None = None) -> float:
    """Final forgetting as the released code counts it: best accuracy over *all* rows minus the final one.

    The last row is among the candidates, so each task's value is >= 0; the mean is over tasks 0..T-2.
    The released code also admits the accuracy just before training on a task; pass it as `before` (T entries, the
    first one unused: nothing precedes task 0) to match it to the digit.
    """
    rows = _rows(matrix)
    best = _best(rows)
    if before is not None and len(rows) > 1:
        earlier = _per_task("before", before, len(rows))[: len(best)]
        best[1:] = np.maximum(best[1:], earlier[1:])
    return _mean_drop(np.maximum(best, rows[-1][: len(best)]), rows[-1])


def ff_paper(matrix: Matrix) -> float:
    """Final forgetting as the paper writes it: best accuracy over rows i..T-2 minus the final one, tasks 0..T-2.

    The final row is no candidate, so a task that improves at the last stage counts negative: never above `ff_code`.
    """
    rows = _rows(matrix)
    return _mean_drop(_best(rows), rows[-1])


def bwt(matrix: Matrix) -> float | None:
    """Backward transfer: final accuracy minus that right after learning, mean over tasks 0..T-2; None if T = 1.

    Negative means forgetting, but it is not -FF: a task's peak need not come right after learning it.
    """
    rows = _rows(matrix)
    if len(rows) == 1:
        return None
    return float(np.mean([rows[-1][i] - rows[i][i] for i in range(len(rows) - 1)]))


def fwt(before: Sequence[float], random: Sequence[float]) -> float | None:
    """Forward transfer: mean over tasks i >= 1 of `before[i] - random[i]`; None if T = 1.

    `before` is the accuracy on task i just before training on it, `random` that of the untrained net, one entry a
    task; the entries of task 0 are unused. Class-incrementally `before` is about 0, so this is about -random.
    """
    if len(before) != len(random):
        raise UserError(f"before and random must have one entry per task, got {len(before)} and {len(random)}")
    if len(before) < 2:
        return None
    gain = _per_task("before", before, len(before)) - _per_task("random", random, len(random))
    return float(gain[1:].mean())


def _rows(matrix: Matrix) -> list[Floats]:
    rows = [np.asarray(row, dtype=np.float64) for row in matrix]
    if not rows or not rows[0].size:
        raise UserError(f"the accuracy matrix needs at least one row with one entry, got {len(rows)} rows")
    for t, row in enumerate(rows):
        if len(rows) > 1 and row.shape != (t + 1,):
            raise UserError(f"accuracy row {t} must have {t + 1} entries (tasks 0..{t}), got shape {row.shape}")
        check_finite(f"accuracy row {t}", row)
    return rows


def _best(rows: list[Floats]) -> Floats:
    """Per task 0..T-2, the best accuracy before the final row."""
    last = len(rows) - 1
    return np.array([max(row[task] for row in rows[task:last]) for task in range(last)], dtype=np.float64)


def _mean_drop(best: Floats, final: Floats) -> float:
    return float((best - final[: len(best)]).mean()) if len(best) else 0.0


def _per_task(what: str, values: Sequence[float], tasks: int) -> Floats:
    """One entry per task, that of task 0 blanked out: nothing was learned before it, so records may hold anything."""
    if len(values) != tasks:
        raise UserError(f"{what} must have one entry per task: expected {tasks}, got {len(values)}")
    entries = np.array([0.0, *values[1:]], dtype=np.float64)
    check_finite(what, entries)
    return entries
