"""The memory itself: device tensors with one slot a sample, and one more slot that takes what is thrown away.

The spare slot lets a step write every current sample somewhere, so that its shape never depends on what is kept.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ider.errors import UserError


class MemoryStore:
    """Images (uint8), labels and further fields of the samples that are kept; read and written by slot numbers.

    `fields` are the shapes of what is stored with a sample.
    """

    def __init__(
        self,
        capacity: int,
        image_shape: Sequence[int],
        device: torch.device,
        fields: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.capacity = capacity
        try:
            self.images = torch.zeros((capacity + 1, *image_shape), dtype=torch.uint8, device=device)
            self.labels = torch.zeros(capacity + 1, dtype=torch.int64, device=device)
            self.fields = {
                name: torch.zeros((capacity + 1, *shape), device=device) for name, shape in (fields or {}).items()
            }
        except RuntimeError as error:  # torch has no error of its own for a CPU that is out of memory
            raise UserError(f"memory.size is {capacity}; so many images do not fit into {device} memory") from error

    def write(self, slots: Tensor, images: Tensor, labels: Tensor, kept: Mapping[str, Tensor] | None = None) -> None:
        """Overwrite `slots`; they must differ from each other, but for the spare one (number `capacity`)."""
        self.images.index_copy_(0, slots, images)
        self.labels.index_copy_(0, slots, labels)
        for name, values in (kept or {}).items():
            self.revise(name, slots, values)

    def revise(self, field: str, slots: Tensor, values: Tensor) -> None:
        """Overwrite one field of `slots`."""
        mine = self.fields[field]
        mine.index_copy_(0, slots, values.detach().to(mine.dtype))

    def widen(self, field: str, classes: int) -> None:
        """Make room for more classes: a sample is of none of them, so each gets the lowest of its values."""
        old = self.fields[field]
        lowest = old.amin(1, keepdim=True).expand(-1, classes - old.shape[1])
        self.fields[field] = torch.cat([old, lowest], 1)

    def forget_discarded(self) -> None:
        """Blank the spare slot: what was not kept is gone."""
        for tensor in (self.images, self.labels, *self.fields.values()):
            tensor[-1].zero_()

    def tensors(self) -> dict[str, Tensor]:
        """The content without the spare slot, by name."""
        fields = {f"fields/{name}": field[:-1] for name, field in self.fields.items()}
        return {"images": self.images[:-1], "labels": self.labels[:-1], **fields}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over the content that `tensors()` gave."""
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])
