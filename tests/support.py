"""What tests of methods share: a batch as the engine would make it, with as much in it as a test wants to say."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ider.protocols import Method, Net
from ider.types import CURRENT, Answer, Batch, Classes, Parts, Terms


def classes_of(count: int, past: Sequence[int], current: Sequence[int], finished: int, block: int = 0) -> Classes:
    """Masks over `count` classes."""
    masks = [torch.zeros(count, dtype=torch.bool) for _ in range(2)]
    for mask, labels in zip(masks, (past, current), strict=True):
        mask[list(labels)] = True
    task_of = torch.full((count,), -1)
    task_of[list(past)], task_of[list(current)] = max(finished - 1, 0), finished
    return Classes(*masks, torch.tensor(float(finished)), block or max(len(current), 1), task_of)


def batch_of(images: Tensor, labels: Tensor, sizes: Mapping[str, int], mixed: bool = False, **others: Any) -> Batch:
    """A batch; classes are all current, slots are numbered from 0 in each draw, and nothing is stored, by default.

    `stored` has a tensor a field, for the rows of all draws.
    """
    drawn = {name: size for name, size in sizes.items() if name != CURRENT}
    slots = torch.cat([torch.arange(size) for size in (0, *drawn.values())])
    count = int(labels.max()) + 1 if len(labels) else 1
    made = {"classes": classes_of(count, (), range(count), 0), "slots": Parts(slots, drawn)} | others
    made["stored"] = {name: Parts(rows, drawn) for name, rows in made.get("stored", {}).items()}
    return Batch(Parts(images, sizes, mixed), Parts(labels, sizes, mixed), **made)


def answer_of(z: Parts, logits: Tensor) -> Answer:
    """An answer whose features are the map itself, flattened."""
    return Answer(z.like(logits), z.like(z.rows.flatten(1)))


def terms_of(method: Method, net: Net, teacher: Net | None, batch: Batch) -> Terms:
    """The losses of one step."""
    return dict(method.step(net, teacher, batch).terms)


class Hand:
    """A desk by hand for hooks between tasks: what a test gives it, and a list for what it wants to note."""

    def __init__(self, **given: Any) -> None:
        self.calls: list[str] = []
        for name, value in given.items():
            setattr(self, name, value)
