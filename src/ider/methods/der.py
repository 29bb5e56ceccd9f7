"""Dark experience replay (DER): the memory also keeps what the net answered when it saw an image."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ider.losses import cross_entropy, logit_mse
from ider.methods.base import Supervised
from ider.options import option, validate
from ider.protocols import Net
from ider.types import CURRENT, Answer, Batch, Draw, Field, Needs, Parts, Terms

RECALLED, LOGITS = "recalled", "logits"
STORED = Field(LOGITS, per_class=True)


@dataclass(frozen=True, kw_only=True)
class DER(Supervised):
    """Cross-entropy on the current batch, and the distance of today's logits to the stored ones on a memory batch."""

    logit_weight: float = option(
        0.3, "weight of the distance to the stored logits (alpha); 0: none are stored", least=0
    )

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """A draw from the memory, and logits stored with each sample."""
        return Needs(draws=(Draw(RECALLED),), stores=(STORED,)) if self.logit_weight else Needs()

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes on the current batch."""
        return {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """The squared distance of raw logits, mean over the batch and all classes."""
        return recalled(self.logit_weight, first, batch)

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        """The logits of the augmented image, before the update."""
        return to_recall(self.logit_weight, first)


def to_recall(weight: float, first: Answer) -> Mapping[str, Tensor]:
    """The current logits, which are stored if they will be compared with."""
    return {LOGITS: first.logits[CURRENT]} if weight else {}


def recalled(weight: float, first: Answer, batch: Batch) -> Terms:
    """DER's term, once the memory holds something."""
    if RECALLED not in first.logits:
        return {}
    return {RECALLED: weight * logit_mse(first.logits[RECALLED], batch.stored[LOGITS][RECALLED])}
