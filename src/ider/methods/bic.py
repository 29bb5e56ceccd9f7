"""BiC: distillation, and after each task two numbers fitted on held-out samples that undo the bias to its classes."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ider.losses import among, cross_entropy, distillation
from ider.methods.base import Supervised
from ider.options import option, validate
from ider.protocols import Desk, Net
from ider.types import CURRENT, Answer, Batch, Needs, Parts, Teacher, Terms

GAIN, OFFSET, OLD_GAIN, OLD_OFFSET = "gain", "offset", "old_gain", "old_offset"


@dataclass(frozen=True, kw_only=True)
class BiC(Supervised):
    """Cross-entropy and distillation on the task and the memory; logits of the newest task are corrected afterwards."""

    temperature: float = option(2.0, "by which both softmaxes of the distillation are softened (tau)", least=0.01)
    held_out: float = option(0.1, "chance of a remembered sample to be held out for the correction", least=0, most=1)
    fit_epochs: int = option(250, "passes over the held-out samples to fit the correction", least=0)
    fit_lr: float = option(0.001, "learning rate of that (Adam)", least=0)

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """The net of the previous task, a memory learnt along with the task, and held-out samples of both."""
        teacher = Teacher(statistics="running")
        return Needs(
            teacher=teacher,
            memory="tasks",
            policy="task-quota",
            learns_from="task and memory",
            hold_out=self.held_out,
            disjoint=True,
        )

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """By class what the logits are multiplied by and what is added; the same for the old net."""
        ones, zeros = torch.ones(classes), torch.zeros(classes)
        return {GAIN: ones, OFFSET: zeros, OLD_GAIN: ones, OLD_OFFSET: zeros}

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy among the classes seen, times t / (t + 1) in task t > 0."""
        share = self._distilled_share(batch)
        term = cross_entropy(among(logits[CURRENT], batch.classes.seen), batch.labels[CURRENT])
        return {"current": (1 - share) * term}

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """Distillation of the old net's corrected answers among the past classes, times 1 / (t + 1)."""
        teacher, state = nets[1], batch.state
        if teacher is None:
            return {}
        old = teacher.decode(teacher.encode(batch.images.pick(CURRENT))).logits[CURRENT].float()
        corrected = state[OLD_GAIN] * old + state[OLD_OFFSET]
        term = distillation(first.logits[CURRENT], corrected, batch.classes.past, self.temperature)
        return {"distill": self._distilled_share(batch) * self.temperature**2 * term}

    def before_task(self, desk: Desk) -> None:
        """The net starts without a correction; the old net keeps its own."""
        desk.state[GAIN].fill_(1)
        desk.state[OFFSET].zero_()

    def after_task(self, desk: Desk) -> None:
        """Fit the correction on what was held out, then refill the memory."""
        current, seen = desk.classes.current, desk.classes.seen
        gain = torch.ones((), device=current.device, requires_grad=True)
        offset = torch.zeros((), device=current.device, requires_grad=True)

        def loss(images: Parts, labels: Tensor) -> Tensor:
            with torch.no_grad():
                logits = desk.net.decode(desk.net.encode(images)).logits.rows.float()
            return cross_entropy(among(torch.where(current, gain * logits + offset, logits), seen), labels)

        desk.fit(desk.held_out, torch.optim.Adam([gain, offset], lr=self.fit_lr), self.fit_epochs, loss)
        with torch.no_grad():
            for name in (GAIN, OLD_GAIN):
                desk.state[name].copy_(torch.where(current, gain, 1.0))
            for name in (OFFSET, OLD_OFFSET):
                desk.state[name].copy_(torch.where(current, offset, 0.0))
        desk.refill(desk.choose())

    def predict(self, logits: Tensor, features: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Logits with those of the newest task corrected."""
        return state[GAIN] * logits + state[OFFSET]

    def _distilled_share(self, batch: Batch) -> Tensor:
        """1 / (t + 1), none in the first task, as in the released code; the BiC paper has t / (t + 1)."""
        t = batch.classes.finished
        return torch.where(t > 0, 1 / (t + 1), torch.zeros_like(t))
