"""Elastic weight consolidation (EWC, online): no memory; weights that mattered for past tasks are held in place."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ider.losses import cross_entropy
from ider.methods.base import Supervised
from ider.options import option, validate
from ider.protocols import Desk, Net
from ider.types import CURRENT, Answer, Batch, Parts, Terms

FISHER, ANCHOR = "fisher/", "anchor/"


@dataclass(frozen=True, kw_only=True)
class EWC(Supervised):
    """Cross-entropy, and a quadratic penalty whose strength is the Fisher information of the past tasks.

    The information of a weight is the mean square of its gradient over the samples of a task, each with its true label
    (the empirical Fisher), summed over tasks with a discount.
    """

    penalty_weight: float = option(10.0, "weight of the penalty (lambda)", least=0)
    discount: float = option(1.0, "factor of the information of the past at the end of each task (gamma)", least=0)

    def __post_init__(self) -> None:
        validate(self)

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """For each weight its information and where it stood."""
        blank = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        return {prefix + name: zeros for prefix in (FISHER, ANCHOR) for name, zeros in blank.items()}

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes on the current batch."""
        return {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """The squared way of each weight since the last task, times its information; zero in the first task."""
        pulls = [
            (batch.state[FISHER + name] * (weight - batch.state[ANCHOR + name]).square()).sum()
            for name, weight in nets[0].weights().items()
        ]
        return {"penalty": self.penalty_weight * torch.stack(pulls).sum()}

    @torch.no_grad()
    def after_task(self, desk: Desk) -> None:
        """Add the task's information, and take note of the weights."""
        found = desk.gradients(desk.task, cross_entropy)
        for name, weight in desk.net.weights().items():
            desk.state[FISHER + name].mul_(self.discount).add_(found[name])
            desk.state[ANCHOR + name].copy_(weight)
