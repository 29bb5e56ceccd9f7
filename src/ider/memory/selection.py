"""What a memory keeps that is filled between tasks: pure functions of labels, features and random numbers.

Each policy says which slots stay, in order, and which samples of the task enter behind them, in order; a sample's place
within its class is its rank, so what is cut later is the end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidates:
    """The label of each slot in use, the label and the features of each sample of the task, and when classes came.

    `task_of` gives the number (from 0) of the task that brought a class. `features` are computed when asked for.
    """

    old: Ints
    new: Ints
    task_of: Mapping[int, int]
    features: Callable[[], Floats]


Selection = Callable[[Candidates, int, np.random.Generator], tuple[Ints, Ints]]
"""(candidates, capacity, generator) -> (slots that stay, samples that enter)."""


def herding(candidates: Candidates, capacity: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The same number for each class seen; of a new class those whose running mean stays closest to the class's."""
    quota = capacity // len(candidates.task_of)
    features = candidates.features()
    entering = [where[herd(features[where], min(quota, len(where)))] for where in _by_class(candidates.new)]
    return _first(candidates.old, quota, _but(candidates)), _joined(entering)


def herd(features: Floats, count: int) -> Ints:
    """Greedily the `count` rows whose mean is closest to the mean of all rows, at every length (Welling, 2009)."""
    mean, total = features.mean(0), np.zeros(features.shape[1])
    left, chosen = np.ones(len(features), bool), np.empty(count, np.int64)
    for place in range(count):
        distances = np.linalg.norm(mean - (features + total) / (place + 1), axis=1)
        chosen[place] = np.where(left, distances, np.inf).argmin()
        left[chosen[place]] = False
        total += features[chosen[place]]
    return chosen


def class_quota(candidates: Candidates, capacity: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The same number for each class seen, at random; what is left over goes to new classes."""
    stay = _first(candidates.old, capacity // len(candidates.task_of), _but(candidates))
    samples = _by_class(candidates.new)
    room, extra = divmod(capacity - len(stay), len(samples))
    quotas = np.full(len(samples), room)
    quotas[rng.permutation(len(samples))[:extra]] += 1
    return stay, _joined([rng.permutation(where)[:quota] for where, quota in zip(samples, quotas, strict=True)])


def task_quota(candidates: Candidates, capacity: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The same number for each task, at random and not balanced over its classes."""
    quota = capacity // (1 + max(candidates.task_of.values()))
    tasks = np.array([candidates.task_of[label] for label in candidates.old.tolist()], np.int64)
    return _first(tasks, quota), rng.permutation(len(candidates.new))[:quota]


def balanced(candidates: Candidates, capacity: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """As many of each class as can be, at random, as a greedy sampler that always makes room at the largest class.

    No class gets more than one slot more than another, unless the other has no more samples.
    """
    labels = np.concatenate([candidates.old, candidates.new])
    order = np.concatenate([np.arange(len(candidates.old)), len(candidates.old) + rng.permutation(len(candidates.new))])
    ranks = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        where = order[labels[order] == label]
        ranks[where] = np.arange(len(where))
    kept = order[np.argsort(ranks[order], kind="stable")[:capacity]]
    return np.sort(kept[kept < len(candidates.old)]), kept[kept >= len(candidates.old)] - len(candidates.old)


def _but(candidates: Candidates) -> Ints:
    """The classes that the task brings again: their samples are chosen anew."""
    return np.unique(candidates.new)


def _first(groups: Ints, quota: int, without: Ints | None = None) -> Ints:
    """The first `quota` slots of each group, in the order of slots."""
    kept = np.unique(groups) if without is None else np.setdiff1d(groups, without)
    return np.sort(_joined([np.flatnonzero(groups == group)[:quota] for group in kept]))


def _by_class(labels: Ints) -> list[Ints]:
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])


SELECTIONS: dict[str, Selection] = {
    "herding": herding,
    "class-quota": class_quota,
    "task-quota": task_quota,
    "balanced": balanced,
}
