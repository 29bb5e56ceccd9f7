"""Which slot of the memory a sample takes: pure functions of labels and random numbers, never of the net.

Every policy sees the samples in the order in which they are offered (each image once an epoch) and says for each the
slot that it overwrites, or `DISCARD`. So an epoch's traffic can be planned before its first step.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
DISCARD = EMPTY = -1


@dataclass(frozen=True)
class Slots:
    """What the host knows of the memory: the label in each slot (`EMPTY` if none), how many samples were offered."""

    labels: Ints
    offered: int = 0

    @classmethod
    def empty(cls, capacity: int) -> "Slots":
        """A memory that has seen nothing."""
        return cls(np.full(capacity, EMPTY, np.int64))

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return len(self.labels)

    @property
    def filled(self) -> int:
        """The number of slots in use: they fill from the first to the last."""
        return min(self.offered, self.capacity)


Policy = Callable[[Slots, Ints, np.random.Generator], tuple[Ints, Slots]]
"""(slots, labels of the samples offered, generator) -> (slot or DISCARD for each sample, slots afterwards)."""


def reservoir(slots: Slots, labels: Ints, rng: np.random.Generator) -> tuple[Ints, Slots]:
    """Algorithm R: sample number n (from 0) takes a slot drawn from 0..n if that is one of the memory's."""
    targets = _drawn(slots, len(labels), rng)
    kept = slots.labels.copy()
    taken = targets != DISCARD
    kept[targets[taken]] = labels[taken]  # of several samples for one slot NumPy keeps the last, as the memory does
    return targets, Slots(kept, slots.offered + len(labels))


def class_balanced(slots: Slots, labels: Ints, rng: np.random.Generator) -> tuple[Ints, Slots]:
    """The reservoir's acceptance, but the slot to overwrite is any slot of a class that has most slots, uniformly."""
    targets = _drawn(slots, len(labels), rng)
    fills = max(0, min(len(labels), slots.capacity - slots.offered))
    kept = slots.labels.copy()
    kept[targets[:fills]] = labels[:fills]
    _Rebalancer(kept).replace(targets, labels, fills, rng)
    return targets, Slots(kept, slots.offered + len(labels))


def _drawn(slots: Slots, count: int, rng: np.random.Generator) -> Ints:
    """Algorithm R for `count` samples: the first fill the slots in order, later ones draw theirs."""
    numbers = np.arange(slots.offered, slots.offered + count)
    targets = rng.integers(0, numbers + 1)
    targets = np.where(numbers < slots.capacity, numbers, targets)
    return np.where(targets < slots.capacity, targets, DISCARD)


class _Rebalancer:
    """The slots of each class, kept up to date while accepted samples push out slots of the largest classes."""

    def __init__(self, labels: Ints) -> None:
        self.labels = labels
        self.slots: dict[int, list[int]] = {}
        for slot, label in enumerate(labels.tolist()):
            if label != EMPTY:
                self.slots.setdefault(label, []).append(slot)
        self.sizes = Counter({label: len(slots) for label, slots in self.slots.items()})

    def replace(self, targets: Ints, labels: Ints, start: int, rng: np.random.Generator) -> None:
        """Redirect every accepted sample from `start` on (in place)."""
        accepted = start + np.flatnonzero(targets[start:] != DISCARD)
        choices = rng.random(len(accepted)).tolist()
        for index, choice in zip(accepted.tolist(), choices, strict=True):
            targets[index] = self._push_out(int(labels[index]), choice)

    def _push_out(self, label: int, choice: float) -> int:
        most = max(self.sizes.values())
        largest = sorted(name for name, size in self.sizes.items() if size == most)
        which, place = divmod(int(choice * len(largest) * most), most)
        slots = self.slots[largest[which]]
        slots[place], slots[-1] = slots[-1], slots[place]
        slot = slots.pop()
        self.sizes[largest[which]] -= 1
        self.slots.setdefault(label, []).append(slot)
        self.sizes[label] += 1
        self.labels[slot] = label
        return slot


POLICIES: dict[str, Policy] = {"reservoir": reservoir, "class-balanced": class_balanced}
