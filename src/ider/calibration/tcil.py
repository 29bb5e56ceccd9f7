"""T-CIL (Hwang et al., 2025): remembered images are pushed until the new ones among them look as hard as held-out ones.

Shape legend: N images, K classes seen, D features.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ider.calibration.base import Calibration, Calibrator, Labelled, Sight, fitted
from ider.calibration.solver import Floats, Labels, best_temperature, descended_temperature
from ider.options import option, validate

NARROW = 1e-3
"""The width of the bracket at which the bisection ends: ten halvings of 0..1."""


@dataclass(frozen=True, kw_only=True)
class TCIL(Calibrator):
    """Pushes images of old classes towards the nearest other class, of new ones towards the farthest, and fits T there.

    How far is found with a few held-out images of the newest task alone: there, T on its pushed images in the memory
    must equal T on what was held out.
    """

    images: int = option(100, "held-out images of the newest task that are used, balanced by class; 0: all", least=0)
    solver: Literal["exact", "sgd"] = option("exact", "to convergence, or the hundred epochs of SGD of the release")

    def __post_init__(self) -> None:
        validate(self, "calibration.")

    @property
    def hold_out(self) -> float:
        """As published: a hundred images of each task."""
        return 100.0

    def calibrate(self, sight: Sight) -> Calibration:
        """Find the distance for each answer, and fit its temperature on the whole memory at that distance."""
        memory, new = sight.memory, balanced(sight.held_out[-1], self.images, sight.rng("t-cil"))
        scores, fit = sight.scores(new), partial(self._fit, rng=sight.rng)
        wanted = {answer: fit(scores[answer], new.labels) for answer in scores}
        is_new = np.isin(memory.labels, sight.newest)
        targets = targets_of(sight.features(memory), memory.labels, is_new) if len(memory) else None
        if targets is None or not is_new.any():
            return self._last(scores, new.labels, sight, {"newest": wanted}, held_out=len(new))
        pushed, recent = -np.sign(sight.slopes(memory, targets)), memory.pick(is_new)

        def fit_at(distance: float, answer: str) -> float:
            return fit(sight.scores(recent, distance * pushed[is_new])[answer], recent.labels)

        distances = {answer: bisect(partial(fit_at, answer=answer), wanted[answer]) for answer in scores}
        scores = {answer: sight.scores(memory, distances[answer] * pushed)[answer] for answer in scores}
        details = {"newest": wanted, "distance": distances}
        return self._last(scores, memory.labels, sight, details, remembered=len(memory), held_out=len(new))

    def _fit(self, scores_NK: Floats, labels_N: Labels, rng: Callable[[str], np.random.Generator]) -> float:
        """The likeliest T: to compare sets of different sizes with each other, their sizes do not count."""
        if self.solver == "sgd":
            return descended_temperature(scores_NK, labels_N, rng("t-cil epochs"))
        return best_temperature(scores_NK, labels_N)

    def _last(
        self, scores: Mapping[str, Floats], labels: Labels, sight: Sight, details: Mapping[str, Any], **counts: int
    ) -> Calibration:
        """The temperatures themselves."""
        found = fitted(scores, labels, **counts)
        if self.solver == "sgd":
            found = replace(found, temperatures={a: self._fit(rows, labels, sight.rng) for a, rows in scores.items()})
        return replace(found, details={**found.details, **details})


def bisect(temperature_at: Callable[[float], float], wanted: float) -> float:
    """The distance in 0..1 at which the temperature is the wanted one, if it rises with the distance.

    Where it is never reached, the end that comes nearest to it: almost 0 or almost 1.
    """
    low, high = 0.0, 1.0
    while high - low > NARROW:
        middle = (low + high) / 2
        low, high = (middle, high) if temperature_at(middle) < wanted else (low, middle)
    return (low + high) / 2


def targets_of(features_ND: Floats, labels_N: Labels, is_new_N: NDArray[np.bool_]) -> Labels | None:
    """For each image the other class whose mean is nearest to it, for images of new classes the farthest.

    Classes without an image are out of the search; None if there are no two classes.
    """
    present_P = np.unique(labels_N)
    if len(present_P) < 2:
        return None
    means_PD = [features_ND[labels_N == label].mean(0) for label in present_P]
    distances_NP = np.stack([np.linalg.norm(features_ND - mean_D, axis=1) for mean_D in means_PD], 1)
    own_NP = present_P == labels_N[:, None]
    nearest_N = np.where(own_NP, np.inf, distances_NP).argmin(1)
    farthest_N = np.where(own_NP, -np.inf, distances_NP).argmax(1)
    targets: Labels = present_P[np.where(is_new_N, farthest_N, nearest_N)]
    return targets


def balanced(samples: Labelled, count: int, rng: np.random.Generator) -> Labelled:
    """At most `count` samples, as many of each class as can be; all of them for 0."""
    if not 0 < count < len(samples):
        return samples
    order = rng.permutation(len(samples))
    turn = np.empty(len(samples), np.int64)
    for label in np.unique(samples.labels):
        mine = order[samples.labels[order] == label]
        turn[mine] = np.arange(len(mine))
    return samples.pick(np.sort(order[np.argsort(turn[order], kind="stable")][:count]))
