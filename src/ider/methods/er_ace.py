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
        """A draw from the memory from the second task on; labels must come in ascending order, and never again."""
        return Needs(draws=(Draw(REPLAY, later=True),), disjoint=True)

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Current images among the classes of their batch and those yet to come, replayed ones among all."""
        own = among(logits[CURRENT], self._allowed(batch))
        terms = {"current": cross_entropy(own, batch.labels[CURRENT])}
        if REPLAY in logits:
            terms["replay"] = cross_entropy(logits[REPLAY], batch.labels[REPLAY])
        return terms

    def _allowed(self, batch: Batch) -> Tensor:
        """The classes of the batch; from the highest class so far on all, unless that is the last; in task one all."""
        seen, labels = batch.classes.seen, batch.labels[CURRENT]
        number = torch.arange(len(seen), device=seen.device)
        present = torch.zeros_like(seen).index_fill(0, labels, True)
        highest = (number * seen).max()
        to_come = (number >= highest) & (highest < len(seen) - 1)
        return present | to_come | ~batch.classes.past.any()
