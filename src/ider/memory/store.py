"""The memory itself: device tensors with one slot a sample, and one more slot that takes what is thrown away.

The spare slot lets a step write every current sample somewhere, so that its shape never depends on what is kept.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class MemoryStore:
    """Images (uint8) and labels of the samples that are kept; written and read by slot numbers on the device."""

    def __init__(self, capacity: int, image_shape: Sequence[int], device: torch.device) -> None:
        self.capacity = capacity
        self.images = torch.zeros((capacity + 1, *image_shape), dtype=torch.uint8, device=device)
        self.labels = torch.zeros(capacity + 1, dtype=torch.int64, device=device)

    def write(self, slots: Tensor, images: Tensor, labels: Tensor) -> None:
        """Overwrite `slots`; they must differ from each other, but for the spare one (number `capacity`)."""
        self.images.index_copy_(0, slots, images)
        self.labels.index_copy_(0, slots, labels)

    def forget_discarded(self) -> None:
        """Blank the spare slot: what was not kept is gone."""
        self.images[-1].zero_()
        self.labels[-1].zero_()

    def tensors(self) -> dict[str, Tensor]:
        """The content without the spare slot, by name."""
        return {"images": self.images[:-1], "labels": self.labels[:-1]}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over the content that `tensors()` gave."""
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])
