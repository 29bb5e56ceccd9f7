"""The words a method speaks, as frozen data: what it asks for (`Needs`), is given (`Batch`) and answers (`Terms`).

Shape legend: N rows of all parts together, C classes.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from torch import Tensor, cat

CURRENT = "current"

Terms = dict[str, Tensor]
"""Named 0-d losses; the engine sums, differentiates and logs them."""

T = TypeVar("T")


def option(default: T, help: str) -> T:
    """A dataclass field with a default and the one line of help that `ider list settings` shows."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Parts:
    """Several batches ("parts") laid end to end in one tensor, so that each convolution runs once for all of them.

    Normalisation takes its statistics per part, unless `mixed` says that the parts count as one batch.
    """

    rows: Tensor
    sizes: Mapping[str, int]
    mixed: bool = False

    def __getitem__(self, name: str) -> Tensor:
        return self.rows.narrow(0, self._start(name), self.sizes[name])

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

    @property
    def groups(self) -> tuple[int, ...]:
        """How many rows share normalisation statistics, group by group."""
        return (sum(self.sizes.values()),) if self.mixed else tuple(self.sizes.values())

    def like(self, rows: Tensor) -> "Parts":
        """The same parts with other content."""
        return dataclasses.replace(self, rows=rows)

    def pick(self, *names: str) -> "Parts":
        """Those of the named parts that are present, in the order in which they lie (a view if they are neighbours)."""
        kept = [name for name in self.sizes if name in names]
        if kept == list(self.sizes):
            return self
        sizes = {name: self.sizes[name] for name in kept}
        start = self._start(kept[0])
        neighbours = list(self.sizes)[list(self.sizes).index(kept[0]) :][: len(kept)] == kept
        rows = self.rows.narrow(0, start, sum(sizes.values())) if neighbours else cat([self[name] for name in kept])
        return Parts(rows, sizes, self.mixed)

    def _start(self, name: str) -> int:
        start = 0
        for other, size in self.sizes.items():
            if other == name:
                return start
            start += size
        raise KeyError(name)


@dataclass(frozen=True)
class Batch:
    """What one step gives a method: all parts' images (float, normalised) and labels, and the coins it asked for."""

    images: Parts
    labels: Parts
    coins: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)


class Net(Protocol):
    """A two-input net as a method sees it: `decode(z, y)`, where no `y` means the prior."""

    def encode(self, images: Parts) -> Parts:
        """The map at the cut, for all parts at once."""
        ...

    def decode(self, z: Parts, y: Parts | None = None) -> Parts:
        """Logits from the map and a distribution over the classes."""
        ...


@dataclass(frozen=True)
class Draw:
    """A part read from the memory at every step, independently of the other draws."""

    name: str
    only_with_teacher: bool = False


@dataclass(frozen=True)
class Teacher:
    """A frozen copy of the net that normalises by the statistics of the batch it sees, or by its running ones."""

    kind: Literal["previous_task"] = "previous_task"
    statistics: Literal["batch", "running"] = "batch"


@dataclass(frozen=True)
class Needs:
    """What a method asks of the engine; everything here is known before the first step."""

    draws: tuple[Draw, ...] = ()
    teacher: Teacher | None = None
    coins: tuple[str, ...] = ()
    mixed: bool = False  # normalise all parts as one batch
    joined: bool = False  # learn the whole stream as one task
    second_input: bool = False  # the net must take its answer as a second input


class Method(Protocol):
    """A frozen dataclass of hyper-parameters with a pure loss. `teacher` is None until the second task."""

    def needs(self) -> Needs:
        """What the engine must provide."""
        ...

    def terms(self, net: Net, teacher: Net | None, batch: Batch) -> Terms:
        """The named losses of one step."""
        ...


State = dict[str, Any]
"""What JSON can hold of an object's state; the tensors travel beside it."""
