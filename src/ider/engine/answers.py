"""From the logits of the first and second answer to probabilities: in float64, over the classes that are allowed.

Shape legend: N images, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ider.calibration import Temperatures
from ider.errors import unknown

Logits = NDArray[np.float32]
Probabilities = NDArray[np.float64]
Answer = Literal["first", "second", "mean"]
ANSWERS: tuple[Answer, ...] = ("first", "second", "mean")


@dataclass(frozen=True)
class Answers:
    """Both answers' logits (N x C) to the same images, from one pass through the lower half of the net."""

    first: Logits
    second: Logits

    def to_first(self, count: int) -> "Answers":
        """The answers to the first `count` images."""
        return Answers(self.first[:count], self.second[:count])

    def probabilities(
        self, answer: Answer, classes: Sequence[int] | None = None, temperatures: Temperatures | None = None
    ) -> Probabilities:
        """The softmax of one answer, or the mean of both softmaxes; all mass on `classes`, if given.

        At a temperature T of the answer its probabilities p are p^(1/T), made to sum to one. For one answer that is the
        softmax of logits / T; of the mean, too, the order of the classes stays.
        """
        if answer not in ANSWERS:
            raise unknown("answer", answer, ANSWERS)
        temperature = (temperatures or {}).get(answer, 1.0)
        if temperature != 1:
            calibrated = softmax(self.log_probabilities(answer, classes) / temperature, classes)
            return _led_by(calibrated, self.probabilities(answer, classes).argmax(1))
        if answer == "mean":
            return (self.probabilities("first", classes) + self.probabilities("second", classes)) / 2
        return softmax(self.first if answer == "first" else self.second, classes)

    def log_probabilities(self, answer: Answer, classes: Sequence[int] | None = None) -> Probabilities:
        """The logarithms of the probabilities, minus infinity where these are zero; nothing small is lost."""
        if answer != "mean":
            return log_softmax(self.first if answer == "first" else self.second, classes)
        first = log_softmax(self.first, classes)
        if np.array_equal(self.first, self.second):  # a net without a second input: not even rounding is to differ
            return first
        both: Probabilities = np.logaddexp(first, log_softmax(self.second, classes)) - np.log(2)
        return both


def _led_by(probabilities_NC: Probabilities, likeliest_N: NDArray[np.int64]) -> Probabilities:
    """The same, where rounding may have made the likeliest class equal to another, or another equal to it."""
    others = np.flatnonzero(probabilities_NC.argmax(1) != likeliest_N)
    probabilities_NC[others, likeliest_N[others]] = np.nextafter(probabilities_NC[others].max(1), 1)
    return probabilities_NC


def softmax(logits: NDArray[np.floating[Any]], classes: Sequence[int] | None = None) -> Probabilities:
    """Softmax over the given classes, zero elsewhere."""
    exponentials_NC = np.exp(_shifted(logits, classes))
    result: Probabilities = exponentials_NC / exponentials_NC.sum(1, keepdims=True)
    return result


def log_softmax(logits: NDArray[np.floating[Any]], classes: Sequence[int] | None = None) -> Probabilities:
    """Its logarithm, minus infinity elsewhere."""
    shifted_NC = _shifted(logits, classes)
    result: Probabilities = shifted_NC - np.log(np.exp(shifted_NC).sum(1, keepdims=True))
    return result


def _shifted(logits: NDArray[np.floating[Any]], classes: Sequence[int] | None) -> Probabilities:
    allowed_C = np.zeros(logits.shape[1], bool)
    allowed_C[slice(None) if classes is None else list(classes)] = True
    shifted_NC: Probabilities = np.where(allowed_C, logits.astype(np.float64), -np.inf)
    shifted_NC -= shifted_NC.max(1, keepdims=True)
    return shifted_NC
