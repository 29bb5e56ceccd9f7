"""CLS-ER: two running means of the net, a quick and a slow one, say what its logits on remembered images should be."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from ider.errors import UserError
from ider.losses import cross_entropy, logit_mse
from ider.methods.base import Supervised
from ider.methods.er import REPLAY
from ider.options import option, validate
from ider.protocols import Net
from ider.types import CURRENT, Answer, Average, Batch, Draw, Needs, Parts, Terms

STABLE, PLASTIC, WORKING = "stable", "plastic", "working"


@dataclass(frozen=True, kw_only=True)
class CLSER(Supervised):
    """ER, and the distance of the logits on the memory batch to those of the mean that is surer of the true class.

    Mixed, as published: current and replayed images are one batch, and the replayed ones also go through the net alone.
    A mean follows the net over about 1 / (rate * (1 - decay)) steps, its horizon, or what is said of that in steps. It
    does not change with the number of epochs, unless `tuned_epochs` says for how many it was chosen.
    """

    labelled = (CURRENT, REPLAY)
    mixed: bool = option(True, "normalise and average current and replayed images as one batch")
    replay_weight: float = option(1.0, "weight of the replayed cross-entropy beside the current one", least=0)
    consistency_weight: float = option(0.15, "weight of the distance to the means' logits (lambda)", least=0)
    stable_rate: float = option(0.1, "chance per step that the stable mean follows the net", least=0, most=1)
    plastic_rate: float = option(0.3, "chance per step that the plastic mean follows the net", least=0, most=1)
    decay: float = option(0.999, "share of a mean that stays when it follows (alpha)", least=0, most=1)
    stable_horizon: float = option(0.0, "steps that the stable mean reaches back; 0: as its rate says", least=0)
    plastic_horizon: float = option(0.0, "steps that the plastic mean reaches back; 0: as its rate says", least=0)
    tuned_epochs: int = option(0, "epochs a task that horizons are meant for, scaled to others; 0: they stay", least=0)
    own_statistics: bool = option(True, "means keep running statistics of memory batches; else they take the net's")
    predicts: Literal["stable", "plastic", "working"] = option("stable", "the net that the learner predicts with")

    def __post_init__(self) -> None:
        validate(self)
        if self.mixed and self.replay_weight != 1:
            raise UserError(
                f"replay_weight is {self.replay_weight}, but a mixed batch has one mean: set mixed to false"
            )

    def needs(self) -> Needs:
        """One draw from the memory, and the two means."""
        return Needs(
            draws=(Draw(REPLAY),),
            averages=(
                self._average(STABLE, self.stable_rate, self.stable_horizon),
                self._average(PLASTIC, self.plastic_rate, self.plastic_horizon),
            ),
            predicts="" if self.predicts == WORKING else self.predicts,
            mixed=self.mixed,
        )

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes: one mean of all rows, or one a part."""
        if self.mixed:
            return {"all": cross_entropy(logits.rows, batch.labels.pick(CURRENT, REPLAY).rows)}
        terms = {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}
        if REPLAY in logits:
            terms["replay"] = self.replay_weight * cross_entropy(logits[REPLAY], batch.labels[REPLAY])
        return terms

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """The squared distance of raw logits to the chosen mean's, image by image; ties go to the plastic one."""
        if REPLAY not in first.logits:
            return {}
        images, labels = batch.images.pick(REPLAY), batch.labels[REPLAY]
        stable, plastic = (self._logits(nets[0].average(name), images) for name in (STABLE, PLASTIC))
        surer = _true(stable, labels) > _true(plastic, labels)
        target = torch.where(surer[:, None], stable, plastic)
        return {"consistency": self.consistency_weight * logit_mse(first.logits[REPLAY], target)}

    def aside(self, net: Net, batch: Batch) -> Answer | None:
        """Mixed batches need the replayed images alone as well."""
        if not self.mixed or REPLAY not in batch.images:
            return None
        return net.decode(net.encode(batch.images.pick(REPLAY)))

    def _average(self, name: str, rate: float, horizon: float) -> Average:
        made = Average(name, self.decay, rate, self.own_statistics, self.tuned_epochs)
        return made.with_horizon(horizon) if horizon else made

    def _logits(self, mean: Net, images: Parts) -> torch.Tensor:
        return mean.decode(mean.encode(images)).logits.rows.float()


def _true(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The probability of the true class."""
    return F.softmax(logits, 1).gather(1, labels[:, None])[:, 0]
