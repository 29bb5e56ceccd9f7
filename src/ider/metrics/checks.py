"""What every metric demands of its input; a violation is a `UserError` that holds both values."""

import numpy as np
import numpy.typing as npt

from ider.errors import UserError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Softmax in bfloat16 leaves sums off by up to 0.4 percent; logits, distances or masked rows are far outside.
SUM_TOLERANCE = 1e-2


def check_answers(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Ints]:
    """Return (N, C) float64 rows and (N,) labels: shapes agree, N > 0, all finite, each label a column."""
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if p.ndim != 2 or y.ndim != 1 or len(p) != len(y):
        raise UserError(f"probabilities must be (N, C) and labels (N,), got {p.shape} and {y.shape}")
    if p.size == 0:
        raise UserError(f"the test set is empty: probabilities are {p.shape}, labels {y.shape}")
    if y.dtype.kind not in "iu":
        raise UserError(f"labels must be integers, got dtype {y.dtype}")
    if y.min() < 0 or y.max() >= p.shape[1]:
        raise UserError(f"labels must lie in 0..{p.shape[1] - 1}, one per column, got {y.min()}..{y.max()}")
    check_finite("probabilities", p)
    return p, y.astype(np.int64)


def check_distributions(p: Floats) -> None:
    """Each row must be a distribution over the classes: no logits, no masked rows left unnormalised."""
    if p.min() < 0 or p.max() > 1 + SUM_TOLERANCE:
        raise UserError(f"probabilities must lie in 0..1, got {p.min():g}..{p.max():g}")
    sums = p.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        raise UserError(f"each row of probabilities must sum to 1, row {worst} sums to {sums[worst]:g}")


def check_ranking(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[Floats, Bools]:
    """Return (N,) float64 confidences and (N,) booleans: shapes agree, N > 0, all finite."""
    scores, hits = np.asarray(confidence, dtype=np.float64), np.asarray(correct)
    if scores.ndim != 1 or scores.shape != hits.shape:
        raise UserError(f"confidence and correct must both be (N,), got {scores.shape} and {hits.shape}")
    if scores.size == 0:
        raise UserError(f"nothing to rank: confidence is {scores.shape}, correct {hits.shape}")
    if not np.isin(hits, (0, 1)).all():
        raise UserError(f"correct must be true or false, got values {hits.min()}..{hits.max()}")
    check_finite("confidence", scores)
    return scores, hits.astype(np.bool_)


def check_finite(what: str, values: Floats) -> None:
    """Every entry of the array must be a finite number."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise UserError(f"{what} must be finite, got {values[tuple(bad[0])]} at {bad[0].tolist()}")
