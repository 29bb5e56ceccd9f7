"""X-DER: DER++ with one head a task, whose stored logits are kept up with what the net learns of past and future.

Heads are blocks of as many classes as the first task has. "Past", "present" and "future" heads are those of finished
tasks, of the present one and of tasks to come. Surgery (`graft`) writes new logits into stored ones, no higher than the
true class allows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ider.losses import among, cross_entropy
from ider.methods.base import Supervised
from ider.methods.der import LOGITS, RECALLED, STORED, recalled
from ider.methods.er import REPLAY
from ider.options import option, validate
from ider.protocols import Desk, Net
from ider.types import CURRENT, Answer, Batch, Classes, Draw, Field, Needs, Parts, Terms, Views

COUNTER = "counter"
IN_A_VIEW_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class XDER(Supervised):
    """Each head learns its own task; stored logits hold the others, and two margins keep the heads apart."""

    labelled = (CURRENT, REPLAY)
    logit_weight: float = option(0.3, "weight of the distance to the stored logits (alpha)", least=0)
    replay_weight: float = option(0.8, "weight of the replayed cross-entropy among past classes (beta)", least=0)
    margin: float = option(0.7, "by which the right head must exceed the others (m)", least=0)
    margin_weight: float = option(0.001, "weight of the two margins (eta)", least=0)
    graft_factor: float = option(0.85, "a grafted logit's most, as a share of the true class's (gamma)", least=0)
    contrast_weight: float = option(0.05, "weight of the contrastive term on future heads (lambda)", least=0)
    contrast_temperature: float = option(5.0, "its temperature", least=0.01)
    contrast_views: int = option(2, "strongly augmented views of each image in it", least=1)

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """Two draws, stored logits with a counter of their updates, a memory filled after each task, and views."""
        views = Views(IN_A_VIEW_BATCH, IN_A_VIEW_BATCH, self.contrast_views) if self.contrast_weight else None
        return Needs(
            draws=(Draw(RECALLED), Draw(REPLAY)),
            dice=(RECALLED, REPLAY),
            stores=(STORED, Field(COUNTER)),
            views=views,
            memory="tasks",
            policy="class-quota",
            disjoint=True,
        )

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Current images among the classes of their task, replayed ones among those of the past."""
        terms = {"current": cross_entropy(among(logits[CURRENT], batch.classes.current), batch.labels[CURRENT])}
        if REPLAY in logits:
            past = among(logits[REPLAY], batch.classes.past)
            terms["replay"] = self.replay_weight * cross_entropy(past, batch.labels[REPLAY])
        return terms

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """DER's term, the two margins, and the contrastive term."""
        terms = recalled(self.logit_weight, first, batch)
        terms["past"] = self.margin_weight * self._past_margin(first.logits[CURRENT].float(), batch)
        terms["future"] = self.margin_weight * self._future_margin(first.logits, batch)
        if batch.views is not None:
            net = nets[0].untracked()
            logits = net.decode(net.encode(batch.views.images)).logits.rows.float()
            terms["contrast"] = self.contrast_weight * self._contrast(logits, batch.views.labels.rows, batch)
        return terms

    def revised(self, first: Answer, batch: Batch) -> Mapping[str, Parts]:
        """Graft today's logits of present and future heads into the stored ones, ever more rarely."""
        names = [name for name in (RECALLED, REPLAY) if name in first.logits]
        if not names:
            return {}
        stored, labels = batch.stored[LOGITS].pick(*names), batch.labels.pick(*names)
        now, count = first.logits.pick(*names).rows.detach().float(), batch.stored[COUNTER].pick(*names).rows + 1
        dice = torch.cat([batch.dice[name] for name in names])
        grafted = self.graft(stored.rows, now, labels.rows, ~batch.classes.past)
        chosen = batch.classes.past[labels.rows] & (dice < 1 / count)
        rows = torch.where(chosen[:, None], grafted, stored.rows)
        return {LOGITS: stored.like(rows), COUNTER: stored.like(count)}

    @torch.no_grad()
    def after_task(self, desk: Desk) -> None:
        """Store the new samples with logits whose past is bounded, and give the old samples their new present."""
        past, choice = desk.classes.past, desk.choose()
        entering = desk.task.pick(choice.enter)
        logits = desk.answers(entering, augmented=True, statistics="batch").logits.rows
        if past.any():
            logits = self.graft(logits, logits, entering.labels, past)
        desk.refill(choice, **{LOGITS: logits, COUNTER: torch.zeros(len(entering), device=past.device)})
        kept, stored = desk.remembered(), desk.stored(LOGITS)
        now = desk.answers(kept, augmented=True, statistics="batch").logits.rows
        grafted = self.graft(stored, now, kept.labels, ~past)
        stored.copy_(torch.where(past[kept.labels][:, None], grafted, stored))
        desk.stored(COUNTER).zero_()

    def graft(self, old: Tensor, new: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        """`old` logits with the `new` ones of some classes, scaled down in rows where they exceed the true class's.

        Where that is not positive, such a factor would turn signs and know no bound: there they are shifted down to it.
        """
        true = old.gather(1, labels[:, None])
        most = new.masked_fill(~where, -torch.inf).amax(1, keepdim=True)
        lowered = torch.where(true > 0, new * (self.graft_factor * true / most), new - (most - true))
        return torch.where(where, torch.where(most > true, lowered, new), old)

    def _past_margin(self, logits: Tensor, batch: Batch) -> Tensor:
        """On current images the present head must be more probable than any past class; nothing in the first task."""
        classes = batch.classes
        p = among(logits, classes.seen).softmax(1)
        past = (p * classes.past).amax(1).detach()
        short = past + self.margin - (p * classes.current).amax(1)
        return _mean_of_positive(short) * classes.past.any()

    def _future_margin(self, logits: Parts, batch: Batch) -> Tensor:
        """On all images the head of their task must exceed every future logit; nothing in the last task."""
        names = [name for name in (CURRENT, RECALLED, REPLAY) if name in logits]
        rows, labels = logits.pick(*names).rows.float(), batch.labels.pick(*names).rows
        future = rows.masked_fill(batch.classes.seen, -torch.inf).amax(1)
        own = rows.masked_fill(~self._own_head(labels, batch.classes), -torch.inf).amax(1)
        return _mean_of_positive((future + self.margin - own).masked_fill(self._twice(logits, batch), 0))

    def _own_head(self, labels: Tensor, classes: Classes) -> Tensor:
        """For each row the classes of its own task: the present one's, or the past ones in its block."""
        block = torch.arange(len(classes.past), device=labels.device) // classes.block
        past = (block == block[labels][:, None]) & classes.past
        return torch.where(classes.current[labels][:, None], classes.current, past)

    def _twice(self, logits: Parts, batch: Batch) -> Tensor:
        """The replayed rows whose slot was recalled as well: they count once."""
        once = torch.zeros_like(batch.labels.pick(CURRENT, RECALLED).rows, dtype=torch.bool)
        if REPLAY not in logits:
            return once
        return torch.cat([once, (batch.slots[REPLAY][:, None] == batch.slots[RECALLED]).any(1)])

    def _contrast(self, logits: Tensor, labels: Tensor, batch: Batch) -> Tensor:
        """Supervised contrastive loss of each future head's outputs, mean over heads and images."""
        block, views = batch.classes.block, self.contrast_views
        missing = -logits.shape[1] % block
        heads = F.pad(logits, (0, missing)).reshape(len(logits), -1, block).transpose(0, 1)
        future = ~F.pad(batch.classes.seen, (0, missing), value=False).reshape(-1, block).any(1)
        directions = F.normalize(heads, dim=2)
        similar = (directions @ directions.transpose(1, 2)).float() / self.contrast_temperature
        itself = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        # The least number, not minus infinity, which a single row without another would turn into NaN.
        log_p = similar - similar.masked_fill(itself, torch.finfo(similar.dtype).min).logsumexp(2, keepdim=True)
        alike = (labels[:, None] == labels) & ~itself
        of_rows = -(log_p * alike).sum(2) / alike.sum(1).clamp(min=1)
        of_heads = of_rows.sum(1) / views  # the mean over an image's views, summed over images
        return (of_heads * future).sum() / (future.sum().clamp(min=1) * (len(logits) // views))


def _mean_of_positive(values: Tensor) -> Tensor:
    """The mean of the positive values; zero if there is none."""
    positive = values > 0
    return torch.where(positive, values, torch.zeros_like(values)).sum() / positive.sum().clamp(min=1)
