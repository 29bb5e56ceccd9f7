"""Replayed calibration (Li et al., 2024): a buffer of held-out images of all tasks, on which T is fitted anew."""

from dataclasses import dataclass

import numpy as np

from ider.calibration.base import Calibration, Calibrator, Labelled, Sight, fitted, joined
from ider.options import option, validate


@dataclass(frozen=True, kw_only=True)
class RC(Calibrator):
    """A fifth of the training images is held out; all of the first task's and 40 % of each later one's are kept."""

    later: float = option(0.4, "share of each later task's held-out images that is kept", least=0, most=1)
    capacity: int = option(
        0, "images kept at most, chosen at random (then give the memory fewer); 0: no limit", least=0
    )

    def __post_init__(self) -> None:
        validate(self, "calibration.")

    @property
    def hold_out(self) -> float:
        """As published."""
        return 0.2

    def calibrate(self, sight: Sight) -> Calibration:
        """Fit one temperature an answer on the buffer."""
        kept = self.buffer(sight)
        return fitted(sight.scores(kept), kept.labels, held_out=len(kept))

    def buffer(self, sight: Sight) -> Labelled:
        """What is kept of the tasks so far; what was not kept after one task never comes in after a later one."""
        chosen, keys = [], []
        for task, samples in enumerate(sight.held_out):
            rng = sight.rng(f"replayed calibration {task}")
            count = int(self.later * len(samples) + 1e-9) if task else len(samples)
            chosen.append(samples.pick(rng.permutation(len(samples))[:count]))
            keys.append(rng.random(count))
        kept = joined(chosen)
        return kept.pick(np.sort(np.argsort(np.concatenate(keys))[: self.capacity])) if self.capacity else kept
