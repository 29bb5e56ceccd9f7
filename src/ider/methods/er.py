"""Experience replay (ER): every step also learns from a batch drawn from the memory."""

from dataclasses import dataclass

from ider.errors import UserError
from ider.losses import cross_entropy
from ider.methods.base import Supervised
from ider.options import option, validate
from ider.types import CURRENT, Batch, Draw, Needs, Parts, Terms

REPLAY = "replay"


@dataclass(frozen=True, kw_only=True)
class ER(Supervised):
    """Cross-entropy on the current batch and on a batch from the memory.

    Mixed, as published: one batch for normalisation, and one mean over all its rows. Not mixed: each part is
    normalised by its own statistics and has its own mean, the replayed one times `replay_weight`.
    """

    labelled = (CURRENT, REPLAY)
    mixed: bool = option(True, "normalise and average current and replayed images as one batch")
    replay_weight: float = option(1.0, "weight of the replayed cross-entropy beside the current one", least=0)

    def __post_init__(self) -> None:
        validate(self)
        if self.mixed and self.replay_weight != 1:
            raise UserError(
                f"replay_weight is {self.replay_weight}, but a mixed batch has one mean: set mixed to false"
            )

    def needs(self) -> Needs:
        """One draw from the memory a step."""
        return Needs(draws=(Draw(REPLAY),) if self.replay_weight else (), mixed=self.mixed)

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes on the current and, once the memory holds something, the replayed rows."""
        if self.mixed:
            return {"all": cross_entropy(logits.rows, batch.labels.pick(CURRENT, REPLAY).rows)}
        terms = {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}
        if REPLAY in logits and self.replay_weight:
            terms["replay"] = self.replay_weight * cross_entropy(logits[REPLAY], batch.labels[REPLAY])
        return terms
