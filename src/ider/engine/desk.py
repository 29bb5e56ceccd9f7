"""What a method's hooks between tasks work with: passes over samples, refilling the memory, fitting a few weights.

Nothing here is part of a step, so nothing is captured, and everything waits for the device. All randomness is of the
task and the hook alone: a hook done again after a crash does the same.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ider.config import LearnerConfig
from ider.data.augment import crop_and_flip, normalise
from ider.engine.device import casting
from ider.memory.policy import EMPTY, Slots
from ider.memory.selection import SELECTIONS, Candidates
from ider.memory.store import MemoryStore
from ider.nets import TwoInputNet, View
from ider.protocols import Net
from ider.streams.stream import Task
from ider.types import CURRENT, Answer, Choice, Classes, Parts, Samples

ROWS, GRADIENT_ROWS = 512, 16


@dataclass(frozen=True)
class Notes:
    """What is known beside the net: the method's tensors and module, past and current classes, each class's task."""

    state: Mapping[str, Tensor]
    side: nn.Module | None
    classes: Classes
    task_of: Mapping[int, int]


@dataclass
class Desk:
    """See `ider.protocols.Desk`. What a hook does to the memory's slots is in `slots` afterwards."""

    config: LearnerConfig
    whole: TwoInputNet
    memory: MemoryStore
    slots: Slots
    notes: Notes
    given: tuple[Task | None, Samples]
    """The task, if there is one, and what of it was held out."""
    rng: np.random.Generator
    fresh: Callable[[], TwoInputNet]

    @property
    def net(self) -> Net:
        """The net; running statistics do not move."""
        return View(self.whole, tracking=False)

    @property
    def head(self) -> nn.Module:
        """The last layer of the net."""
        return self.whole.head

    @property
    def side(self) -> nn.Module:
        """The module beside the net."""
        assert self.notes.side is not None
        return self.notes.side

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The method's own tensors."""
        return self.notes.state

    @property
    def classes(self) -> Classes:
        """Past and current classes."""
        return self.notes.classes

    @cached_property
    def task(self) -> Samples:
        """The task's own images, on the device."""
        task, device = self._task, self.memory.images.device
        return Samples(torch.from_numpy(task.images).to(device), torch.from_numpy(task.labels).to(device))

    @property
    def held_out(self) -> Samples:
        """What was kept from training."""
        return self.given[1]

    def answers(self, samples: Samples, augmented: bool = False, statistics: str = "running") -> Answer:
        """The first answers; for statistics of the batch, batches of the training's size in random order."""
        if not len(samples):
            return self._no_answers()
        by_batch = statistics == "batch"
        order = self._shuffled(len(samples)) if by_batch else torch.arange(len(samples))
        rows = self.config.train.batch if by_batch else ROWS
        with torch.no_grad(), self._mode(by_batch), casting(self.config.engine):
            found = [
                self.net.decode(self.net.encode(self._shown(samples.images[chosen], augmented)))
                for chosen in torch.split(order.to(samples.labels.device), rows)
            ]
        back = torch.argsort(order).to(samples.labels.device)
        logits, features = (torch.cat(part).float()[back] for part in zip(*_rows_of(found), strict=True))
        sizes = {CURRENT: len(samples)}
        return Answer(Parts(logits, sizes), Parts(features, sizes))

    def gradients(self, samples: Samples, loss: Callable[[Tensor, Tensor], Tensor]) -> Mapping[str, Tensor]:
        """The mean over samples of each one's squared gradient, sample by sample, in eval mode."""
        wrapped = _Forward(self.whole)
        weights = {name: weight.detach() for name, weight in wrapped.named_parameters()}

        def of_one(weights: Mapping[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            return loss(functional_call(wrapped, dict(weights), (image[None],)), label[None])

        totals = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        with self._mode(False):
            for chosen in torch.split(torch.arange(len(samples), device=samples.labels.device), GRADIENT_ROWS):
                images = self._shown(samples.images[chosen], False).rows
                each = vmap(grad(of_one), (None, 0, 0))(weights, images, samples.labels[chosen])
                for name, values in each.items():
                    totals[name] += values.square().sum(0)
        return {name.removeprefix("net."): total / max(len(samples), 1) for name, total in totals.items()}

    def fit(
        self,
        samples: Samples,
        optimiser: Optimizer,
        epochs: int,
        loss: Callable[[Parts, Tensor], Tensor],
        statistics: str = "running",
        schedule: LRScheduler | None = None,
    ) -> None:
        """Minimise a loss of augmented images and labels, in shuffled batches of the training's size."""
        with self._mode(statistics == "batch"):
            for _ in range(epochs):
                for chosen in self.batches(samples):
                    optimiser.zero_grad()
                    with casting(self.config.engine):
                        value = loss(self._shown(samples.images[chosen], True), samples.labels[chosen])
                    value.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                    if schedule is not None:
                        schedule.step()
            optimiser.zero_grad()

    def re_estimate(self, samples: Samples) -> None:
        """Move the running statistics by one pass over augmented samples, in shuffled batches."""
        before = self.whole.training
        self.whole.train()
        net = View(self.whole)
        with torch.no_grad(), casting(self.config.engine):
            for chosen in self.batches(samples):
                net.decode(net.encode(self._shown(samples.images[chosen], True)))
        self.whole.train(before)

    def renew_net(self) -> None:
        """Draw all weights afresh, and forget the running statistics."""
        with torch.no_grad():
            for mine, new in zip(self.whole.state_dict().values(), self.fresh().state_dict().values(), strict=True):
                mine.copy_(new)

    def choose(self) -> Choice:
        """What the memory's policy would keep of it and take of the task."""
        candidates = Candidates(
            self.slots.labels[: self.slots.filled],
            self._task.labels,
            self.notes.task_of,
            lambda: self.answers(self.task).features.rows.double().cpu().numpy(),
        )
        stay, enter = SELECTIONS[self.config.memory.policy](candidates, self.slots.capacity, self.rng)
        device = self.memory.images.device
        return Choice(torch.from_numpy(stay).to(device), torch.from_numpy(enter).to(device))

    def refill(self, choice: Choice, **fields: Tensor) -> None:
        """Lay the slots anew: what stays first, then what enters; the rest is blank."""
        memory, entering = self.memory, self.task.pick(choice.enter)
        count = len(choice.stay) + len(choice.enter)
        new = {"images": entering.images, "labels": entering.labels}
        new |= {f"fields/{name}": values for name, values in fields.items()}
        with torch.no_grad():
            for name, mine in memory.tensors().items():
                content = torch.cat([mine[choice.stay], new[name].to(mine.dtype)])
                mine.zero_()
                mine[:count] = content
        labels = np.full(self.slots.capacity, EMPTY, np.int64)
        labels[:count] = memory.labels[:count].cpu().numpy()
        self.slots = Slots(labels, count)

    def remembered(self) -> Samples:
        """The memory's samples, slot after slot."""
        filled = self.slots.filled
        return Samples(self.memory.images[:filled], self.memory.labels[:filled])

    def stored(self, field: str) -> Tensor:
        """The stored values of the remembered samples: a view of the memory."""
        return self.memory.fields[field][: self.slots.filled]

    @property
    def _task(self) -> Task:
        assert self.given[0] is not None
        return self.given[0]

    def _no_answers(self) -> Answer:
        widths = (self.whole.classes, self.whole.features_out)
        none = (torch.empty((0, width), device=self.memory.labels.device) for width in widths)
        return Answer(*(Parts(rows, {CURRENT: 0}) for rows in none))

    def batches(self, samples: Samples) -> tuple[Tensor, ...]:
        """Positions in random order, in batches of the training's size."""
        order = self._shuffled(len(samples)).to(samples.labels.device)
        return torch.split(order, self.config.train.batch) if len(samples) else ()

    def _mode(self, training: bool) -> "_Mode":
        return _Mode(self.whole, training)

    def _shuffled(self, count: int) -> Tensor:
        return torch.from_numpy(self.rng.permutation(count))

    def _shown(self, images: Tensor, augmented: bool) -> Parts:
        """Images as the net sees them, as one part."""
        config, count, device = self.config.images, len(images), images.device
        if augmented:
            crops = torch.from_numpy(self.rng.integers(0, 2 * config.pad + 1, (count, 2))).to(device)
            flips = torch.from_numpy(self.rng.random(count) < 0.5).to(device)
            images = crop_and_flip(images, crops if config.pad else None, flips if config.flip else None, config.pad)
        mean, std = (torch.tensor(values, device=device) for values in (config.mean, config.std))
        shown = normalise(images, mean, std).contiguous(memory_format=torch.channels_last)
        return Parts(shown, {CURRENT: count})


class _Mode:
    """Within, the net is in training or in eval mode, and its running statistics do not move."""

    def __init__(self, net: TwoInputNet, training: bool) -> None:
        self.net, self.training = net, training

    def __enter__(self) -> None:
        self.before = self.net.training
        self.net.train(self.training)

    def __exit__(self, *_: object) -> None:
        self.net.train(self.before)


class _Forward(nn.Module):
    """The net as one function, from images to the logits of its first answer."""

    def __init__(self, net: TwoInputNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        """Images to logits."""
        return self.net.decode(self.net.encode(images))


def _rows_of(answers: list[Answer]) -> Iterator[tuple[Tensor, Tensor]]:
    return ((answer.logits.rows, answer.features.rows) for answer in answers)
