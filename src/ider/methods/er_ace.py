"""ER-ACE: the current batch competes with its own classes only, so that learning it does not push the old ones down."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ider.losses import among, cross_entropy
from ider.methods.base import Supervised
from ider.methods.er import REPLAY
from ider.types import CURRENT, Batch, Draw, Needs, Parts, Terms


@dataclass(frozen=True, kw_only=True)
class ERACE(Supervised):
    """Asymmetric cross-entropies from the second task on; the first task is plain training without replay."""

    labelled = (CURRENT, REPLAY)

    def needs(self) -> Needs:
        """A draw from the memory from the second task on; classes must not come again."""
        return Needs(draws=(Draw(REPLAY, later=True),), disjoint=True)

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Current images among the classes of their batch and those yet to come, replayed ones among all."""
        own = among(logits[CURRENT], self._allowed(batch))
        terms = {"current": cross_entropy(own, batch.labels[CURRENT])}
        if REPLAY in logits:
            terms["replay"] = cross_entropy(logits[REPLAY], batch.labels[REPLAY])
        return terms

    def _allowed(self, batch: Batch) -> Tensor:
        """The classes of the batch, and, while some are yet to come, those and the task's last; in task one all.

        As published, but that there "to come" are all numbers above the highest seen: the same if they come in order.
        """
        classes, labels = batch.classes, batch.labels[CURRENT]
        to_come, number = ~classes.seen, torch.arange(len(classes.seen), device=labels.device)
        present = torch.zeros_like(to_come).index_fill(0, labels, True)
        last = (number == (number * classes.current).max()) & to_come.any()
        return present | to_come | last | ~classes.past.any()
