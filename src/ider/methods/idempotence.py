"""`<method>+id`: idempotence on top of any method whose supervised part is a cross-entropy (IDER).

The net learns to answer alike from the prior and from its own answer, f(x, 0) = f(x, f(x, 0)) = y, and the frozen
net of the previous task, given the current answer, must return it unchanged.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ider.errors import UserError
from ider.losses import logit_kl, logit_mse, probabilities
from ider.methods.base import Supervised
from ider.methods.er import ER
from ider.options import option, validate
from ider.types import CURRENT, Batch, Draw, Needs, Net, Parts, Teacher, Terms

DISTILL = "distill"
DISTANCES = {"mse": logit_mse, "kl": logit_kl}


@dataclass(frozen=True, kw_only=True)
class Idempotent:
    """Every cross-entropy of `base` for the first and the second answer, and fixed-point terms from task two on."""

    base: Supervised = field(default_factory=lambda: ER(mixed=False), metadata={"help": "the method underneath"})
    answer_weight: float = option(0.5, "weight of each of the two answers' cross-entropies", least=0)
    current_weight: float = option(0.4, "weight of the fixed-point term on current images", least=0)
    memory_weight: float = option(0.5, "weight of the fixed-point term on images from the memory", least=0)
    prior_probability: float = option(
        1.0, "chance, per batch and part, that the first answer starts from the prior, not the label", least=0, most=1
    )
    distance: Literal["mse", "kl"] = option("mse", "distance between an answer and the teacher's: mse (logits) or kl")
    teacher_statistics: Literal["batch", "running"] = option(
        "batch", "how the teacher normalises: by its batch or by its running statistics"
    )
    teacher_gradient: bool = option(True, "let the gradient flow through the teacher's second input")

    def __post_init__(self) -> None:
        validate(self)
        base = self.base.needs()
        if base.joined:
            raise UserError("+id needs a stream of tasks, but the method underneath learns all of them at once")
        if base.mixed:
            raise UserError("base.mixed is true, but +id keeps the parts apart: use ER(mixed=False)")
        if base.teacher not in (None, Teacher(self.teacher_statistics)):
            raise UserError(
                f"teacher_statistics is {self.teacher_statistics!r}, but the method underneath needs the other"
            )

    def needs(self) -> Needs:
        """What the base needs, a second and independent draw from the memory, and the net of the previous task."""
        base = self.base.needs()
        parts = (CURRENT, *(draw.name for draw in base.draws))
        fixed_point = self.current_weight or self.memory_weight
        return replace(
            base,
            draws=(*base.draws, Draw(DISTILL, only_with_teacher=True)) if self.memory_weight else base.draws,
            teacher=Teacher(statistics=self.teacher_statistics) if fixed_point else base.teacher,
            coins=() if self.prior_probability == 1 else parts,
            second_input=True,
        )

    def terms(self, net: Net, teacher: Net | None, batch: Batch) -> Terms:
        """All parts in one pass; with the prior as second input the supervised and the fixed-point answer are one."""
        z = net.encode(batch.images)
        first = net.decode(z)
        names = [name for name in first.sizes if name != DISTILL]
        asked = self._asked(net, z, first, batch, names)
        second = net.decode(z.pick(*names), asked.like(probabilities(asked.rows)))
        pairs = [self.base.supervised(answer, batch) for answer in (asked, second)]
        terms = {
            f"{which}/{name}": self.answer_weight * term
            for which, pair in zip(("first", "second"), pairs, strict=True)
            for name, term in pair.items()
        }
        terms |= self.base.further(first.pick(*names), teacher, batch)
        return terms if teacher is None else terms | self._fixed_point(teacher, first, batch)

    def _asked(self, net: Net, z: Parts, first: Parts, batch: Batch, names: list[str]) -> Parts:
        """The supervised first answer: from the prior, or for a part whose coin says so from the true label."""
        if not batch.coins:
            return first.pick(*names)
        labels, kept = batch.labels.pick(*names), first.pick(*names)
        prior = torch.full_like(kept.rows, 1 / kept.rows.shape[1])
        one_hot = F.one_hot(labels.rows, kept.rows.shape[1]).to(prior.dtype)
        coins = torch.cat([batch.coins[name].expand(size) for name, size in labels.sizes.items()])
        return net.decode(
            z.pick(*names), kept.like(torch.where((coins > self.prior_probability)[:, None], one_hot, prior))
        )

    def _fixed_point(self, teacher: Net, first: Parts, batch: Batch) -> Terms:
        """The distance of the current answer to what the previous task's net makes of it, part by part."""
        weights = {CURRENT: self.current_weight, DISTILL: self.memory_weight}
        weights = {name: weight for name, weight in weights.items() if weight and name in first}
        if not weights:
            return {}
        answer = first.pick(*weights)
        target = teacher.decode(teacher.encode(batch.images.pick(*weights)), answer.like(probabilities(answer.rows)))
        return {
            f"fixed_point/{name}": weight * self._distance(answer[name], target[name])
            for name, weight in weights.items()
        }

    def _distance(self, answer: Tensor, target: Tensor) -> Tensor:
        return DISTANCES[self.distance](answer, target if self.teacher_gradient else target.detach())
