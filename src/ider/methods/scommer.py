"""SCoMMER: sparse activations, a running mean of the net, and dropout by which each class keeps to channels of its own.

Shape legend: B rows, C classes, D channels of the last stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ider.losses import logit_mse
from ider.methods.base import Supervised
from ider.methods.derpp import replayed
from ider.methods.er import REPLAY
from ider.options import option, validate
from ider.protocols import Desk, Net
from ider.types import CURRENT, Answer, Average, Batch, Draw, Needs, Parts, Sparsity, Terms

LONG_TERM = "long-term"
ALIVE, ALIVE_OF, SCORES, CHANCES = "alive", "alive_of", "scores", "chances"
DRAWN = 1.1  # channels drawn for a class without habits, as a multiple of the winners


@dataclass(frozen=True, kw_only=True)
class SCoMMER(Supervised):
    """ER on a sparse net; replayed logits stay close to those of the mean, and current images use part of the channels.

    A class without habits yet gets channels that past tasks used little (heterogeneous dropout), a class with habits
    mostly the channels that it has been using (semantic dropout). Both concern the last stage and current images only.
    """

    labelled = (CURRENT, REPLAY)
    shares: tuple[float, ...] = option((0.9, 0.9, 0.9, 0.8), "channels that survive, by stage (kappa)", least=0, most=1)
    consistency_weight: float = option(0.15, "weight of the distance to the mean's logits (lambda)", least=0)
    rate: float = option(0.5, "chance per step that the mean follows the net", least=0, most=1)
    decay: float = option(0.999, "share of the mean that stays when it follows", least=0, most=1)
    horizon: float = option(0.0, "steps that the mean reaches back; 0: as its rate says", least=0)
    tuned_epochs: int = option(0, "epochs a task that the horizon is meant for, scaled to others; 0: it stays", least=0)
    avoidance: float = option(5.0, "how much the draw avoids channels that past tasks used (pi)", least=0)
    habit: float = option(2.0, "how much a class keeps to the channels it has been using (rho)", least=0)
    warm_up: int = option(30, "epochs of a task before its classes have habits", least=0)
    predicts: Literal["long-term", "working"] = option("long-term", "the net that the learner predicts with")

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """One draw from the memory, the mean, and a sparse net."""
        mean = Average(LONG_TERM, self.decay, self.rate, epochs=self.tuned_epochs)
        return Needs(
            draws=(Draw(REPLAY),),
            averages=(mean.with_horizon(self.horizon) if self.horizon else mean,),
            predicts=LONG_TERM if self.predicts == LONG_TERM else "",
            sparsity=Sparsity("global", self.shares),
            after_epochs=True,
        )

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """How often channels were alive, in all and by class; the scores of the draw, and the chances of each class."""
        scores = (torch.arange(features) < int(DRAWN * self.shares[-1] * features)).float()
        table = torch.zeros(classes, features)
        return {ALIVE: torch.zeros(features), ALIVE_OF: table, SCORES: scores, CHANCES: table}

    def noise(self, classes: int, features: int) -> Mapping[str, tuple[int | str, ...]]:
        """Numbers for the draw and for the chances, one a channel: all images of a batch share them."""
        return {"draw": (features,), "chance": (features,)}

    def keep(self, batch: Batch) -> Tensor:
        """Which channels each current image keeps; replayed ones keep all."""
        labels, chances = batch.labels[CURRENT], batch.state[CHANCES]
        habits = (batch.noise["chance"] < chances[labels]).float()
        kept = torch.where((chances[labels].sum(1) > 0)[:, None], habits, self._drawn(batch))
        everything = kept.new_ones(len(batch.labels.rows) - len(labels), kept.shape[1])
        return torch.cat([kept, everything])

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes, one mean a part."""
        return replayed(1.0, logits, batch)

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """The squared distance of raw logits to the mean's on the replayed images."""
        if REPLAY not in first.logits:
            return {}
        mean = nets[0].average(LONG_TERM)
        target = mean.decode(mean.encode(batch.images.pick(REPLAY))).logits[REPLAY]
        return {"consistency": self.consistency_weight * logit_mse(first.logits[REPLAY], target)}

    def counted(self, first: Answer, batch: Batch) -> Mapping[str, Tensor]:
        """Add up in how many current images each channel was alive."""
        alive_BD = (first.features[CURRENT] > 0).float()
        return {
            ALIVE: batch.state[ALIVE] + alive_BD.sum(0),
            ALIVE_OF: batch.state[ALIVE_OF].index_add(0, batch.labels[CURRENT], alive_BD),
        }

    def after_epoch(self, desk: Desk, epoch: int) -> None:
        """Once warm, classes form habits."""
        if epoch >= self.warm_up:
            self._form_habits(desk)

    def after_task(self, desk: Desk) -> None:
        """Score channels by how little they were used, and form habits."""
        alive = desk.state[ALIVE]
        desk.state[SCORES].copy_(torch.exp(-self.avoidance * alive / alive.max().clamp(min=1)))
        self._form_habits(desk)

    def _form_habits(self, desk: Desk) -> None:
        alive_CD = desk.state[ALIVE_OF]
        share_CD = alive_CD / alive_CD.amax(1, keepdim=True).clamp(min=1)
        desk.state[CHANCES].copy_(1 - torch.exp(-self.habit * share_CD))

    def _drawn(self, batch: Batch) -> Tensor:
        """Channels drawn without replacement in proportion to their scores, by the largest of perturbed logarithms."""
        scores, numbers = batch.state[SCORES], batch.noise["draw"].clamp(1e-6, 1 - 1e-6)
        count = min(int(DRAWN * self.shares[-1] * len(scores)), len(scores))
        perturbed = scores.log() - (-numbers.log()).log()
        return torch.zeros_like(scores).index_fill(0, perturbed.topk(count).indices, 1.0)
