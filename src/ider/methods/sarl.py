"""SARL: sparse activations, stored logits, and prototypes of past classes that features are held to.

Shape legend: B rows, C classes, D features; h are features scaled to length one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
STEPS, MET, MET_COUNTS = "steps", "met", "met_counts"  # of the online variant


@dataclass(frozen=True, kw_only=True)
class SARL(Supervised):
    """DER++ with one draw on a sparse net; from the second task on past classes keep their prototypes.

    After a warm-up of each task the old net's logits are distilled on current images, and new classes are drawn to the
    classes that they resemble (their group) and away from the others. The online variant (`warm_up_steps`) counts
    steps, takes groups from the first batch after them, and prototypes from that and all later batches.
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
    warm_up_steps: int = option(0, "steps of a task before that in the online variant; 0: epochs count", least=0)

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """One draw, stored logits, the net of the previous task, and a sparse net."""
        return Needs(
            draws=(Draw(REPLAY),),
            stores=(STORED,),
            teacher=Teacher(statistics="running"),
            sparsity=Sparsity("local", (self.share,)),
            after_epochs=not self.warm_up_steps,
        )

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """By class the sum of h and its samples, whether it is learned, and its group; whether the warm-up is over.

        Online also the steps of the task, and by class the sum of h and its samples in those after the warm-up.
        """
        online = {STEPS: torch.zeros(()), MET: torch.zeros(classes, features), MET_COUNTS: torch.zeros(classes)}
        return {
            SUMS: torch.zeros(classes, features),
            COUNTS: torch.zeros(classes),
            LEARNED: torch.zeros(classes, dtype=torch.bool),
            GROUPS: torch.zeros(classes, classes, dtype=torch.bool),
            ACTIVE: torch.zeros(()),
            **(online if self.warm_up_steps else {}),
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
        batch = replace(batch, state={**batch.state, **self.counted(first, batch)})
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

    @torch.no_grad()
    def counted(self, first: Answer, batch: Batch) -> Mapping[str, Tensor]:
        """Online: count steps, add up h after the warm-up, and from the first batch after it take the groups."""
        state = batch.state
        if not self.warm_up_steps:
            return {}
        warm, beginning = state[STEPS] >= self.warm_up_steps, state[STEPS] == self.warm_up_steps
        sums, counts = class_sums(first.features[CURRENT], batch.labels[CURRENT], len(state[COUNTS]))
        met, met_counts = state[MET] + warm * sums, state[MET_COUNTS] + warm * counts
        new = batch.classes.current & ~state[LEARNED]
        groups = self._resembling(state, met, met_counts, new & (met_counts > 0))
        return {
            STEPS: state[STEPS] + 1,
            MET: met,
            MET_COUNTS: met_counts,
            GROUPS: torch.where(beginning, groups, state[GROUPS]),
            ACTIVE: warm.float(),
        }

    def before_task(self, desk: Desk) -> None:
        """The warm-up begins."""
        for name in (ACTIVE, *((STEPS, MET, MET_COUNTS, GROUPS) if self.warm_up_steps else ())):
            desk.state[name].zero_()

    def after_epoch(self, desk: Desk, epoch: int) -> None:
        """At the end of the warm-up each new class gets its group: the classes whose mean features point its way."""
        if epoch != self.warm_up or not desk.classes.past.any():
            return
        sums, counts = _sums_of(desk, len(desk.classes.past))
        new = desk.classes.current & ~desk.state[LEARNED]
        desk.state[GROUPS].copy_(self._resembling(desk.state, sums, counts, new))
        desk.state[ACTIVE].fill_(1)

    def after_task(self, desk: Desk) -> None:
        """Estimate the running statistics on the memory, then add the task's features to the prototypes.

        Online these are the features met on the way: a class that came in the warm-up alone stays without a prototype.
        """
        state = desk.state
        desk.re_estimate(desk.remembered())
        if self.warm_up_steps:
            sums, counts = state[MET], state[MET_COUNTS]
        else:
            sums, counts = _sums_of(desk, len(desk.classes.past))
        state[SUMS].add_(sums)
        state[COUNTS].add_(counts)
        state[LEARNED].logical_or_(desk.classes.current & (counts > 0))

    def _resembling(self, state: Mapping[str, Tensor], sums: Tensor, counts: Tensor, new: Tensor) -> Tensor:
        """The group of each new class: those of the known and the new ones whose mean h points its way."""
        means = torch.where(new[:, None], sums / counts.clamp(min=1)[:, None], prototypes(state))
        directions = F.normalize(means.double(), dim=1)  # doubles, which mixed precision leaves alone
        return (directions @ directions.T > self.similarity) & new[:, None] & (new | state[LEARNED])

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
        distances = squared_distances(points)
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
    sums, counts = class_sums(features, labels, len(classes.past))
    return sums / counts.clamp(min=1)[:, None], counts


def squared_distances(points: Tensor) -> Tensor:
    """The mean squared difference of each two points, by products: in doubles, so that close ones stay exact."""
    points = points.double()
    lengths = points.square().sum(1)
    distances = lengths[:, None] + lengths - 2 * points @ points.T
    return (distances / points.shape[1]).clamp(min=0).float()


def class_sums(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The sum of h of each class in a batch, and how many samples it has."""
    h = F.normalize(features.float(), dim=1)
    sums = h.new_zeros(classes, h.shape[1]).index_add(0, labels, h)
    return sums, h.new_zeros(classes).index_add(0, labels, h.new_ones(len(labels)))


def _sums_of(desk: Desk, classes: int) -> tuple[Tensor, Tensor]:
    """The sum of h over the task's augmented images by class, and their number."""
    return class_sums(desk.answers(desk.task, augmented=True).features.rows, desk.task.labels, classes)
