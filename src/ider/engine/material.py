"""What the epochs of a task go through (its own images, those and the memory's, or the memory's alone), and how."""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ider.config import LearnerConfig
from ider.memory.plan import Schedule
from ider.memory.store import MemoryStore
from ider.nets import TwoInputNet
from ider.streams.stream import Task, concatenate
from ider.types import Needs, Samples


def tensors_of(task: Task) -> tuple[Tensor, Tensor]:
    """Images and labels, on the host."""
    return torch.from_numpy(task.images), torch.from_numpy(task.labels)


def with_room(rows: Tensor, more: int) -> Tensor:
    """Rows with room for the next task, which may have some more."""
    return torch.cat([rows, rows.new_zeros((more, *rows.shape[1:]))]) if more else rows


def schedule_of(config: LearnerConfig, net: TwoInputNet, learnt: int) -> Schedule:
    """How the steps of an epoch go once so many tasks are learnt."""
    train, needs, images = config.train, config.method.needs(), config.images
    return Schedule(
        batch=train.batch,
        replay_batch=train.replay_batch,
        drop_last=train.drop_last,
        draws=tuple(draw for draw in needs.draws if learnt or not draw.later),
        coins=needs.coins,
        pad=images.pad,
        flip=images.flip,
        offers=needs.memory == "steps",
        dice=needs.dice,
        averages=len(needs.averages),
        noise=config.method.noise(net.classes, net.features_out),
        tasks=learnt + 1,
        views=needs.views,
    )


class Material:
    """A task and what of the memory is learnt along with it, as the method needs it; fixed before the first epoch.

    With `Needs.hold_out`, each remembered sample is kept from training with that chance, and as many of the task's; but
    no more than half of the task.
    """

    def __init__(self, task: Task, memory: MemoryStore, filled: int, needs: Needs, rng: np.random.Generator) -> None:
        self.task, self.memory, self.filled, self.needs = task, memory, filled, needs
        old, new = np.flatnonzero(rng.random(filled) < needs.hold_out), rng.permutation(len(task))
        old = rng.permutation(old)[: len(task) // 2]
        self.past_out, self.new_out = np.zeros(filled, bool), np.zeros(len(task), bool)
        self.past_out[old] = self.new_out[new[: len(old)]] = True

    @cached_property
    def learnt(self) -> Task:
        """What the epochs go through."""
        new = self.task
        if self.new_out.any():
            new = Task(self.task.images[~self.new_out], self.task.labels[~self.new_out])
        old = self._remembered(~self.past_out) if self.needs.learns_from != "task" else None
        if self.needs.learns_from == "memory":
            return old or new
        return concatenate([new, old]) if old else new

    @property
    def held_out(self) -> Samples:
        """What is kept from training, on the device."""
        old, new = (torch.from_numpy(np.flatnonzero(out)) for out in (self.past_out, self.new_out))
        images, labels = self.memory.images, self.memory.labels
        own = torch.from_numpy(self.task.images)[new], torch.from_numpy(self.task.labels)[new]
        old = old.to(labels.device)
        pairs = ((images[old], own[0]), (labels[old], own[1]))
        return Samples(*(torch.cat([one, other.to(labels.device)]) for one, other in pairs))

    def _remembered(self, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Task | None:
        """Some of the memory's samples, if there are any."""
        chosen = torch.from_numpy(np.flatnonzero(which)).to(self.memory.labels.device)
        if not len(chosen):
            return None
        return Task(self.memory.images[chosen].cpu().numpy(), self.memory.labels[chosen].cpu().numpy())
