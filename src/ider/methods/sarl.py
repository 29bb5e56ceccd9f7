"""SARL: sparse activations, stored logits, and prototypes of past classes that features are held to.

Shape legend: B rows, C classes, D features; h are features scaled to length one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ider.losses import logit_mse
from ider.methods.base import Supervised
from ider.methods.der import LOGITS, STORED
from ider.methods.derpp import replayed
from ider.methods.er import REPLAY
from ider.options import option, validate
from ider.protocols import Desk, Net
from ider.types import CURRENT, Answer, Batch, Classes, Draw, Needs, Parts, Sparsity, Teacher, Terms

SUMS, COUNTS, LEARNED, GROUPS, ACTIVE = "sums", "counts", "learned", "groups", "active"


@dataclass(frozen=True, kw_only=True)
class SARL(Supervised):
    """DER++ with one draw on a sparse net; from the second task on past classes keep their prototypes.

    After a warm-up of each task the old net's logits are distilled on current images, and new classes are drawn to the
    classes that they resemble (their group) and away from the others.
    """

    labelled = (CURRENT, REPLAY)
    share: float = option(0.8, "channels that survive at each place (kappa)", least=0, most=1)
    logit_weight: float = option(0.2, "weight of the distance to the stored logits (alpha)", least=0)
    distill_weight: float = option(
        1.0, "weight of the distance to the old net's logits, on current images (beta)", least=0
    )
    prototype_weight: float = option(0.5, "weight of the distance to the prototypes of past classes", least=0)
    group_weight: float = option(0.01, "weight of the ratio of distances within and without a group", least=0)
    similarity: float = option(0.8, "cosine above which classes are of one group", least=-1, most=1)
    warm_up: int = option(5, "epoch of a task (from 0) after which distillation and groups begin", least=0)

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """One draw, stored logits, the net of the previous task, and a sparse net."""
        return Needs(
            draws=(Draw(REPLAY),),
            stores=(STORED,),
            teacher=Teacher(statistics="running"),
            sparsity=Sparsity("local", (self.share,)),
            after_epochs=True,
        )

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """By class the sum of h and its samples, whether it is learned, and its group; whether the warm-up is over."""
        return {
            SUMS: torch.zeros(classes, features),
            COUNTS: torch.zeros(classes),
            LEARNED: torch.zeros(classes, dtype=torch.bool),
            GROUPS: torch.zeros(classes, classes, dtype=torch.bool),
            ACTIVE: torch.zeros(()),
        }

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes, one mean a part."""
        return replayed(1.0, logits, batch)

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """Stored logits always; prototypes from the second task on; after its warm-up the old net and groups."""
        terms = {}
        if REPLAY in first.logits:
            distance = logit_mse(first.logits[REPLAY], batch.stored[LOGITS][REPLAY])
            terms["recalled"] = self.logit_weight * distance
        teacher = nets[1]
        if teacher is None:
            return terms
        old = teacher.decode(teacher.encode(batch.images.pick(CURRENT))).logits[CURRENT]
        active = batch.state[ACTIVE]
        terms["distill"] = self.distill_weight * active * logit_mse(first.logits[CURRENT], old)
        terms["groups"] = self.group_weight * active * self._groups(first, batch)
        if REPLAY in first.logits:
            terms["prototypes"] = self.prototype_weight * self._prototypes(first, batch)
        return terms

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        """The logits of the augmented image, before the update."""
        return {LOGITS: first.logits[CURRENT]}

    def before_task(self, desk: Desk) -> None:
        """The warm-up begins."""
        desk.state[ACTIVE].zero_()

    def after_epoch(self, desk: Desk, epoch: int) -> None:
        """At the end of the warm-up each new class gets its group: the classes whose mean features point its way."""
        if epoch != self.warm_up or not desk.classes.past.any():
            return
        sums, counts = _sums_of(desk, len(desk.classes.past))
        new = desk.classes.current & ~desk.state[LEARNED]
        means = torch.where(new[:, None], sums / counts.clamp(min=1)[:, None], prototypes(desk.state))
        directions = F.normalize(means, dim=1)
        known = new | desk.state[LEARNED]
        desk.state[GROUPS].copy_((directions @ directions.T > self.similarity) & new[:, None] & known)
        desk.state[ACTIVE].fill_(1)

    def after_task(self, desk: Desk) -> None:
        """Estimate the running statistics on the memory, then add the task's features to the prototypes."""
        desk.re_estimate(desk.remembered())
        sums, counts = _sums_of(desk, len(desk.classes.past))
        desk.state[SUMS].add_(sums)
        desk.state[COUNTS].add_(counts)
        desk.state[LEARNED].logical_or_(desk.classes.current)

    def _prototypes(self, first: Answer, batch: Batch) -> Tensor:
        """The mean squared distance of each learned class's replayed mean to its prototype, summed over classes."""
        means, counts = class_means(first.features[REPLAY], batch.labels[REPLAY], batch.classes)
        counted = batch.state[LEARNED] & (counts > 0)
        distances = (means - prototypes(batch.state)).square().mean(1)
        return torch.where(counted, distances, torch.zeros_like(distances)).sum()

    def _groups(self, first: Answer, batch: Batch) -> Tensor:
        """For each new class in the batch its distances within its group over those without, summed over classes."""
        means, counts = class_means(first.features[CURRENT], batch.labels[CURRENT], batch.classes)
        learned, group = batch.state[LEARNED], batch.state[GROUPS]
        new = batch.classes.current & ~learned & (counts > 0)
        points = torch.where(new[:, None], means, prototypes(batch.state))
        distances = (points[:, None] - points).square().mean(2)
        others = (new | learned) & ~torch.eye(len(new), dtype=torch.bool, device=new.device)
        within = (distances * (others & group)).sum(1)
        without = (distances * (others & ~group)).sum(1)
        counted = new & (without > 0)
        return torch.where(counted, within / torch.where(counted, without, 1.0), 0.0).sum()


def prototypes(state: Mapping[str, Tensor]) -> Tensor:
    """The mean h of each class over the tasks in which it came."""
    return state[SUMS] / state[COUNTS].clamp(min=1)[:, None]


def class_means(features: Tensor, labels: Tensor, classes: Classes) -> tuple[Tensor, Tensor]:
    """The mean of h of each class in a batch (zero without samples), and how many samples it has."""
    which_BC = F.one_hot(labels, len(classes.past)).to(torch.float32)
    counts = which_BC.sum(0)
    h = F.normalize(features.float(), dim=1)
    return (which_BC[:, :, None] * h[:, None]).sum(0) / counts.clamp(min=1)[:, None], counts


def _sums_of(desk: Desk, classes: int) -> tuple[Tensor, Tensor]:
    """The sum of h over the task's augmented images by class, and their number."""
    h = F.normalize(desk.answers(desk.task, augmented=True).features.rows, dim=1)
    which = F.one_hot(desk.task.labels, classes).to(h.dtype)
    return which.T @ h, which.sum(0)
