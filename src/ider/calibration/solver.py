"""The temperature under which labels are likeliest, found in float64 to the last digits.

Shape legend: N images, K classes.
"""

import numpy as np
from numpy.typing import NDArray

from ider.errors import RunError

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
COLDEST, HOTTEST = 0.01, 100.0
_STEPS, _ENOUGH = 200, 1e-12


def best_temperature(scores_NK: Floats, labels_N: Labels) -> float:
    """The T in 0.01..100 that minimises the mean of -log softmax(scores / T)[label]; 1 if nothing depends on it.

    The loss is convex in 1 / T, so its slope along tau = log T changes sign at most once. Newton steps on tau, and a
    bisection of what is left wherever a step leaves the bracket.
    """
    if not np.isfinite(scores_NK).all():
        raise RunError("the net's answers to the images it is calibrated on are not finite numbers")
    if not len(labels_N) or not np.ptp(scores_NK, axis=1).any():
        return 1.0
    low, high, tau = float(np.log(COLDEST)), float(np.log(HOTTEST)), 0.0
    if _slopes(scores_NK, labels_N, low)[0] >= 0:
        return COLDEST
    if _slopes(scores_NK, labels_N, high)[0] <= 0:
        return HOTTEST
    for _ in range(_STEPS):
        first, second = _slopes(scores_NK, labels_N, tau)
        low, high = (tau, high) if first < 0 else (low, tau)
        step = tau - first / second if second > 0 else low
        old, tau = tau, step if low < step < high else (low + high) / 2
        if abs(tau - old) <= _ENOUGH:
            break
    return float(np.exp(tau))


def warranted_temperature(scores_NK: Floats, labels_N: Labels) -> float:
    """The same, but where all N answers are right no colder than N right answers warrant.

    There the likelihood alone would make T as small as it may be, and every answer certain. N right answers of N leave
    an error rate of 1 / (2N + 2) (Jeffreys' prior): the mean confidence may be 1 minus that at most.
    """
    best = best_temperature(scores_NK, labels_N)
    if not all_right(scores_NK, labels_N) or scores_NK.shape[1] == 1:  # one class has all the mass at every T
        return best
    most = 1 - 1 / (2 * len(labels_N) + 2)
    low, high = float(np.log(COLDEST)), float(np.log(HOTTEST))
    while high - low > _ENOUGH:
        tau = (low + high) / 2
        low, high = (tau, high) if softened(scores_NK, tau).max(1).mean() > most else (low, tau)
    return min(max(best, float(np.exp(high))), HOTTEST)


def descended_temperature(scores_NK: Floats, labels_N: Labels, rng: np.random.Generator) -> float:
    """T as T-CIL was released: from 1, a hundred epochs of SGD on T itself, rate 0.1 and 0.01 from the fiftieth on."""
    temperature = 1.0
    for epoch in range(100):
        order = rng.permutation(len(labels_N))
        for start in range(0, len(order), 128):
            rows = order[start : start + 128]
            by_tau, _ = _slopes(scores_NK[rows], labels_N[rows], float(np.log(temperature)))
            temperature -= (0.1 if epoch < 50 else 0.01) * by_tau / temperature
            temperature = min(max(temperature, COLDEST), HOTTEST)
    return temperature


def all_right(scores_NK: Floats, labels_N: Labels) -> bool:
    """Whether there are images, and each one's label has the highest score."""
    return bool(len(labels_N) and (scores_NK.argmax(1) == labels_N).all())


def softened(scores_NK: Floats, tau: float) -> Floats:
    """The softmax of scores / T at tau = log T."""
    p_NK: Floats = np.exp((scores_NK - scores_NK.max(1, keepdims=True)) * np.exp(-tau))
    p_NK /= p_NK.sum(1, keepdims=True)
    return p_NK


def _slopes(scores_NK: Floats, labels_N: Labels, tau: float) -> tuple[float, float]:
    """First and second derivative of the loss by tau = log T."""
    inverse, p_NK = float(np.exp(-tau)), softened(scores_NK, tau)
    gaps_NK = scores_NK - scores_NK.max(1, keepdims=True)
    mean_N = (p_NK * gaps_NK).sum(1)
    true_N = gaps_NK[np.arange(len(labels_N)), labels_N]
    spread = float((p_NK * (gaps_NK - mean_N[:, None]) ** 2).sum(1).mean())
    by_inverse = float((mean_N - true_N).mean())
    return -inverse * by_inverse, inverse * by_inverse + inverse**2 * spread
