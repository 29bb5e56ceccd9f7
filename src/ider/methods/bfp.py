"""Backward feature projection (BFP): DER++, whose new features must be a linear map away from the old ones."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ider.losses import logit_mse
from ider.methods.base import Supervised
from ider.methods.der import RECALLED, STORED, recalled, to_recall
from ider.methods.derpp import draws, replayed
from ider.methods.er import REPLAY
from ider.options import option, validate
from ider.protocols import Net
from ider.types import CURRENT, Answer, Batch, Draw, Needs, Parts, Side, Teacher, Terms

PROJECTED = "projected"


@dataclass(frozen=True, kw_only=True)
class BFP(Supervised):
    """DER++ that distils the old net's logits from the second task on, and a projection of features onto its own."""

    labelled = (CURRENT, REPLAY)
    logit_weight: float = option(0.1, "weight of the distance to stored or old logits; 0: none are stored", least=0)
    replay_weight: float = option(0.5, "weight of the replayed cross-entropy", least=0)
    feature_weight: float = option(1.0, "weight of the distance of projected features to the old net's", least=0)
    projection_lr: float = option(0.1, "learning rate of the projection, which has no schedule", least=0)
    projection_momentum: float = option(0.9, "momentum of the projection", least=0)

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """Three independent draws, stored logits, the net of the previous task, and the projection.

        What weighs nothing is left out.
        """
        projects = (Draw(PROJECTED, later=True),) if self.feature_weight else ()
        return Needs(
            draws=(*draws(self.logit_weight, self.replay_weight), *projects),
            stores=(STORED,) if self.logit_weight else (),
            teacher=Teacher(statistics="running") if self.logit_weight or self.feature_weight else None,
            side=Side(self.projection_lr, self.projection_momentum) if self.feature_weight else None,
            policy="class-balanced",
        )

    def side(self, classes: int, features: int, tasks: int) -> nn.Module:
        """A linear map of the features."""
        return nn.Linear(features, features)

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes, one mean a part."""
        return replayed(self.replay_weight, logits, batch)

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """In the first task DER's term; then the old net's logits on the same views, and its features."""
        teacher = nets[1]
        if teacher is None:
            return recalled(self.logit_weight, first, batch)
        parts = batch.images.pick(*((CURRENT, PROJECTED) if self.feature_weight else ()), RECALLED)
        if not parts.sizes:
            return {}
        old, terms = teacher.decode(teacher.encode(parts)), {}
        if RECALLED in parts:
            terms[RECALLED] = self.logit_weight * logit_mse(first.logits[RECALLED], old.logits[RECALLED])
        if self.feature_weight:
            terms["features"] = self.feature_weight * self._distance(first.features, old.features, batch)
        return terms

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        """The logits of the augmented image, before the update."""
        return to_recall(self.logit_weight, first)

    def _distance(self, features: Parts, old: Parts, batch: Batch) -> Tensor:
        """The length of what the projection leaves, by the root of the dimension, mean over current and drawn rows."""
        assert batch.side is not None
        new = features.pick(CURRENT, PROJECTED).rows
        left = batch.side(new).float() - old.pick(CURRENT, PROJECTED).rows.float()
        distance: Tensor = torch.linalg.vector_norm(left, dim=1).mean() / new.shape[1] ** 0.5
        return distance
