"""`<method>+id`: idempotence on top of any method whose supervised part is a cross-entropy (IDER).

The net learns to answer alike from the prior and from its own answer, f(x, 0) = f(x, f(x, 0)) = y, and the frozen
net of the previous task, given the current answer, must return it unchanged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ider.errors import UserError
from ider.losses import logit_kl, logit_mse, probabilities
from ider.meanwhile import meanwhile
from ider.methods.base import Supervised
from ider.methods.er import ER
from ider.options import option, validate
from ider.protocols import Desk, Method, Net, Predict
from ider.types import CURRENT, Batch, Draw, Needs, Outcome, Parts, Teacher, Terms

DISTILL = "distill"
DISTANCES = {"mse": logit_mse, "kl": logit_kl}


@dataclass(frozen=True, kw_only=True)
class Idempotent:
    """Every cross-entropy of `base` for the first and the second answer, and fixed-point terms from task two on."""

    base: Supervised = field(default_factory=lambda: ER(mixed=False), metadata={"help": "the method underneath"})
    answer_weight: float = option(0.5, "weight of each of the two answers' cross-entropies", least=0)
    second_answers: bool = option(True, "whether the second answers have cross-entropies as well")
    current_weight: float = option(0.4, "weight of the fixed-point term on current images", least=0)
    memory_weight: float = option(0.5, "weight of the fixed-point term on images from the memory", least=0)
    prior_probability: float = option(
        1.0, "chance, per batch and part, that the first answer starts from the prior, not the label", least=0, most=1
    )
    distance: Literal["mse", "kl"] = option("mse", "distance between an answer and the teacher's: mse (logits) or kl")
    teacher_statistics: Literal["batch", "running"] = option(
        "batch", "how the teacher normalises: by its batch or by its running statistics"
    )
    teacher_of: str = option(
        "", "the running mean (such as stable, of CLS-ER) that is frozen as the teacher; none: the net"
    )
    teacher_lives: bool = option(False, "that mean teaches as it is, not as the previous task left it")
    teacher_gradient: bool = option(True, "let the gradient flow through the teacher's second input")

    def __post_init__(self) -> None:
        validate(self)
        self._check_base(self.base.needs(), type(self.base).__name__)
        self._check_teacher(self.base.needs())

    def _check_base(self, base: Needs, name: str) -> None:
        """Refuse a method that cannot be made idempotent, or not as the settings say."""
        if base.joined:
            raise UserError("+id needs a stream of tasks, but the method underneath learns all of them at once")
        if not self.base.labelled:
            raise UserError(f"+id asks for a cross-entropy of two answers, which {name} cannot give: {self.base.apart}")
        if type(self.base).step is not Supervised.step:
            raise UserError(f"+id makes a step of supervised and further, but {name} has a step of its own")
        if DISTILL in [draw.name for draw in base.draws]:
            raise UserError(f"+id has a draw {DISTILL!r} of its own; {name} must give its draw another name")
        if self.prior_probability < 1 and (tossed := sorted(set(base.coins) & set(self._labelled()))):
            raise UserError(
                f"prior_probability is {self.prior_probability}, but the method underneath tosses the coins of "
                f"{', '.join(tossed)} itself; it must be 1"
            )

    def _check_teacher(self, base: Needs) -> None:
        """Refuse a teacher that is not there, or not the one that the method underneath needs."""
        if base.teacher is not None and base.teacher.statistics != self.teacher_statistics:
            raise UserError(
                f"teacher_statistics is {self.teacher_statistics!r}, but the method underneath needs the other"
            )
        means = [item.name for item in base.averages]
        if self.teacher_of and (self.teacher_of not in means or base.teacher is not None):
            allowed = ", ".join(means) if base.teacher is None and means else "none"
            raise UserError(f"teacher_of is {self.teacher_of!r}; the method underneath has the means: {allowed}")
        if self.teacher_lives and not self.teacher_of:
            raise UserError("teacher_lives is true, but teacher_of does not say which running mean teaches")

    def needs(self) -> Needs:
        """What the base needs, a second and independent draw from the memory, and the net of the previous task."""
        base = self.base.needs()
        frozen = (self.current_weight or self.memory_weight) and not self.teacher_lives
        own = Teacher(self.teacher_statistics, self.teacher_of) if frozen else None
        return replace(
            base,
            draws=(*base.draws, Draw(DISTILL, later=True)) if self.memory_weight else base.draws,
            teacher=base.teacher or own,
            coins=(*base.coins, *(() if self.prior_probability == 1 else self._labelled())),
            second_input=True,
        )

    def step(self, net: Net, teacher: Net | None, batch: Batch) -> Outcome:
        """All parts in one pass; with the prior as second input the supervised and the fixed-point answer are one.

        If the base mixes its parts they count as one batch, and those of the fixed point as one of their own.
        """
        batch = replace(batch, images=replace(batch.images, alone=(DISTILL,)))
        aside = self.base.aside(net, batch)
        # A living teacher's statistics are those of what the base shows it.
        old = net.average(self.teacher_of).untracked() if self.teacher_lives else teacher
        fixed_point = self._fixed_point(old, batch)
        z, keep = net.encode(batch.images), self.base.keep(batch)
        first = net.decode(z, keep=keep)
        own = first.pick(*(name for name in first.logits.sizes if name != DISTILL))
        kept = None if keep is None else batch.images.like(keep).pick(*self.base.labelled).rows
        fixed = meanwhile(lambda: fixed_point(first.logits), first.logits)
        answers = {"first": self._asked(net, z, first.logits, batch, kept)}
        if self.second_answers:
            asked = answers["first"]
            answers["second"] = net.decode(z.pick(*asked.sizes), asked.like(probabilities(asked.rows)), kept).logits
        terms = {
            f"{which}/{name}": self.answer_weight * term
            for which, logits in answers.items()
            for name, term in self.base.supervised(logits, batch).items()
        }
        terms |= self.base.further(aside or own, (net, teacher), batch) | fixed()
        return Outcome(terms, self.base.kept(own), self.base.revised(own, batch), self.base.counted(own, batch))

    def _labelled(self) -> tuple[str, ...]:
        drawn = {CURRENT, *(draw.name for draw in self.base.needs().draws)}
        return tuple(name for name in self.base.labelled if name in drawn)

    def _asked(self, net: Net, z: Parts, first: Parts, batch: Batch, keep: Tensor | None) -> Parts:
        """The supervised first answer: from the prior, or for a part whose coin says so from the true label."""
        kept = first.pick(*self.base.labelled)
        if self.prior_probability == 1:
            return kept
        labels = batch.labels.pick(*kept.sizes)
        prior = torch.full_like(kept.rows, 1 / kept.rows.shape[1])
        one_hot = F.one_hot(labels.rows, kept.rows.shape[1]).to(prior.dtype)
        coins = torch.cat([batch.coins[name].expand(size) for name, size in labels.sizes.items()])
        second_input = kept.like(torch.where((coins > self.prior_probability)[:, None], one_hot, prior))
        return net.decode(z.pick(*kept.sizes), second_input, keep).logits

    def _fixed_point(self, old: Net | None, batch: Batch) -> Callable[[Parts], Terms]:
        """What makes the terms of the first answers, part by part; the old net sees its images meanwhile."""
        weights = {CURRENT: self.current_weight, DISTILL: self.memory_weight}
        weights = {name: weight for name, weight in weights.items() if weight and name in batch.images}
        if old is None or not weights:
            return lambda first: {}
        images = batch.images.pick(*weights)
        z = meanwhile(lambda: old.encode(images), images)

        def distances(first: Parts) -> Terms:
            answer = first.pick(*weights)
            target = old.decode(z(), answer.like(probabilities(answer.rows))).logits
            begun = batch.classes.past.any() if self.teacher_lives else 1  # a mean is there before
            return {
                f"fixed_point/{name}": weight * begun * self._distance(answer[name], target[name])
                for name, weight in weights.items()
            }

        return distances

    def _distance(self, answer: Tensor, target: Tensor) -> Tensor:
        return DISTANCES[self.distance](answer, target if self.teacher_gradient else target.detach())

    # What is not a step is the base's own.

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """The base's tensors."""
        return self.base.state(weights, classes, features)

    def side(self, classes: int, features: int, tasks: int) -> nn.Module | None:
        """The base's module beside the net."""
        return self.base.side(classes, features, tasks)

    def noise(self, classes: int, features: int) -> Mapping[str, tuple[int | str, ...]]:
        """The base's random numbers."""
        return self.base.noise(classes, features)

    def before_task(self, desk: Desk) -> None:
        """What the base does before a task."""
        self.base.before_task(desk)

    def after_epoch(self, desk: Desk, epoch: int) -> None:
        """What the base does after an epoch."""
        self.base.after_epoch(desk, epoch)

    def after_task(self, desk: Desk) -> None:
        """What the base does after a task."""
        self.base.after_task(desk)

    def predict(self, logits: Tensor, features: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The base's prediction."""
        return self.base.predict(logits, features, state)

    def predictor(self, desk: Desk) -> Predict:
        """The base's prediction after a look at the memory."""
        return self.base.predictor(desk)


def idempotent(method: Method) -> Idempotent:
    """`+id` as it is by default: parts kept apart, and a teacher that normalises as the method's own does."""
    if not isinstance(method, Supervised):
        raise UserError(f"+id needs a method that derives from Supervised, and {type(method).__name__} does not")
    base: Any = method
    if base.needs().mixed and "mixed" in [item.name for item in fields(base)]:
        base = replace(base, mixed=False)
    teacher = base.needs().teacher
    return Idempotent(base=base, teacher_statistics=teacher.statistics if teacher else "batch")
