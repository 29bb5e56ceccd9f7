"""The training step, one function of device tensors: gather, augment, ask the method for its terms, learn, remember.

Everything static (parts, sizes, which teacher) is decided when a `Phase` is made; everything dynamic comes from the
epoch's plan, whose current row a device counter points at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ider.config import LearnerConfig
from ider.data.augment import crop_and_flip, normalise
from ider.engine.device import casting
from ider.memory.plan import Segment
from ider.memory.store import MemoryStore
from ider.nets import TwoInputNet, View
from ider.types import CURRENT, Batch, Parts


@dataclass(frozen=True)
class Workbench:
    """All that a step reads and writes, on the device: it stays in place while a task is learnt."""

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


class Phase:
    """All steps of one shape."""

    def __init__(self, bench: Workbench, sizes: Mapping[str, int]) -> None:
        self.bench, self.sizes = bench, dict(sizes)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=bench.images.device)
        self.plan: dict[str, Tensor] = {}
        needs = bench.config.method.needs()
        self.mixed, self.coins = needs.mixed, needs.coins
        self.net = View(bench.net)
        self.teacher = View(bench.teacher, needs.teacher) if bench.teacher is not None else None

    def load(self, segment: Segment, start: int) -> None:
        """Bring a segment's plan to the device and point at its row `start`."""
        for name, array in segment.arrays.items():
            tensor = torch.from_numpy(array)
            known = self.plan.get(name)
            if known is not None and known.shape == tensor.shape:
                known.copy_(tensor)
            else:
                self.plan[name] = tensor.to(self.cursor.device, copy=True)
        self.cursor.fill_(start)

    def step(self) -> None:
        """Do the step that the cursor points at, and point at the next one."""
        row = {name: rows.index_select(0, self.cursor).squeeze(0) for name, rows in self.plan.items()}
        images, labels = self._gather(row)
        self._learn(self._batch(images, labels, row))
        self._remember(images, labels, row["writes"])
        self.cursor += 1

    def _gather(self, row: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The raw images and labels of all parts, end to end."""
        bench, memory = self.bench, self.bench.memory
        sources = [(bench.images, bench.labels, row["samples"])]
        sources += [(memory.images, memory.labels, row[f"reads/{name}"]) for name in self.sizes if name != CURRENT]
        images = torch.cat([images.index_select(0, index) for images, _, index in sources])
        return images, torch.cat([labels.index_select(0, index) for _, labels, index in sources])

    def _batch(self, images: Tensor, labels: Tensor, row: Mapping[str, Tensor]) -> Batch:
        bench = self.bench
        moved = crop_and_flip(images, row.get("crops"), row.get("flips"), bench.config.images.pad)
        shown = normalise(moved, bench.mean, bench.std)
        coins = {name: row["coins"][place] for place, name in enumerate(self.coins) if name in self.sizes}
        return Batch(Parts(shown, self.sizes, self.mixed), Parts(labels, self.sizes, self.mixed), coins)

    def _learn(self, batch: Batch) -> None:
        bench = self.bench
        with casting(bench.config.engine):
            terms = bench.config.method.terms(self.net, self.teacher, batch)
            loss = torch.stack(list(terms.values())).sum()
        bench.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        bench.optimiser.step()
        for name, term in terms.items():
            if name not in bench.totals:
                bench.totals[name] = torch.zeros((), device=term.device)
            bench.totals[name] += term.detach()

    def _remember(self, images: Tensor, labels: Tensor, slots: Tensor) -> None:
        current = self.sizes[CURRENT]
        self.bench.memory.write(slots, images[:current], labels[:current])
