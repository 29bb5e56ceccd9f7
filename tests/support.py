"""What tests of methods share: a batch as the engine would make it, with as much in it as a test wants to say."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ider.contract.stage import batch_of, classes_of
from ider.methods import METHODS
from ider.protocols import Method, Net
from ider.types import Answer, Batch, Parts, Terms

__all__ = ["Hand", "answer_of", "batch_of", "classes_of", "methods_as_before", "terms_of"]


@contextmanager
def methods_as_before() -> Iterator[None]:
    """Within, methods may become known; afterwards they are not."""
    known, origins = dict(METHODS), dict(METHODS.origins)
    try:
        yield
    finally:
        METHODS.clear()
        METHODS.update(known)
        METHODS.origins.clear()
        METHODS.origins.update(origins)


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
