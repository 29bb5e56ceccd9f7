"""From the logits of the first and second answer to probabilities: in float64, over the classes that are allowed.

Shape legend: N images, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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

    def probabilities(self, answer: Answer, classes: Sequence[int] | None = None) -> Probabilities:
        """The softmax of one answer, or the mean of both softmaxes; all mass on `classes`, if given."""
        if answer == "mean":
            return (self.probabilities("first", classes) + self.probabilities("second", classes)) / 2
        if answer not in ANSWERS:
            raise unknown("answer", answer, ANSWERS)
        return softmax(self.first if answer == "first" else self.second, classes)


def softmax(logits: Logits, classes: Sequence[int] | None = None) -> Probabilities:
    """Softmax over the given classes, zero elsewhere."""
    allowed_C = np.zeros(logits.shape[1], bool)
    allowed_C[slice(None) if classes is None else list(classes)] = True
    shifted_NC = np.where(allowed_C, logits.astype(np.float64), -np.inf)
    shifted_NC -= shifted_NC.max(1, keepdims=True)
    exponentials_NC = np.exp(shifted_NC)
    result: Probabilities = exponentials_NC / exponentials_NC.sum(1, keepdims=True)
    return result
