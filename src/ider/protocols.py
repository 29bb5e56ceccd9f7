"""Who works together: the net and the desk as a method sees them, and the method as the engine sees it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ider.types import Answer, Batch, Choice, Classes, Needs, Outcome, Parts, Samples

Predict = Callable[[Tensor, Tensor], Tensor]
"""From logits of the net and the features that its head saw to the logits by which the learner predicts."""


class Net(Protocol):
    """A two-input net as a method sees it: `decode(z, y)`, where no `y` means the prior."""

    def encode(self, images: Parts) -> Parts:
        """The map at the cut, for all parts at once."""
        ...

    def decode(self, z: Parts, y: Parts | None = None, keep: Tensor | None = None) -> Answer:
        """The answer to a map and a distribution over the classes.

        `keep` (rows x channels) multiplies the last map of a sparse net before its last activation.
        """
        ...

    def untracked(self) -> "Net":
        """The same net, whose running statistics of normalisation do not move."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """Its weights by name."""
        ...

    def average(self, name: str) -> "Net":
        """A running mean of it that the method asked for; it leaves no graph."""
        ...


class Desk(Protocol):
    """What a method's hooks between tasks work with; nothing here is part of a step, so all of it may take its time."""

    rng: np.random.Generator
    """Belongs to this task's hook: asked for again, it gives the same numbers."""

    @property
    def net(self) -> Net:
        """The net, whose running statistics do not move here."""
        ...

    @property
    def head(self) -> nn.Module:
        """Its last layer."""
        ...

    @property
    def side(self) -> nn.Module:
        """The module beside the net."""
        ...

    @property
    def classes(self) -> Classes:
        """Past and current classes."""
        ...

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The method's own tensors, to be overwritten in place."""
        ...

    @property
    def task(self) -> Samples:
        """The task's own images."""
        ...

    @property
    def held_out(self) -> Samples:
        """What `Needs.hold_out` kept from training."""
        ...

    def answers(self, samples: Samples, augmented: bool = False, statistics: str = "running") -> Answer:
        """The first answers to any number of images, without gradient; running statistics do not move.

        Augmented as in training if asked for, normalised by `running` statistics or by those of each `batch`.
        """
        ...

    def batches(self, samples: Samples) -> Sequence[Tensor]:
        """Positions in random order, in batches of the training's size."""
        ...

    def gradients(self, samples: Samples, loss: Callable[[Tensor, Tensor], Tensor]) -> Mapping[str, Tensor]:
        """The mean over samples of the squared gradient of each one's loss (of its logits and label) by each weight."""
        ...

    def fit(
        self,
        samples: Samples,
        optimiser: Optimizer,
        epochs: int,
        loss: Callable[[Parts, Tensor], Tensor],
        statistics: str = "running",
        schedule: LRScheduler | None = None,
    ) -> None:
        """Minimise a loss of augmented images and labels over shuffled batches; the optimiser says of which tensors.

        The schedule moves on with every batch.
        """
        ...

    def re_estimate(self, samples: Samples) -> None:
        """Move the running statistics by one pass over augmented samples, in shuffled batches."""
        ...

    def renew_net(self) -> None:
        """Draw all weights of the net afresh."""
        ...

    def choose(self) -> Choice:
        """What the memory's policy would keep of it and take of the task."""
        ...

    def refill(self, choice: Choice, **fields: Tensor) -> None:
        """Make it so; `fields` are the stored values of what enters."""
        ...

    def remembered(self) -> Samples:
        """The memory's samples, slot after slot."""
        ...

    def stored(self, field: str) -> Tensor:
        """The stored values of the remembered samples, to be overwritten in place."""
        ...


class Method(Protocol):
    """A frozen dataclass of hyper-parameters with a pure loss; what is not a step is told in hooks between tasks."""

    def needs(self) -> Needs:
        """What the engine must provide."""
        ...

    def step(self, net: Net, teacher: Net | None, batch: Batch) -> Outcome:
        """The named losses of one step, and what it leaves in the memory; `teacher` is None until the second task."""
        ...

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """The method's own tensors as they are before the first task, for a net of this make."""
        ...

    def side(self, classes: int, features: int, tasks: int) -> nn.Module | None:
        """The module beside the net, if `needs` asks for one, for so many tasks with the present one."""
        ...

    def noise(self, classes: int, features: int) -> Mapping[str, tuple[int | str, ...]]:
        """The shapes of the uniform random numbers that each step takes, by name.

        A size may be the name of a part, for its rows, or TASKS, for the number of tasks with the present one.
        """
        ...

    def before_task(self, desk: Desk) -> None:
        """What is done before a task's first step."""
        ...

    def after_epoch(self, desk: Desk, epoch: int) -> None:
        """What is done after each epoch (from 0) of a task, if `needs` asks for that."""
        ...

    def after_task(self, desk: Desk) -> None:
        """What is done after a task's last step."""
        ...

    def predict(self, logits: Tensor, features: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The logits by which the learner predicts, from those of the net and the features that its head saw."""
        ...

    def predictor(self, desk: Desk) -> Predict:
        """What does so after a look at the memory, if `needs` asks for that; there is no task on this desk."""
        ...
