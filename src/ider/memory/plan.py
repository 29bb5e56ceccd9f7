"""The plan of an epoch, made on the host before its first step: pure index arithmetic and all random numbers of it.

A step then is a function of device tensors alone: it needs no generator, and it is the same on every device.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ider.memory.policy import DISCARD, Ints, Policy, Slots
from ider.randomness import Generators
from ider.types import CURRENT, Draw

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Schedule:
    """How an epoch is cut into steps and what each step draws."""

    batch: int
    replay_batch: int
    drop_last: bool
    draws: tuple[Draw, ...]
    coins: tuple[str, ...]
    pad: int
    flip: bool


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of one shape; every array has one row a step.

    `samples` and `writes`: which of the task's samples are learnt, and the slot that each takes afterwards;
    `reads/NAME`: the slots of each draw; `crops`, `flips`, `coins`: the random numbers of augmentation and method.
    """

    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.arrays["samples"])


def plan_epoch(
    labels: Ints, slots: Slots, schedule: Schedule, tools: tuple[Policy, Generators]
) -> tuple[list[Segment], Slots]:
    """Plan one pass over samples with these `labels`; `tools` are the memory's policy and the run's generators.

    Everything random is drawn for the whole epoch at once, so an epoch planned again from the same state is the same.
    """
    policy, generators = tools
    order = generators["order"].permutation(len(labels))
    if schedule.drop_last:
        order = order[: len(order) // schedule.batch * schedule.batch]
    targets, after = policy(slots, labels[order], generators["memory"])
    segments, start = [], 0
    for sizes, steps in _shapes(len(order), slots, schedule):
        stop = start + steps * sizes[CURRENT]
        samples, writes = (array[start:stop].reshape(steps, -1) for array in (order, targets))
        filled = np.minimum(slots.offered + start + np.arange(steps) * sizes[CURRENT], slots.capacity)
        arrays: dict[str, Array] = {"samples": samples, "writes": _last_wins(writes, slots.capacity)}
        for name, size in sizes.items():
            if name != CURRENT:
                arrays[f"reads/{name}"] = _without_replacement(filled, size, generators["replay"])
        segments.append(Segment(sizes, arrays | _random_numbers(steps, sum(sizes.values()), schedule, generators)))
        start = stop
    return segments, after


def _shapes(count: int, slots: Slots, schedule: Schedule) -> list[tuple[dict[str, int], int]]:
    """The runs of equal steps: (rows of each part, number of steps). A draw takes what the memory holds, if less."""
    shapes: list[tuple[dict[str, int], int]] = []
    for start in range(0, count, schedule.batch):
        sizes = {CURRENT: min(schedule.batch, count - start)}
        drawn = min(schedule.replay_batch, slots.capacity, slots.offered + start)
        if drawn:
            sizes |= {draw.name: drawn for draw in schedule.draws}
        if shapes and shapes[-1][0] == sizes:
            shapes[-1] = (sizes, shapes[-1][1] + 1)
        else:
            shapes.append((sizes, 1))
    return shapes


def _last_wins(writes: Ints, spare: int) -> Ints:
    """Of several samples of a batch for one slot the last keeps it; the others go to the spare one, as if discarded."""
    steps, size = writes.shape
    slots = np.where(writes == DISCARD, spare, writes)
    keys = (np.arange(steps)[:, None] * (spare + 1) + slots).ravel()
    _, from_the_end = np.unique(keys[::-1], return_index=True)
    last = np.zeros(keys.size, bool)
    last[keys.size - 1 - from_the_end] = True
    return np.where(last.reshape(steps, size), slots, spare)


def _without_replacement(filled: Ints, size: int, rng: np.random.Generator) -> Ints:
    """For each step a uniform subset of `size` of its first `filled` slots (Floyd's algorithm, all steps at once)."""
    chosen = np.empty((len(filled), size), np.int64)
    for place in range(size):
        last = filled - size + place
        pick = rng.integers(0, last + 1)
        taken = (chosen[:, :place] == pick[:, None]).any(1)
        chosen[:, place] = np.where(taken, last, pick)
    return chosen


def _random_numbers(steps: int, rows: int, schedule: Schedule, generators: Generators) -> dict[str, Array]:
    arrays: dict[str, Array] = {"coins": generators["coins"].random((steps, len(schedule.coins)), np.float32)}
    if schedule.pad:
        arrays["crops"] = generators["augment"].integers(0, 2 * schedule.pad + 1, (steps, rows, 2))
    if schedule.flip:
        arrays["flips"] = generators["augment"].random((steps, rows)) < 0.5
    return arrays
