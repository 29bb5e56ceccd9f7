"""Does the confidence tell right answers from wrong ones? Only its order counts, not its scale.

Everywhere: `confidence` (N,), higher = surer, and `correct` (N,) booleans, N > 0. To score an uncertainty, pass
its negative. What the data leave undefined (no error, or nothing but errors) is None, never NaN.
"""

import math

import numpy as np
import numpy.typing as npt

from ider.errors import UserError
from ider.metrics.checks import Bools, Floats, Ints, check_finite, check_ranking


def aurc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Area under the risk-coverage curve: mean over k of the error rate among the k surest samples.

    In [0, 1] (papers print it x1000). Equal confidences keep the order they came in.
    """
    scores, hits = check_ranking(confidence, correct)
    wrong = ~hits[np.argsort(-scores, kind="stable")]
    return float((np.cumsum(wrong) / np.arange(1, wrong.size + 1)).mean())


def e_aurc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Excess AURC: `aurc` minus that of a perfect order, r + (1 - r) ln(1 - r) at error rate r; None if r = 1.

    That is the limit for many samples, so even a perfect order keeps a rest of order 1/N. Up to rounding never
    negative.
    """
    _, hits = check_ranking(confidence, correct)
    r = float((~hits).mean())
    if r == 1:
        return None
    return aurc(confidence, correct) - (r + (1 - r) * math.log1p(-r))


def auroc_error(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Chance that a right answer is surer than a wrong one, ties counting half; None unless there are both.

    The AUROC of confidence for right answers, which is also that of -confidence for errors.
    """
    right, wrong = _counts(*check_ranking(confidence, correct))
    if not right[-1] or not wrong[-1]:
        return None
    twice = (np.diff(wrong, prepend=0) * (right + np.concatenate([[0], right[:-1]]))).sum()
    return float(twice / (2 * right[-1] * wrong[-1]))


def fpr95(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Share of errors let through at the ROC point whose share of right answers is nearest to 95 percent.

    Nearest of the points that exist, one per distinct confidence: neither interpolated nor "at least 95". Between
    two equally near ones the smaller FPR. None unless there are both right and wrong answers.
    """
    right, wrong = _counts(*check_ranking(confidence, correct))
    if not right[-1] or not wrong[-1]:
        return None
    # |right / total - 19/20| in whole numbers: a tie is a tie, whatever floating point makes of 0.95.
    nearest = np.abs(20 * right - 19 * right[-1]).argmin()
    return float(wrong[nearest] / wrong[-1])


def aupr_success(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Area under the precision-recall curve by trapezoids, positives = right answers; None if there are none.

    The curve starts at recall 0, precision 1.
    """
    right, wrong = _counts(*check_ranking(confidence, correct))
    if not right[-1]:
        return None
    precision = np.concatenate([[1.0], right / (right + wrong)])
    twice = (np.diff(right, prepend=0) * (precision[1:] + precision[:-1])).sum()
    return float(twice / (2 * right[-1]))


def aupr_error(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """Average precision (a sum of steps, no trapezoids) of -confidence, positives = errors; None if there are none."""
    scores, hits = check_ranking(confidence, correct)
    wrong, right = _counts(-scores, ~hits)
    if not wrong[-1]:
        return None
    return float((np.diff(wrong, prepend=0) * (wrong / (wrong + right))).sum() / wrong[-1])


def idempotence_gap(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """How far the answer moves when fed back: L2 norm between the two probability rows (N, C), mean over samples."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 2 or a.shape != b.shape or not a.size:
        raise UserError(f"first and second answers must both be (N, C) and not empty, got {a.shape} and {b.shape}")
    check_finite("first answers", a)
    check_finite("second answers", b)
    return float(np.sqrt(((a - b) ** 2).sum(axis=1)).mean())


def _counts(scores: Floats, positive: Bools) -> tuple[Ints, Ints]:
    """How many positives and negatives score at least each distinct score, from the highest score down."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)
    positives = np.cumsum(positive[order], dtype=np.int64)[ends]
    return positives, (ends + 1 - positives).astype(np.int64)
