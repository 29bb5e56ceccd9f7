"""Finetune, the lower bound: cross-entropy on the current task alone. Joint, the ceiling: the same on all at once."""

from dataclasses import dataclass

from ider.losses import cross_entropy
from ider.methods.base import Supervised
from ider.types import CURRENT, Batch, Needs, Parts, Terms


@dataclass(frozen=True, kw_only=True)
class Finetune(Supervised):
    """Learn each task as it comes and protect nothing."""

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes on the current batch."""
        return {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}


@dataclass(frozen=True, kw_only=True)
class Joint(Finetune):
    """Train one fresh net on the union of all tasks."""

    def needs(self) -> Needs:
        """The whole stream as one task."""
        return Needs(joined=True)
