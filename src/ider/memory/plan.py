"""The plan of an epoch, made on the host before its first step: pure index arithmetic and all random numbers of it.

A step then is a function of device tensors alone: it needs no generator, and it is the same on every device.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ider.memory.policy import DISCARD, Ints, Policy, Slots
from ider.randomness import Generators
from ider.types import CURRENT, TASKS, VIEW_NUMBERS, Draw, Views

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Schedule:
    """How an epoch is cut into steps and what each step draws; `offers`: the memory is offered samples on the way."""

    batch: int
    replay_batch: int
    drop_last: bool
    draws: tuple[Draw, ...]
    coins: tuple[str, ...]
    pad: int
    flip: bool
    offers: bool = True
    dice: tuple[str, ...] = ()
    averages: int = 0
    noise: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    tasks: int = 1
    views: Views | None = None


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of one shape; every array has one row a step.

    `samples` and `writes`: which of the samples are learnt, and the slot that each takes afterwards; `reads/NAME`: the
    slots of each draw; `crops`, `flips`, `coins`, `dice/NAME`, `noise/NAME`, `averages`: the random numbers of
    augmentation and method; `views`, `view_reads`: those of strong augmentation, and the slots that it reads.
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
    targets, after = np.full(len(order), DISCARD), slots
    if schedule.offers:
        targets, after = policy(slots, labels[order], generators["memory"])
    segments, start = [], 0
    for sizes, steps in _shapes(len(order), slots, schedule):
        stop = start + steps * sizes[CURRENT]
        samples, writes = (array[start:stop].reshape(steps, -1) for array in (order, targets))
        filled = _filled(slots, start + np.arange(steps) * sizes[CURRENT], schedule)
        arrays: dict[str, Array] = {"samples": samples, "writes": _last_wins(writes, slots.capacity)}
        arrays |= _reads(filled, sizes, generators["replay"])
        arrays |= _random_numbers(steps, sizes, schedule, generators)
        if schedule.views is not None:
            arrays |= _view_plan(filled, sizes[CURRENT], schedule.views, generators)
        segments.append(Segment(sizes, arrays))
        start = stop
    return segments, after


def _filled(slots: Slots, before: Ints, schedule: Schedule) -> Ints:
    """How many slots are in use once so many samples of the epoch have been learnt."""
    return np.minimum(slots.offered + (before if schedule.offers else 0 * before), slots.capacity)


def _shapes(count: int, slots: Slots, schedule: Schedule) -> list[tuple[dict[str, int], int]]:
    """The runs of equal steps: (rows of each part, number of steps). A draw takes what the memory holds, if less."""
    starts = np.arange(0, count, schedule.batch)
    current = np.minimum(schedule.batch, count - starts)
    drawn = np.minimum(schedule.replay_batch, _filled(slots, starts, schedule))
    if not schedule.draws:
        drawn[:] = 0
    changes = np.flatnonzero((np.diff(current, prepend=-1) != 0) | (np.diff(drawn, prepend=-1) != 0))
    shapes = []
    for first, steps in zip(changes.tolist(), np.diff(changes, append=len(starts)).tolist(), strict=True):
        sizes = {CURRENT: int(current[first])}
        if drawn[first]:
            sizes |= {draw.name: int(drawn[first]) for draw in schedule.draws}
        shapes.append((sizes, steps))
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


def _reads(filled: Ints, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
    """What each draw reads at each step: some of the slots filled by then."""
    draws = [name for name in sizes if name != CURRENT]
    if not draws:
        return {}
    found = _without_replacement(filled, sizes[draws[0]], len(draws), rng)
    return {f"reads/{name}": reads for name, reads in zip(draws, found, strict=True)}


def _without_replacement(filled: Ints, size: int, draws: int, rng: np.random.Generator) -> Ints:
    """For each draw and step a uniform subset of `size` of its first `filled` slots, by Floyd's algorithm.

    It goes through the places of all subsets at once; in memory the steps lie next to each other, for long inner loops.
    """
    last = filled - size + np.arange(size)[:, None]
    chosen = rng.integers(0, np.broadcast_to(last + 1, (draws, *last.shape)))
    for place in range(1, size):
        taken = (chosen[:, :place] == chosen[:, place, None]).any(1)
        np.copyto(chosen[:, place], last[place], where=taken)
    return np.ascontiguousarray(chosen.transpose(0, 2, 1))


def _random_numbers(
    steps: int, sizes: Mapping[str, int], schedule: Schedule, generators: Generators
) -> dict[str, Array]:
    arrays: dict[str, Array] = {"coins": generators["coins"].random((steps, len(schedule.coins)), np.float32)}
    for name, shape in noise_shapes(schedule.noise, sizes, schedule.tasks).items():
        arrays[f"noise/{name}"] = generators["coins"].random((steps, *shape), np.float32)
    if schedule.averages:
        arrays["averages"] = generators["coins"].random((steps, schedule.averages), np.float32)
    for name in schedule.dice:
        if name in sizes:
            arrays[f"dice/{name}"] = generators["coins"].random((steps, sizes[name]), np.float32)
    rows = sum(sizes.values())
    if schedule.pad:
        arrays["crops"] = generators["augment"].integers(0, 2 * schedule.pad + 1, (steps, rows, 2))
    if schedule.flip:
        arrays["flips"] = generators["augment"].random((steps, rows)) < 0.5
    return arrays


def noise_shapes(
    noise: Mapping[str, tuple[int | str, ...]], sizes: Mapping[str, int], tasks: int
) -> dict[str, tuple[int, ...]]:
    """The shapes with numbers for names: TASKS, and the rows of each part; what concerns an absent part is left out."""
    known = {**sizes, TASKS: tasks}
    return {
        name: tuple(size if isinstance(size, int) else known[size] for size in shape)
        for name, shape in noise.items()
        if all(isinstance(size, int) or size in known for size in shape)
    }


def _view_plan(filled: Ints, current: int, views: Views, generators: Generators) -> dict[str, Array]:
    """The memory's slots of which views are made, in steps that begin alike, and the random numbers of all views."""
    steps, rows = len(filled), min(views.memory, int(filled[0]))
    arrays: dict[str, Array] = {}
    if rows:
        (arrays["view_reads"],) = _without_replacement(filled, rows, 1, generators["replay"])
    count = (min(views.current, current) + rows) * views.times
    arrays["views"] = generators["augment"].random((steps, count, VIEW_NUMBERS), np.float32)
    return arrays
