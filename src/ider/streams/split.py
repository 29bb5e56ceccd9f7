"""The `split` stream: the classes of a dataset, in some order, dealt out to tasks."""

from collections.abc import Sequence

import numpy as np

from ider.data.datasets import Dataset, Split
from ider.errors import UserError
from ider.streams.stream import Stream, Task

NATURAL = -1


def split(dataset: Dataset, tasks: int | Sequence[int], order_seed: int = NATURAL) -> Stream:
    """`tasks` tasks of equal size, or tasks of the listed numbers of classes.

    Labels are renumbered by position in the class order, so that task after task they come in ascending order; the
    natural order leaves them as they are.
    """
    if order_seed < NATURAL:
        raise UserError(f"order_seed is {order_seed}; a seed is at least 0, and {NATURAL} is the natural order")
    classes = len(dataset.class_names)
    sizes = _sizes(classes, tasks)
    order = np.arange(classes) if order_seed == NATURAL else np.random.default_rng(order_seed).permutation(classes)
    position = np.argsort(order)
    bounds = np.cumsum([0, *sizes])
    spans = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    return Stream(
        tasks=tuple(_task(dataset.train, position, span) for span in spans),
        tests=tuple(_task(dataset.test, position, span) for span in spans),
        class_names=tuple(dataset.class_names[old] for old in order[: bounds[-1]]),
    )


def _sizes(classes: int, tasks: int | Sequence[int]) -> list[int]:
    if isinstance(tasks, int | np.integer):
        if tasks < 1 or classes % tasks:
            divisors = [number for number in range(1, classes + 1) if classes % number == 0]
            raise UserError(
                f"{classes} classes cannot be dealt out to {tasks} equal tasks; possible: {divisors}"
                f"{_uneven(classes, tasks)}"
            )
        return [classes // tasks] * tasks
    if not tasks or min(tasks) < 1 or sum(tasks) > classes:
        raise UserError(f"task sizes {list(tasks)} must be positive and sum to at most the {classes} classes")
    return list(tasks)


def _uneven(classes: int, tasks: int) -> str:
    """How to ask for nearly equal tasks, if so many classes give them."""
    if not 1 < tasks < classes:
        return ""
    sizes = ",".join(str(classes // tasks + (number < classes % tasks)) for number in range(tasks))
    return f", or unequal ones by stream.sizes=[{sizes}]"


def _task(part: Split, position: np.ndarray[tuple[int], np.dtype[np.int64]], span: tuple[int, int]) -> Task:
    labels = position[part.labels]
    chosen = (labels >= span[0]) & (labels < span[1])
    return Task(part.images[chosen], labels[chosen])
