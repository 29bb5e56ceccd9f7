"""The words a method speaks, as frozen data: what it asks for (`Needs`), is given (`Batch`) and answers (`Terms`).

Shape legend: N rows of all parts together, C classes.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, cat

CURRENT = "current"

Terms = dict[str, Tensor]
"""Named 0-d losses; the engine sums, differentiates and logs them."""


@dataclass(frozen=True)
class Parts:
    """Several batches ("parts") laid end to end in one tensor, so that each convolution runs once for all of them.

    Normalisation takes its statistics per part, unless `mixed` says that the parts count as one batch.
    """

    rows: Tensor
    sizes: Mapping[str, int]
    mixed: bool = False

    def __getitem__(self, name: str) -> Tensor:
        size = self.sizes[name]
        return self.rows.narrow(0, self._start(name), size)

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
        sizes = {name: size for name, size in self.sizes.items() if name in names}
        if len(sizes) == len(self.sizes):
            return self
        starts = [self._start(name) for name in sizes]
        count = sum(sizes.values())
        if starts and starts[-1] + list(sizes.values())[-1] - starts[0] == count:
            return Parts(self.rows.narrow(0, starts[0], count), sizes, self.mixed)
        return Parts(cat([self[name] for name in sizes]) if sizes else self.rows[:0], sizes, self.mixed)

    def _start(self, name: str) -> int:
        names = list(self.sizes)
        return sum(self.sizes[other] for other in names[: names.index(name)])


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
    """The net as it was at the end of the previous task; it normalises by its batch or by its running statistics."""

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
