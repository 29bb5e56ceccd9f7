"""The words a method speaks, as frozen data: what it asks for (`Needs`), is given (`Batch`) and returns (`Outcome`).

Shape legend: N rows of all parts together, C classes, D features.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, cat, nn

CURRENT = "current"
TASKS = "tasks"
VIEW_NUMBERS = 11
"""The random numbers that one strongly augmented view takes (`data.strong`)."""

Terms = dict[str, Tensor]
"""Named 0-d losses; the engine sums, differentiates and logs them."""


@dataclass(frozen=True)
class Parts:
    """Several batches ("parts") laid end to end in one tensor, so that each convolution runs once for all of them.

    Normalisation takes its statistics per part, unless `mixed` says that the parts count as one batch, but for those
    that keep to themselves (`alone`), which lie last.
    """

    rows: Tensor
    sizes: Mapping[str, int]
    mixed: bool = False
    alone: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Tensor:
        size = self.sizes[name]
        return self._narrow(self._start(name), size)

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

    @property
    def groups(self) -> tuple[int, ...]:
        """How many rows share normalisation statistics, group by group."""
        if not self.mixed:
            return tuple(self.sizes.values())
        together = sum(size for name, size in self.sizes.items() if name not in self.alone)
        apart = [size for name, size in self.sizes.items() if name in self.alone]
        return tuple(apart) if apart and not together else (together, *apart)

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
            return dataclasses.replace(self, rows=self._narrow(starts[0], count), sizes=sizes)
        rows = _end_to_end([self[name] for name in sizes]) if sizes else self.rows[:0]
        return dataclasses.replace(self, rows=rows, sizes=sizes)

    def _narrow(self, start: int, count: int) -> Tensor:
        """Some of the rows; of maps, which lie channels last, the gradient does so too."""
        if self.rows.dim() != 4:
            return self.rows.narrow(0, start, count)
        return self.rows.movedim(1, -1).narrow(0, start, count).movedim(-1, 1)

    def _start(self, name: str) -> int:
        names = list(self.sizes)
        return sum(self.sizes[other] for other in names[: names.index(name)])


def whole(maps: Tensor) -> Tensor:
    """Maps with all the channels that lie in memory behind theirs, if they are the first channels of wider maps."""
    if maps.dim() != 4 or maps.requires_grad:
        return maps
    count, channels, height, width = maps.shape
    wide = maps.stride(3)
    strides = (height * width * wide, 1, width * wide, wide)
    if wide <= channels or maps.stride() != strides or maps.storage_offset() % wide:
        return maps
    return maps.as_strided((count, wide, height, width), strides)


def _end_to_end(parts: list[Tensor]) -> Tensor:
    """All rows in one tensor; what lies behind the channels of maps still does."""
    wide = [whole(part) for part in parts]
    rows = cat(wide)
    return rows if rows.shape == (len(rows), *parts[0].shape[1:]) else rows.narrow(1, 0, parts[0].shape[1])


@dataclass(frozen=True)
class Answer:
    """What a net says of some parts: its logits, and the features that its head saw."""

    logits: Parts
    features: Parts

    def pick(self, *names: str) -> "Answer":
        """The answer to some of the parts."""
        return Answer(self.logits.pick(*names), self.features.pick(*names))


@dataclass(frozen=True)
class Classes:
    """Which classes are whose, as device tensors that are overwritten from task to task.

    `past` and `current` are masks over the C classes of the head: learnt in tasks that are over, and in the present
    task; a class that comes again is both. `finished` counts the tasks that are over. `block` is the number of classes
    of the first task, which never changes. `task_of` has the task (from 0) that brought each class, -1 for none yet.
    """

    past: Tensor
    current: Tensor
    finished: Tensor
    block: int
    task_of: Tensor

    @property
    def seen(self) -> Tensor:
        """Past and current classes."""
        return self.past | self.current


@dataclass(frozen=True)
class Batch:
    """What one step gives a method: the images (normalised) and labels of all parts, and what it asked for.

    The images are floats of single precision, or of that of the convolutions.
    """

    images: Parts
    labels: Parts
    classes: Classes
    slots: Parts
    """The memory's slots that the rows of each draw were read from."""
    stored: Mapping[str, Parts] = dataclasses.field(default_factory=dict)
    """By field: what the memory stores with the rows of each draw."""
    coins: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """By part: one uniform random number (0-d)."""
    dice: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """By part: one uniform random number a row."""
    noise: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """By name: uniform random numbers in the shape that `Method.noise` asked for."""
    views: "LabelledViews | None" = None
    state: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """The method's own tensors, which its hooks between tasks change, or `Outcome.state`."""
    side: nn.Module | None = None


@dataclass(frozen=True)
class LabelledViews:
    """Strongly augmented views of images and the images' labels; all views of an image lie next to each other."""

    images: Parts
    labels: Parts


@dataclass(frozen=True)
class Draw:
    """A part read from the memory at every step (`later`: from the second task on), independent of other draws."""

    name: str
    later: bool = False


@dataclass(frozen=True)
class Teacher:
    """The net (or a running mean `of` it) as it was at the end of the previous task.

    It normalises by its batch or by its running statistics.
    """

    statistics: Literal["batch", "running"] = "batch"
    of: str = ""


@dataclass(frozen=True)
class Field:
    """Numbers that the memory stores with each sample: one, or one a class."""

    name: str
    per_class: bool = False


@dataclass(frozen=True)
class Views:
    """Strongly augmented views: of the first `current` rows of the current part, and of `memory` rows more.

    Each image gives `times` of them.
    """

    current: int
    memory: int
    times: int


@dataclass(frozen=True)
class Samples:
    """Images as they came (uint8, on the device) and their labels."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def pick(self, which: Tensor) -> "Samples":
        """Some of them, by position."""
        return Samples(self.images[which], self.labels[which])


@dataclass(frozen=True)
class Choice:
    """What a memory that is filled between tasks holds next: slots that stay, and samples of the task that enter."""

    stay: Tensor
    enter: Tensor


@dataclass(frozen=True)
class Side:
    """A module beside the net, drawn afresh for each task, that an SGD of its own with a constant rate moves.

    If it is `lasting` it learns with the net, by the net's optimiser, and stays: when classes or tasks come it is drawn
    anew for their number, and what it knows takes the leading corner of each of its tensors.
    """

    lr: float = 0.0
    momentum: float = 0.0
    lasting: bool = False


@dataclass(frozen=True)
class Average:
    """A running mean of the net's weights, which starts as a copy of them and may follow them after each step.

    It does so with a chance of `rate`, as d * mean + (1 - d) * weights where d is `decay`, or less in the first steps
    of a run: 1 - 1 / (s + 1) after step s. It normalises by the batches that the method shows it, and its running
    statistics are of these (`own_statistics`) or copied from the net. `epochs` are those of a task that rate and decay
    are meant for; 0: they hold for any number.
    """

    name: str
    decay: float
    rate: float
    own_statistics: bool = True
    epochs: int = 0

    def with_horizon(self, steps: float) -> "Average":
        """The same mean, reaching back that many steps, 1 / (rate * (1 - decay)): the rate says so, up to 1."""
        rate = 1 / (steps * (1 - self.decay)) if self.decay < 1 else math.inf
        if rate <= 1:
            return dataclasses.replace(self, rate=rate)
        return dataclasses.replace(self, rate=1.0, decay=1 - 1 / max(steps, 1.0))

    def over(self, epochs: int) -> "Average":
        """The same mean in tasks of so many epochs: its horizon is as long a share of a task as it is meant to be."""
        if not self.epochs or epochs == self.epochs or not self.rate or self.decay == 1:
            return self
        return self.with_horizon(epochs / self.epochs / (self.rate * (1 - self.decay)))


@dataclass(frozen=True)
class Sparsity:
    """Activations that only the strongest channels survive, by the share of channels in each stage of the net.

    `global`: the same channels for a whole image, at the end of a stage and within its blocks; `local`: place by place,
    wherever there would be a ReLU.
    """

    kind: Literal["global", "local"]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Needs:
    """What a method asks of the engine; everything here is known before the first step."""

    draws: tuple[Draw, ...] = ()
    teacher: Teacher | None = None
    averages: tuple[Average, ...] = ()
    predicts: str = ""  # the average that the learner predicts with; none: the net itself
    stores: tuple[Field, ...] = ()
    coins: tuple[str, ...] = ()  # parts that get one random number a step
    dice: tuple[str, ...] = ()  # draws that get one random number a row
    views: Views | None = None
    side: Side | None = None
    head: Literal["linear", "cosine", "none"] = "linear"
    sparsity: Sparsity | None = None
    mixed: bool = False  # normalise all parts as one batch
    joined: bool = False  # learn the whole stream as one task
    second_input: bool = False  # the net must take its answer as a second input
    memory: Literal["steps", "tasks"] = "steps"  # filled step by step, or by the method's hooks between tasks
    policy: str = "reservoir"  # by which it is filled, unless the configuration says otherwise
    learns_from: Literal["task", "task and memory", "memory"] = "task"  # what an epoch goes through
    hold_out: float = 0.0  # share of the memory, and as many of the task's images, kept from training
    disjoint: bool = False  # a class must not come again
    exemplars: bool = False  # the memory must have a slot for each class
    after_epochs: bool = False  # the hook after each epoch is called
    recalls: bool = False  # a prediction begins with a look at the memory: `Method.predictor`
    clip: float = 0.0  # the largest norm of the gradient, which is scaled down to it; 0: any
    warm_up: float = 0.0  # share of a task's steps in which the learning rate climbs to what the schedule says


@dataclass(frozen=True)
class Outcome:
    """What a step comes to: the losses, and what it leaves in the memory."""

    terms: Terms
    kept: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """By field: what is stored with the current rows, should they enter the memory."""
    revised: Mapping[str, Parts] = dataclasses.field(default_factory=dict)
    """By field: what replaces the stored values of the rows of some draws."""
    state: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """What becomes of the method's own tensors, of those that a step changes."""
