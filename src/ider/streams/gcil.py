"""The `gcil` stream (generalised class-incremental learning): phases of random classes in random, unequal numbers.

Classes come again, no image does. Labels are renumbered by first appearance, and the test set of a phase is that of all
classes seen so far. The published code draws phases and memory from one global generator, so that its streams differ
from method to method; here the sampler owns its generator, and every method sees the same stream.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ider.data.datasets import Dataset
from ider.errors import UserError
from ider.options import option
from ider.streams.stream import Stream, Task

Ints = NDArray[np.int64]
LONG_TAIL_BASE = (
    0.984  # weight of class c is 0.984^c: the first of 100 classes is about five times likelier than the last
)


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """The parameters of the published algorithm."""

    weights: Literal["uniform", "longtail"] = option("uniform", "how likely each class is within a phase")
    samples: int = option(1000, "images of a phase, before classes run out", least=1)
    most_classes: int = option(50, "classes of a phase, at most", least=1)
    seed: int = option(1993, "seed of the phases, whatever the run's own", least=0)


def gcil(dataset: Dataset, sampler: Sampler, phases: int = 20) -> Stream:
    """The stream of so many phases drawn from a dataset."""
    drawn = list(draw_phases(dataset.train.labels, sampler, phases))
    order = list(dict.fromkeys(label for chosen, _ in drawn for label in chosen))
    position = np.full(len(dataset.class_names), -1, np.int64)
    position[order] = np.arange(len(order))
    tasks = []
    seen: list[int] = []
    for chosen, indices in drawn:
        tasks.append(Task(dataset.train.images[indices], position[dataset.train.labels[indices]]))
        seen.append(max(seen[-1] if seen else 0, int(position[chosen].max()) + 1))
    return Stream(
        tuple(tasks),
        _nested_tests(dataset, position, seen),
        tuple(dataset.class_names[old] for old in order),
        nested=True,
    )


def draw_phases(labels: Ints, sampler: Sampler, phases: int = 20) -> Iterator[tuple[list[int], Ints]]:
    """For each phase its classes in the order drawn, and the indices of its samples, class by class."""
    rng = np.random.RandomState(sampler.seed)
    remaining = {label: np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())}
    for phase in range(phases):
        available = [label for label, indices in remaining.items() if len(indices)]
        if not available:
            raise UserError(f"the samples are used up after {phase} of {phases} phases; ask for fewer")
        chosen = rng.choice(available, rng.randint(0, min(len(available), sampler.most_classes)) + 1, replace=False)
        counts = _counts(chosen, sampler, rng)
        parts = []
        for label, count in zip(chosen.tolist(), counts, strict=True):
            taken = rng.choice(remaining[label], min(count, len(remaining[label])), replace=False)
            remaining[label] = np.setdiff1d(remaining[label], taken)
            parts.append(taken)
        yield chosen.tolist(), np.concatenate(parts)


def _counts(chosen: Ints, sampler: Sampler, rng: np.random.RandomState) -> list[int]:
    """How many of the phase's samples each class gets: drawn again until each gets one."""
    if sampler.samples < len(chosen):
        raise UserError(f"a phase of {sampler.samples} samples cannot show {len(chosen)} classes")
    weights = LONG_TAIL_BASE**chosen if sampler.weights == "longtail" else np.ones(len(chosen))
    while True:
        draws = rng.choice(chosen, sampler.samples, replace=True, p=weights / weights.sum())
        counts = [int((draws == label).sum()) for label in chosen]
        if min(counts) > 0:
            return counts


def _nested_tests(dataset: Dataset, position: Ints, seen: list[int]) -> tuple[Task, ...]:
    """The test images of the classes seen up to each phase: each set begins with the one before."""
    labels = position[dataset.test.labels]
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    images, labels = dataset.test.images[order], labels[order]
    return tuple(_prefix(images, labels, count) for count in seen)


def _prefix(images: NDArray[np.uint8], labels: Ints, classes: int) -> Task:
    stop = int(np.searchsorted(labels, classes))
    return Task(images[:stop], labels[:stop])
