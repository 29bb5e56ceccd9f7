"""Does the confidence say how often the answer is right? Confidence = the largest probability of a row.

Everywhere: `probabilities` (N, C) over all classes, `labels` (N,), N > 0; the answer is the first largest column.
ECE, ACE and overconfidence are in percent.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ider.errors import UserError
from ider.metrics.checks import Bools, Floats, Ints, check_answers


def confidence_and_correct(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Bools]:
    """Per sample the confidence of the answer and whether it is right: what the uncertainty metrics take."""
    p, y = check_answers(probabilities, labels)
    return p.max(axis=1), p.argmax(axis=1) == y


def ece(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15) -> float:
    """Expected calibration error in percent: equal-width bins, a confidence on an edge belongs below: (lo, hi].

    One set of samples, pooled. The paper's tables hold `ece_per_task`.
    """
    confidence, correct = confidence_and_correct(probabilities, labels)
    return _gap(_equal_width(confidence, bins), confidence, correct)


def ece_per_task(probabilities: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike], bins: int = 15) -> float:
    """ECE as the released code reports it: one ECE per test set, unweighted mean over the sets, in percent.

    For equal-sized sets never below the pooled ECE: there, over- and under-confident tasks cancel.
    """
    if not probabilities or len(probabilities) != len(labels):
        raise UserError(
            f"expected one test set or more, got {len(probabilities)} of probabilities, {len(labels)} of labels"
        )
    return float(np.mean([ece(p, y, bins) for p, y in zip(probabilities, labels, strict=True)]))


def ace(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15) -> float:
    """Adaptive calibration error in percent, as the authors' code has it: an ECE over equal-mass bins.

    Edges are the quantiles (linear interpolation) of the confidence, outer edges 0 and 1, equal edges merged; a
    confidence on an edge belongs above: [lo, hi). The literature's "adaptive calibration error" is class-wise instead.
    """
    confidence, correct = confidence_and_correct(probabilities, labels)
    _check_bins(bins)
    inner = np.quantile(confidence, np.linspace(0, 1, bins + 1)[1:-1])
    edges = np.unique(np.concatenate([[0.0], inner, [1.0]]))
    return _gap(np.searchsorted(edges[1:-1], confidence, side="right"), confidence, correct)


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Negative log-likelihood in nats, mean over samples; a label given no probability at all costs 708.4, not inf."""
    p, y = check_answers(probabilities, labels)
    # The smallest *normal* number: subnormals vanish where a library has switched the CPU to flush-to-zero.
    likelihood = np.maximum(p[np.arange(len(y)), y], np.finfo(np.float64).tiny)
    return 0.0 - float(np.log(likelihood).mean())


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Brier score: squared distance to the one-hot label, *summed* over classes, mean over samples. In [0, 2]."""
    p, y = check_answers(probabilities, labels)
    return float(((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean())


def overconfidence(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean confidence minus accuracy in percentage points: positive = too sure, negative = too modest."""
    confidence, correct = confidence_and_correct(probabilities, labels)
    return 100 * float(confidence.mean() - correct.mean())


def reliability(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15) -> dict[str, list[float]]:
    """The reliability diagram behind `ece`: per bin `count`, mean `confidence` and `accuracy`.

    The latter two are fractions in 0..1, and 0.0 in an empty bin.
    """
    confidence, correct = confidence_and_correct(probabilities, labels)
    index = _equal_width(confidence, bins)
    count = np.bincount(index, minlength=bins)
    size = np.maximum(count, 1)
    return {
        "count": count.tolist(),
        "confidence": (np.bincount(index, confidence, bins) / size).tolist(),
        "accuracy": (np.bincount(index, correct, bins) / size).tolist(),
    }


def _equal_width(confidence: Floats, bins: int) -> Ints:
    """Bin of each confidence: bin b holds (b/bins, (b+1)/bins], the first one 0 too, the last all from its low edge."""
    _check_bins(bins)
    # k / bins is the float64 nearest to the true edge, so that a confidence of 0.2 lies on it and not beside it.
    # (A float32 0.2 is 0.200000003 and lies above; the released code compares in float32, where it lies on the edge.)
    return np.searchsorted(np.arange(1, bins) / bins, confidence, side="left").astype(np.int64)


def _gap(index: npt.NDArray[np.integer], confidence: Floats, correct: Bools) -> float:
    """Sum over bins of (share of samples) * |accuracy - mean confidence|, in percent; the bin sizes cancel out."""
    return 100 * float(np.abs(np.bincount(index, correct - confidence)).sum()) / len(confidence)


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise UserError(f"bins must be at least 1, got {bins}")
