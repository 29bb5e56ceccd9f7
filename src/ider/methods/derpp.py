"""DER++: dark experience replay, and the cross-entropy of a second, independent draw from the memory."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ider.losses import cross_entropy
from ider.methods.base import Supervised
from ider.methods.der import RECALLED, STORED, recalled, to_recall
from ider.methods.er import REPLAY
from ider.options import option, validate
from ider.protocols import Net
from ider.types import CURRENT, Answer, Batch, Draw, Needs, Parts, Terms


@dataclass(frozen=True, kw_only=True)
class DERPP(Supervised):
    """Cross-entropies of the current batch and of a memory batch, and the stored logits of another memory batch."""

    labelled = (CURRENT, REPLAY)
    logit_weight: float = option(
        0.1, "weight of the distance to the stored logits (alpha); 0: none are stored", least=0
    )
    replay_weight: float = option(0.5, "weight of the replayed cross-entropy (beta)", least=0)

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """Two independent draws, and logits stored with each sample; what weighs nothing is left out."""
        return Needs(draws=draws(self.logit_weight, self.replay_weight), stores=(STORED,) if self.logit_weight else ())

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes, one mean a part."""
        return replayed(self.replay_weight, logits, batch)

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """The squared distance to the stored logits."""
        return recalled(self.logit_weight, first, batch)

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        """The logits of the augmented image, before the update."""
        return to_recall(self.logit_weight, first)


def draws(logit_weight: float, replay_weight: float) -> tuple[Draw, ...]:
    """A draw for each of the two terms that counts."""
    return tuple(Draw(name) for name, weight in ((RECALLED, logit_weight), (REPLAY, replay_weight)) if weight)


def replayed(weight: float, logits: Parts, batch: Batch) -> Terms:
    """Cross-entropies on the current and, once the memory holds something, on the replayed rows."""
    terms = {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}
    if REPLAY in logits:
        terms["replay"] = weight * cross_entropy(logits[REPLAY], batch.labels[REPLAY])
    return terms
