"""Temperature scaling: the temperature under which the labels of some images are likeliest (Guo et al., 2017)."""

from dataclasses import dataclass
from typing import Literal

from ider.calibration.base import Calibration, Calibrator, Sight, fitted, joined
from ider.options import option, validate


@dataclass(frozen=True, kw_only=True)
class Temperature(Calibrator):
    """Fitted on the memory, which needs nothing else; the net knows these images by heart, so they tell little."""

    on: Literal["memory", "newest", "all"] = option(
        "memory", "the memory; or held-out images: of the newest task, or of all tasks (an upper bound)"
    )

    def __post_init__(self) -> None:
        validate(self, "calibration.")

    @property
    def hold_out(self) -> float:
        """A fifth, unless the memory is enough."""
        return 0.0 if self.on == "memory" else 0.2

    @property
    def needs_memory(self) -> bool:
        """Whether the memory is all there is."""
        return self.on == "memory"

    def calibrate(self, sight: Sight) -> Calibration:
        """Fit one temperature an answer."""
        if self.on == "memory":
            return fitted(sight.scores(sight.memory), sight.memory.labels, remembered=len(sight.memory))
        samples = sight.held_out[-1] if self.on == "newest" else joined(sight.held_out)
        return fitted(sight.scores(samples), samples.labels, held_out=len(samples))
