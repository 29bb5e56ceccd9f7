"""Learning without forgetting (LwF): no memory; on current images the net keeps the old net's view of old classes."""

from dataclasses import dataclass

from ider.losses import among, cross_entropy, distillation
from ider.methods.base import Supervised
from ider.options import option, validate
from ider.protocols import Net
from ider.types import CURRENT, Answer, Batch, Needs, Parts, Teacher, Terms


@dataclass(frozen=True, kw_only=True)
class LwF(Supervised):
    """Cross-entropy among the classes seen, and distillation of the softened old answers among the past ones."""

    distill_weight: float = option(1.0, "weight of the distillation (alpha)", least=0)
    temperature: float = option(2.0, "by which both softmaxes of the distillation are softened", least=0.01)

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """The net of the previous task."""
        return Needs(teacher=Teacher(statistics="running") if self.distill_weight else None)

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy on the current batch, among past and current classes."""
        return {"current": cross_entropy(among(logits[CURRENT], batch.classes.seen), batch.labels[CURRENT])}

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """From the second task on: the cross-entropy of the old net's distribution over the past classes."""
        teacher = nets[1]
        if teacher is None or not self.distill_weight:
            return {}
        old = teacher.decode(teacher.encode(batch.images.pick(CURRENT))).logits[CURRENT]
        term = distillation(first.logits[CURRENT], old, batch.classes.past, self.temperature)
        return {"distill": self.distill_weight * term}
