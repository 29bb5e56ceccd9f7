"""iCaRL: binary cross-entropies with the old net's answers as targets; prediction by the nearest mean of exemplars."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ider.methods.base import Supervised
from ider.protocols import Desk, Net
from ider.types import CURRENT, Answer, Batch, Needs, Parts, Teacher, Terms

MEANS, KNOWN = "means", "known"


@dataclass(frozen=True, kw_only=True)
class ICaRL(Supervised):
    """Learns from the task and the memory in one stream; after each task herds exemplars and takes their means."""

    labelled = ()

    def needs(self) -> Needs:
        """The net of the previous task, and a memory of exemplars that is learnt along with the task."""
        return Needs(
            teacher=Teacher(statistics="running"),
            memory="tasks",
            policy="herding",
            learns_from="task and memory",
            exemplars=True,
        )

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """The mean features of each class's exemplars, and whether it has any."""
        return {MEANS: torch.zeros(classes, features), KNOWN: torch.zeros(classes, dtype=torch.bool)}

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """None: the cross-entropies here are binary, and part of `further`."""
        return {}

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """Binary cross-entropy, mean over the batch and the classes seen; past classes have the old net's targets."""
        logits, classes, teacher = first.logits[CURRENT].float(), batch.classes, nets[1]
        targets = F.one_hot(batch.labels[CURRENT], logits.shape[1]).float()
        if teacher is not None:
            old = teacher.decode(teacher.encode(batch.images.pick(CURRENT))).logits[CURRENT].float()
            targets = torch.where(classes.past & ~classes.current, old.sigmoid(), targets)
        each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return {"binary": (each * classes.seen).sum() / (len(each) * classes.seen.sum())}

    def after_task(self, desk: Desk) -> None:
        """Choose exemplars, and take the mean features of each class's (un-augmented, not normalised)."""
        desk.refill(desk.choose())
        kept = desk.remembered()
        means, known = desk.state[MEANS].zero_(), desk.state[KNOWN].zero_()
        counts = torch.bincount(kept.labels, minlength=len(known))
        means.index_add_(0, kept.labels, desk.answers(kept).features.rows)
        means.div_(counts.clamp(min=1)[:, None])
        known.copy_(counts > 0)

    def predict(self, logits: Tensor, features: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Minus the squared distance to each mean; a class without exemplars is as far as the farthest.

        Before there are exemplars, the net's own logits.
        """
        distances = torch.cdist(features, state[MEANS], compute_mode="donot_use_mm_for_euclid_dist").square()
        farthest = distances.masked_fill(~state[KNOWN], -1).amax(1, keepdim=True)
        nearness = -torch.where(state[KNOWN], distances, farthest)
        return torch.where(state[KNOWN].any(), nearness, logits)
