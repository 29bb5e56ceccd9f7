"""The training step, one function of device tensors: gather, augment, ask the method for its terms, learn, remember.

Everything static (parts, sizes, which teacher) is decided when a `Phase` is made; everything dynamic comes from the
epoch's plan, whose current row a device counter points at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ider.config import LearnerConfig
from ider.data.augment import crop_and_flip, normalise
from ider.engine.capture import compiled
from ider.engine.device import casting
from ider.engine.optim import momentum_of
from ider.memory.plan import Segment
from ider.memory.store import MemoryStore
from ider.nets import TwoInputNet, View
from ider.types import CURRENT, Batch, Parts


@dataclass(frozen=True)
class Workbench:
    """All that the steps of a task read and write, on the device; it stays in place from task to task if it can."""

    config: LearnerConfig
    net: TwoInputNet
    teacher: TwoInputNet | None
    memory: MemoryStore
    optimiser: torch.optim.SGD
    images: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor
    totals: dict[str, Tensor] = field(default_factory=dict)
    """Each term summed over the steps of the epoch so far."""

    def fits(self, net: TwoInputNet, teacher: TwoInputNet | None, images: int) -> bool:
        """Whether so many other images can take the place of these, and the same nets learn from them."""
        weights = zip(self.optimiser.param_groups[0]["params"], net.parameters(), strict=False)
        same_head = all(mine is theirs for mine, theirs in weights)
        return net is self.net and teacher is self.teacher and same_head and images <= len(self.images)

    def load(self, images: Tensor, labels: Tensor) -> None:
        """Take in a task, and begin it as a fresh optimiser and a new epoch do."""
        self.images[: len(images)].copy_(images)
        self.labels[: len(labels)].copy_(labels)
        for tensor in (*momentum_of(self.optimiser).values(), *self.totals.values()):
            tensor.zero_()

    def forget_images(self) -> None:
        """The task is over: its images are gone."""
        self.images.zero_()
        self.labels.zero_()


class _Row(NamedTuple):
    """What a step takes in, of all parts end to end: raw images, normalised ones, labels; coins, slots to write."""

    images: Tensor
    shown: Tensor
    labels: Tensor
    coins: Tensor
    writes: Tensor


class Phase:
    """All steps of one shape; `compiles` says whether their arithmetic is compiled."""

    def __init__(
        self, bench: Workbench, sizes: Mapping[str, int], compiles: bool, compiles_terms: bool = False
    ) -> None:
        self.bench, self.sizes = bench, dict(sizes)
        self.gather = compiled(_gather) if compiles else _gather
        self.terms = compiled(_terms) if compiles else _terms
        self.cursor = torch.zeros(1, dtype=torch.int64, device=bench.images.device)
        self.plan: dict[str, Tensor] = {}
        needs = bench.config.method.needs()
        self.mixed, self.coins = needs.mixed, needs.coins
        self.net = View(bench.net)
        self.teacher = View(bench.teacher, needs.teacher) if bench.teacher is not None else None

    def load(self, segment: Segment, start: int) -> None:
        """Bring a segment's plan to the device, without waiting for it, and point at its row `start`."""
        for name, array in segment.arrays.items():
            rows = torch.from_numpy(array)
            if name not in self.plan:
                most = -(-len(self.bench.images) // self.bench.config.train.batch)
                self.plan[name] = rows.new_empty((most, *rows.shape[1:]), device=self.cursor.device)
            pinned = rows.pin_memory() if self.cursor.is_cuda else rows
            self.plan[name][: len(rows)].copy_(pinned, non_blocking=True)
        self.cursor.fill_(start)

    def step(self) -> None:
        """Do the step that the cursor points at, and point at the next one."""
        bench = self.bench
        row = self.gather(self)
        loss, terms = self.terms(self, row)
        bench.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        bench.optimiser.step()
        self._add_up(terms)
        current = self.sizes[CURRENT]
        bench.memory.write(row.writes, row.images[:current], row.labels[:current])
        self.cursor += 1

    def _add_up(self, terms: Mapping[str, Tensor]) -> None:
        totals = self.bench.totals
        for name, term in terms.items():
            if name not in totals:
                totals[name] = torch.zeros_like(term)
        torch._foreach_add_([totals[name] for name in terms], list(terms.values()))


@torch.no_grad()
def _gather(phase: Phase) -> _Row:
    """The row of the plan that the cursor points at, its images brought together and augmented."""
    bench, memory = phase.bench, phase.bench.memory
    row = {name: rows.index_select(0, phase.cursor).squeeze(0) for name, rows in phase.plan.items()}
    sources = [(bench.images, bench.labels, row["samples"])]
    sources += [(memory.images, memory.labels, row[f"reads/{name}"]) for name in phase.sizes if name != CURRENT]
    images = torch.cat([images.index_select(0, index) for images, _, index in sources])
    labels = torch.cat([labels.index_select(0, index) for _, labels, index in sources])
    moved = crop_and_flip(images, row.get("crops"), row.get("flips"), bench.config.images.pad)
    shown = normalise(moved, bench.mean, bench.std).contiguous(memory_format=torch.channels_last)
    return _Row(images, shown, labels, row["coins"], row["writes"])


def _terms(phase: Phase, row: _Row) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, and what it is the sum of."""
    config, sizes = phase.bench.config, phase.sizes
    coins = {name: row.coins[place] for place, name in enumerate(phase.coins) if name in sizes}
    batch = Batch(Parts(row.shown, sizes, phase.mixed), Parts(row.labels, sizes, phase.mixed), coins)
    with casting(config.engine):
        terms = config.method.terms(phase.net, phase.teacher, batch)
    return torch.stack(list(terms.values())).sum(), {name: term.detach() for name, term in terms.items()}
