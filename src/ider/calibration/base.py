"""What a calibrator is, and the trained learner as it sees it: memory and held-out images, never a test image.

Shape legend: N images, K classes seen, D features; labels are positions among the K classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ider.calibration.solver import Floats, all_right, warranted_temperature

ANSWERS = ("first", "second", "mean")
ALL_RIGHT = "all_right"
"""The detail that names the answers which were right on every image: there, the number of images decides on T."""
Temperatures = Mapping[str, float]
"""By answer; an answer without one is as it is."""


@dataclass(frozen=True)
class Labelled:
    """Images as they came (uint8) and their labels, as positions among the classes seen."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def pick(self, which: NDArray[Any]) -> "Labelled":
        """Some of them, by position or by mask."""
        return Labelled(self.images[which], self.labels[which])


class Sight(Protocol):
    """A trained learner as a calibrator sees it; nothing here changes it."""

    @property
    def memory(self) -> Labelled:
        """The memory's samples."""
        ...

    @property
    def held_out(self) -> Sequence[Labelled]:
        """For each task so far the images that were kept from training; none of them if nothing was."""
        ...

    @property
    def newest(self) -> NDArray[np.int64]:
        """The classes of the newest task, those that came again among them."""
        ...

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator at its beginning; the same purpose gives the same numbers, whatever the task."""
        ...

    def scores(self, samples: Labelled, shift: Floats | None = None) -> Mapping[str, Floats]:
        """By answer the log-probabilities (N x K) of images, to which a shift may be added once they are normalised."""
        ...

    def features(self, samples: Labelled) -> Floats:
        """What the head sees of them for the first answer (N x D)."""
        ...

    def slopes(self, samples: Labelled, targets: NDArray[np.int64]) -> Floats:
        """The gradient of the first answer's cross-entropy with `targets` by each normalised image."""
        ...


@dataclass(frozen=True)
class Calibration:
    """What a calibrator chose, and what it looked at."""

    temperatures: Temperatures = field(default_factory=dict)
    remembered: int = 0
    """Images of the memory that were used."""
    held_out: int = 0
    """Images outside the memory, kept from training, that were used; so many must be kept to do this again."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else is worth knowing, as JSON can hold it."""


@dataclass(frozen=True, kw_only=True)
class Calibrator:
    """Leaves the answers as they are.

    Every calibrator is built on this one; its fields are its settings.
    """

    @property
    def hold_out(self) -> float:
        """What `stream.hold_out` is set to if it says nothing; 0: no held-out images are needed."""
        return 0.0

    @property
    def needs_memory(self) -> bool:
        """Whether it can do nothing without a memory."""
        return False

    def calibrate(self, sight: Sight) -> Calibration:
        """Choose the temperatures."""
        return Calibration()


def fitted(scores: Mapping[str, Floats], labels: NDArray[np.int64], **counts: int) -> Calibration:
    """The temperatures under which these labels are likeliest, one an answer; `counts` say what the images were."""
    found = {answer: warranted_temperature(rows, labels) for answer, rows in scores.items()}
    free = [answer for answer, rows in scores.items() if all_right(rows, labels)]
    return Calibration(found, **counts, details={ALL_RIGHT: free})


def joined(parts: Sequence[Labelled]) -> Labelled:
    """The samples of several parts (at least one) as one."""
    return Labelled(np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts]))
