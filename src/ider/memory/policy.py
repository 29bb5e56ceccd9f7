"""Which slot of the memory a sample takes: pure functions of labels and random numbers, never of the net.

Every policy sees the samples in the order in which they are offered (each image once an epoch) and says for each the
slot that it overwrites, or `DISCARD`. So an epoch's traffic can be planned before its first step.
"""

from bisect import bisect_left, insort
from collections import defaultdict
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
    accepted = fills + np.flatnonzero(targets[fills:] != DISCARD)
    incoming = labels[accepted]
    targets[accepted] = _Rebalancer(kept, incoming).push_out(incoming, rng.random(len(accepted)))
    kept[targets[accepted]] = incoming
    return targets, Slots(kept, slots.offered + len(labels))


def _drawn(slots: Slots, count: int, rng: np.random.Generator) -> Ints:
    """Algorithm R for `count` samples: the first fill the slots in order, later ones draw theirs."""
    numbers = np.arange(slots.offered, slots.offered + count)
    targets = rng.integers(0, numbers + 1)
    targets = np.where(numbers < slots.capacity, numbers, targets)
    return np.where(targets < slots.capacity, targets, DISCARD)


class _Rebalancer:
    """The slots of each class and the classes of each size, kept up to date while accepted samples push out slots.

    The largest classes are looked up, not searched for: a sample costs hardly more with 1,000 classes than with 10.
    """

    def __init__(self, kept: Ints, incoming: Ints) -> None:
        self.slots: dict[int, list[int]] = {label: [] for label in np.union1d(kept, incoming).tolist()}
        for slot, label in enumerate(kept.tolist()):
            self.slots[label].append(slot)
        self.slots.pop(EMPTY, None)
        self.of_size: defaultdict[int, list[int]] = defaultdict(list)  # labels in ascending order
        for label, slots in self.slots.items():
            self.of_size[len(slots)].append(label)
        self.most = max(self.of_size, default=0)

    def push_out(self, labels: Ints, choices: NDArray[np.float64]) -> list[int]:
        """The slots that samples with these labels take one after the other; choices in 0..1 draw them."""
        return [self._push_out(label, choice) for label, choice in zip(labels.tolist(), choices.tolist(), strict=True)]

    def _push_out(self, label: int, choice: float) -> int:
        largest = self.of_size[self.most]
        which, place = divmod(int(choice * len(largest) * self.most), self.most)
        shrinking = largest[which]
        slots = self.slots[shrinking]
        slots[place], slots[-1] = slots[-1], slots[place]
        self._resize(shrinking, -1)
        slot = slots.pop()
        self._resize(label, 1)
        self.slots[label].append(slot)
        return slot

    def _resize(self, label: int, change: int) -> None:
        """Book a class, before its slots change, under its size to be: the largest size changes by one at most."""
        size = len(self.slots[label])
        peers = self.of_size[size]
        del peers[bisect_left(peers, label)]
        insort(self.of_size[size + change], label)
        if size + change > self.most or not self.of_size[self.most]:
            self.most = size + change


POLICIES: dict[str, Policy] = {"reservoir": reservoir, "class-balanced": class_balanced}
