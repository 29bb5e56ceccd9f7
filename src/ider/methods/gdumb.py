"""GDumb: a balanced memory, and a fresh net trained on nothing else, at each task anew; how far sampling alone gets."""

from dataclasses import dataclass

from ider.losses import cross_entropy
from ider.methods.base import Supervised
from ider.protocols import Desk
from ider.types import CURRENT, Batch, Needs, Parts, Terms


@dataclass(frozen=True, kw_only=True)
class GDumb(Supervised):
    """Cross-entropy on the memory's samples; the epochs of a task are epochs over the memory."""

    def needs(self) -> Needs:
        """A memory that takes its share of a task before that is learnt."""
        return Needs(memory="tasks", policy="balanced", learns_from="memory")

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes."""
        return {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}

    def before_task(self, desk: Desk) -> None:
        """Take in the task's samples, and start from nothing."""
        desk.refill(desk.choose())
        desk.renew_net()
