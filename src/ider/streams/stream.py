"""A stream: tasks that arrive one after the other, each with a test set of its own and only its own images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ider import randomness
from ider.errors import UserError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """What arrives at once: images (uint8, N x channels x height x width) and labels (whole numbers from 0)."""

    images: Images
    labels: Labels

    def __post_init__(self) -> None:
        images, labels = np.asarray(self.images), np.asarray(self.labels)
        if images.dtype != np.uint8 or images.ndim != 4:
            raise UserError(
                f"a task's images are uint8 of shape (N, channels, height, width), not {images.dtype} of {images.shape}"
            )
        if images.shape[3] in (1, 3) and images.shape[1] == images.shape[2] > 4:
            raise UserError(f"a task's images of shape {images.shape} have their channels last; transpose(0, 3, 1, 2)")
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images):
            raise UserError(
                f"a task of {len(images)} images needs as many whole labels, not {labels.dtype} of {labels.shape}"
            )
        if len(labels) == 0 or labels.min() < 0:
            raise UserError("a task needs at least one image, and labels from 0 on")
        object.__setattr__(self, "images", np.require(images, requirements=["C", "W"]))  # torch wants it writable
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.images.shape[1:]))
        return f"<Task: {len(self):,} images of {shape}, {len(self.classes)} classes>"

    @property
    def classes(self) -> tuple[int, ...]:
        """The labels that occur, in order."""
        return tuple(np.unique(self.labels).tolist())


@dataclass(frozen=True)
class Stream:
    """Tasks to learn, a test set for each, and the name of every class.

    In a `nested` stream each test set begins with the whole of the one before: all classes seen so far. `held_out`
    are images of each task that are kept from training (see `holding_out`).
    """

    tasks: tuple[Task, ...]
    tests: tuple[Task, ...]
    class_names: tuple[str, ...]
    nested: bool = False
    held_out: tuple[Task, ...] = ()

    def __post_init__(self) -> None:
        if not self.tasks or not self.tests:
            raise UserError("a stream needs at least one task")
        shapes = {part.images.shape[1:] for part in (*self.tasks, *self.tests)}
        if len(shapes) > 1:
            raise UserError(f"all images of a stream have one shape, not {sorted(shapes)}")
        if self.nested and any(len(one) > len(other) for one, other in pairwise(self.tests)):
            raise UserError("in a nested stream each test set begins with the whole of the one before")
        highest = max(int(part.labels.max()) for part in (*self.tasks, *self.tests))
        if highest >= len(self.class_names):
            raise UserError(f"label {highest} occurs, but the stream names {len(self.class_names)} classes")

    @property
    def classes(self) -> int:
        """How many classes there are in all."""
        return len(self.class_names)

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """For each task its classes; in a nested stream those that came with it first."""
        if not self.nested:
            return tuple(test.classes for test in self.tests)
        # Of a class that came, nothing may have been held out to be tested on.
        parts = self.tasks if len(self.tasks) == len(self.tests) else self.tests
        ends = accumulate((part.classes[-1] + 1 for part in parts), max)
        return tuple(tuple(range(low, high)) for low, high in pairwise([0, *ends]))

    def all_test_labels(self) -> Labels:
        """The labels of all test images, each image once."""
        return self.tests[-1].labels if self.nested else np.concatenate([test.labels for test in self.tests])

    def joined(self) -> "Stream":
        """The same data with all tasks as one; the tests stay apart."""
        return replace(self, tasks=(concatenate(self.tasks),))

    def holding_out(self, share: float, seed: int = 0) -> "Stream":
        """The same stream with a share of each task's images kept from training, class by class (rounded down).

        From 1 on, `share` is a number of images of each task, of which no class gives more than a fifth of its own.
        """
        parts = [
            _divided(task, share, randomness.generator(seed, f"held out {t}")) for t, task in enumerate(self.tasks)
        ]
        return replace(self, tasks=tuple(kept for kept, _ in parts), held_out=tuple(out for _, out in parts))

    def validating(self) -> "Stream":
        """The same tasks with the held-out images in the place of the test sets, which are out of reach then."""
        if not self.held_out:
            raise UserError("this stream holds nothing out; set stream.hold_out to a share of the training images")
        tests = tuple(accumulate(self.held_out, lambda *two: concatenate(two))) if self.nested else self.held_out
        return replace(self, tests=tests)


def concatenate(tasks: Sequence[Task]) -> Task:
    """One task of all the images of several."""
    return Task(np.concatenate([task.images for task in tasks]), np.concatenate([task.labels for task in tasks]))


def _divided(task: Task, share: float, rng: np.random.Generator) -> tuple[Task, Task]:
    """What of a task is learnt, and what is held out."""
    shuffled = [rng.permutation(np.flatnonzero(task.labels == label)) for label in task.classes]
    counts = [
        int(share * len(which) if share < 1 else min(share / len(shuffled), len(which) / 5)) for which in shuffled
    ]
    chosen = [which[:count] for which, count in zip(shuffled, counts, strict=True)]
    out = np.isin(np.arange(len(task)), np.concatenate(chosen))
    if out.all() or not out.any():
        sizes = ", ".join(str(len(which)) for which in shuffled)
        raise UserError(f"stream.hold_out is {share}, but a task with {sizes} images a class cannot give that")
    learnt, held = (Task(task.images[which], task.labels[which]) for which in (~out, out))
    return learnt, held
