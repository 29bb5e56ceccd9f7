"""The training step, one function of device tensors: gather, augment, ask the method for its terms, learn, remember.

Everything static (parts, sizes, which teacher) is decided when a `Phase` is made; everything dynamic comes from the
epoch's plan, whose current row a device counter points at.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from ider.config import LearnerConfig
from ider.data.augment import crop_and_flip, normalise
from ider.data.strong import strong_views
from ider.engine.capture import compiled
from ider.engine.device import casting, compute_dtype
from ider.engine.model import Model
from ider.engine.optim import momentum_of
from ider.memory.plan import Segment
from ider.nets import View
from ider.nets.norm import runs_kernels
from ider.nets.precision import Cast
from ider.types import CURRENT, Batch, Classes, LabelledViews, Outcome, Parts, Views


@dataclass(frozen=True)
class Workbench:
    """All that the steps of a task read and write, on the device; it stays in place from task to task if it can."""

    config: LearnerConfig
    model: Model
    classes: Classes
    optimisers: Mapping[str, torch.optim.SGD]
    """Of the net, and of what stands beside it."""
    images: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor
    totals: dict[str, Tensor]
    """Each term summed over the steps of the epoch so far."""
    _parties: list[object] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parties", self._who())

    def fits(self, classes: Classes, images: int) -> bool:
        """Whether so many other images can take the place of these, and the same nets learn from them."""
        same = all(mine is theirs for mine, theirs in zip(self._parties, self._who(), strict=False))
        return same and classes is self.classes and images <= len(self.images)

    def _who(self) -> list[object]:
        """What the steps have come to know; a head that has grown is another one."""
        model = self.model
        nets = (model.net, *model.averages.values())
        weights = [weight for net in nets for weight in net.parameters()]
        return [model.teacher, model.side, *weights, *model.state.values()]

    def load(self, images: Tensor, labels: Tensor) -> None:
        """Take in a task, and begin it as a fresh optimiser and a new epoch do."""
        self.images[: len(images)].copy_(images)
        self.labels[: len(labels)].copy_(labels)
        momenta = [momentum for optimiser in self.optimisers.values() for momentum in momentum_of(optimiser).values()]
        for tensor in (*momenta, *self.totals.values()):
            tensor.zero_()

    def forget_images(self) -> None:
        """The task is over: its images are gone."""
        self.images.zero_()
        self.labels.zero_()


class _Row(NamedTuple):
    """What a step takes in: its row of the plan; the current images as they came; of all parts images shown and labels.

    `slots` are those of all drawn rows, `stored` has, by field, what the memory stores with them; `views` are strongly
    augmented images.
    """

    plan: dict[str, Tensor]
    current: Tensor
    shown: Tensor
    labels: Tensor
    slots: Tensor
    stored: dict[str, Tensor]
    views: tuple[Tensor, Tensor] | None


class Phase:
    """All steps of one shape; `compiles` says whether their arithmetic is compiled."""

    def __init__(self, bench: Workbench, sizes: Mapping[str, int], compiles: bool) -> None:
        self.bench, self.sizes = bench, dict(sizes)
        self.gather = compiled(_gather) if compiles else _gather
        self.terms = compiled(_terms) if compiles else _terms
        dtype = torch.float32 if compiles else compute_dtype(bench.config.engine)  # a compiler casts by itself
        self.cast = Cast(dtype, bench.model.net)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=bench.images.device)
        self.plan: dict[torch.dtype, Tensor] = {}
        self.shapes: dict[torch.dtype, dict[str, tuple[int, ...]]] = {}
        """Of what lies end to end in a row of the plan."""
        self.needs = bench.config.method.needs()
        self.averages = [item.over(bench.config.train.epochs) for item in self.needs.averages]
        self.net, teacher = View(bench.model.net, averages=bench.model.averages), bench.model.teacher
        self.teacher = View(teacher, self.needs.teacher) if teacher is not None else None

    @property
    def drawn(self) -> dict[str, int]:
        """The rows of each draw from the memory."""
        return {name: size for name, size in self.sizes.items() if name != CURRENT}

    def load(self, segment: Segment, start: int) -> None:
        """Bring a segment's plan to the device, without waiting for it, and point at its row `start`."""
        arrays = {name: torch.from_numpy(array) for name, array in segment.arrays.items()}
        if not self.plan:
            for name, array in arrays.items():
                self.shapes.setdefault(array.dtype, {})[name] = tuple(array.shape[1:])
        for dtype, shapes in self.shapes.items():
            rows = torch.cat([arrays[name].reshape(segment.steps, math.prod(shapes[name])) for name in shapes], 1)
            if dtype not in self.plan:
                most = -(-len(self.bench.images) // self.bench.config.train.batch)
                self.plan[dtype] = rows.new_zeros((most, rows.shape[1]), device=self.cursor.device)
            pinned = rows.pin_memory() if self.cursor.is_cuda else rows
            self.plan[dtype][: len(rows)].copy_(pinned, non_blocking=True)
        self.cursor.fill_(start)

    def planned(self) -> dict[str, Tensor]:
        """The row of the plan that the cursor points at."""
        found: dict[str, Tensor] = {}
        for dtype, shapes in self.shapes.items():
            row = self.plan[dtype].index_select(0, self.cursor).squeeze(0)
            pieces = torch.split_with_sizes(row, [math.prod(shape) for shape in shapes.values()])
            found |= {name: piece.view(shapes[name]) for name, piece in zip(shapes, pieces, strict=True)}
        return found

    def step(self) -> None:
        """Do the step that the cursor points at, and point at the next one."""
        bench = self.bench
        row = self.gather(self)
        with self.cast:
            loss, outcome = self.terms(self, row)
        for optimiser in bench.optimisers.values():
            optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.cast.collect()
        for optimiser in bench.optimisers.values():
            if self.needs.clip:
                clip_grad_norm_(optimiser.param_groups[0]["params"], self.needs.clip, foreach=True)
            optimiser.step()
        self._average(row)
        self._add_up(outcome.terms)
        self._remember(row, outcome)
        self.cursor += 1

    @torch.no_grad()
    def _average(self, row: _Row) -> None:
        """Let the averages follow the net, each if its coin says so."""
        model = self.bench.model
        model.steps += 1
        for place, item in enumerate(self.averages):
            mean = model.averages[item.name]
            decay = torch.clamp(1 - 1 / (model.steps + 1), max=item.decay)
            way = torch.where(row.plan["averages"][place] < item.rate, 1 - decay, 0.0)
            ways = torch._foreach_sub(list(model.net.parameters()), list(mean.parameters()))
            torch._foreach_mul_(ways, way)
            torch._foreach_add_(list(mean.parameters()), ways)
            if not item.own_statistics:
                torch._foreach_copy_(list(mean.buffers()), list(model.net.buffers()))

    def _remember(self, row: _Row, outcome: Outcome) -> None:
        memory, current = self.bench.model.memory, self.sizes[CURRENT]
        for name, new in outcome.state.items():
            self.bench.model.state[name].copy_(new.detach())
        for name, values in outcome.revised.items():
            for draw in values.sizes:
                memory.revise(name, row.plan[f"reads/{draw}"], values[draw])
        if self.needs.memory == "steps":
            memory.write(row.plan["writes"], row.current, row.labels[:current], outcome.kept)

    def _add_up(self, terms: Mapping[str, Tensor]) -> None:
        totals = self.bench.totals
        for name, term in terms.items():
            if name not in totals:
                totals[name] = torch.zeros_like(term)
        torch._foreach_add_([totals[name] for name in terms], [term.detach() for term in terms.values()])


@torch.no_grad()
def _gather(phase: Phase) -> _Row:
    """The row of the plan that the cursor points at, its images brought together and augmented."""
    bench, memory, plan = phase.bench, phase.bench.model.memory, phase.planned()
    reads = [plan[f"reads/{name}"] for name in phase.drawn]
    slots = torch.cat(reads) if reads else plan["samples"][:0]
    current = bench.images.index_select(0, plan["samples"])
    shown, labels = _shown(phase, plan, slots, current)
    stored = {name: values.index_select(0, slots) for name, values in memory.fields.items() if reads}
    views = None
    if phase.needs.views is not None:
        views = _views(phase, phase.needs.views, plan, (current, labels))
    return _Row(plan, current, shown, labels, slots, stored, views)


def _shown(phase: Phase, plan: Mapping[str, Tensor], slots: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
    """The current rows and those of the memory's slots, moved and normalised, and their labels."""
    bench, memory = phase.bench, phase.bench.model.memory
    crops, flips, pad = plan.get("crops"), plan.get("flips"), bench.config.images.pad
    if runs_kernels(bench.images):
        from ider.data.augment_kernel import Moves, Source, bring_together  # which needs Triton

        new, old = (bench.images, bench.labels, plan["samples"]), (memory.images, memory.labels, slots)
        statistics, dtype = (bench.mean, bench.std), compute_dtype(bench.config.engine)
        return bring_together((Source(*new), Source(*old)), Moves(crops, flips, pad), statistics, dtype)
    labels = torch.cat([bench.labels.index_select(0, plan["samples"]), memory.labels.index_select(0, slots)])
    moved = crop_and_flip(torch.cat([current, memory.images.index_select(0, slots)]), crops, flips, pad)
    return normalise(moved, bench.mean, bench.std).contiguous(memory_format=torch.channels_last), labels


def _views(phase: Phase, views: Views, plan: Mapping[str, Tensor], raw: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The strongly augmented views and their labels: of the first current rows, and of the memory's rows for them."""
    bench, memory = phase.bench, phase.bench.model.memory
    images, labels = (rows[: min(views.current, phase.sizes[CURRENT])] for rows in raw)
    if "view_reads" in plan:
        images = torch.cat([images, memory.images.index_select(0, plan["view_reads"])])
        labels = torch.cat([labels, memory.labels.index_select(0, plan["view_reads"])])
    images, labels = (rows.repeat_interleave(views.times, 0) for rows in (images, labels))
    shown = normalise(strong_views(images, plan["views"]) * 255, bench.mean, bench.std)
    return shown.contiguous(memory_format=torch.channels_last), labels


def _batch(phase: Phase, row: _Row) -> Batch:
    """The row in the words of a method."""
    sizes, drawn, mixed = phase.sizes, phase.drawn, phase.needs.mixed
    views = None
    if row.views is not None:
        images, labels = row.views
        views = LabelledViews(*(Parts(rows, {"views": len(labels)}) for rows in (images, labels)))
    return Batch(
        images=Parts(row.shown, sizes, mixed),
        labels=Parts(row.labels, sizes, mixed),
        classes=phase.bench.classes,
        slots=Parts(row.slots, drawn),
        stored={name: Parts(values, drawn) for name, values in row.stored.items()},
        coins={name: row.plan["coins"][place] for place, name in enumerate(phase.needs.coins) if name in sizes},
        dice={name: row.plan[f"dice/{name}"] for name in phase.needs.dice if name in sizes},
        noise={name.removeprefix("noise/"): row.plan[name] for name in row.plan if name.startswith("noise/")},
        views=views,
        state=phase.bench.model.state,
        side=phase.bench.model.side,
    )


def _terms(phase: Phase, row: _Row) -> tuple[Tensor, Outcome]:
    """The loss, and what it is the sum of."""
    config = phase.bench.config
    with casting(config.engine):
        outcome = config.method.step(phase.net, phase.teacher, _batch(phase, row))
    return torch.stack(list(outcome.terms.values())).sum(), outcome
