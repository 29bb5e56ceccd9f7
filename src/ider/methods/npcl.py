"""NPCL: ER whose head is a neural process, with a latent of the stream, one of each task, and draws of both.

Shape legend as in `npcl_head`; a context is a part of a batch, its targets are the whole batch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ider.errors import UserError
from ider.methods.base import Supervised
from ider.methods.er import REPLAY
from ider.methods.npcl_head import ALL, NeuralProcess, Normal, Sizes, context_of, normal_numbers, surest
from ider.options import option, validate
from ider.protocols import Desk, Net, Predict
from ider.types import CURRENT, TASKS, Batch, Draw, Needs, Outcome, Side, Terms

LAST = slice(-1, None)  # the present task


@dataclass(frozen=True, kw_only=True)
class NPCL(Supervised):
    """Learns from several draws of latents at once, and keeps what a batch says of them close to what its context says.

    Replayed batches must go on saying of the stream and of past tasks what these said when they ended. A prediction has
    the memory as its context, and comes from the task whose draws are least uncertain.
    """

    labelled = ()
    apart = "its logits are draws of a random variable, so an answer cannot be compared with an earlier one"
    draws: int = option(15, "draws of the latents in training (N)", least=1)
    test_draws: int = option(15, "draws of the latents in a prediction", least=1)
    context: float = option(
        0.125, "share of a batch that is its context (rho); one image a class at least", least=0, most=1
    )
    stream_weight: float = option(
        0.01, "weight of the divergence of the stream's latent from the context's (lambda_G)", least=0
    )
    task_weight: float = option(0.05, "weight of the same for the latents of tasks (lambda_T)", least=0)
    past_stream_weight: float = option(
        0.08, "weight of the stream's divergence from what past tasks said of it (gamma_G)", least=0
    )
    past_task_weight: float = option(0.1, "weight of past tasks' divergence from what they were (gamma_T)", least=0)
    warm_up: float = option(0.5, "share of a task's steps in which the learning rate climbs", least=0, most=1)
    clip: float = option(1.0, "largest norm of the gradient; 0: any, as released", least=0)
    latent: int = option(128, "width of latents and attention (L)", least=1)
    heads: int = option(4, "heads of the attention", least=1)
    decoder: int = option(512, "width of the decoder", least=1)
    dropout: float = option(0.25, "share of keys and queries of the context left out in training", least=0, most=0.99)
    augmented_context: bool = option(True, "augment the memory as in training when it is a prediction's context")
    averaged: Literal["logits", "probabilities"] = option("logits", "what of the draws is averaged in a prediction")

    def __post_init__(self) -> None:
        validate(self)
        if self.latent % self.heads:
            raise UserError(f"heads is {self.heads}; it must divide latent, which is {self.latent}")

    def needs(self) -> Needs:
        """One draw from the memory, the head as a module that lasts, and a look at the memory in predictions."""
        return Needs(
            draws=(Draw(REPLAY),),
            side=Side(lasting=True),
            head="none",
            disjoint=True,
            recalls=True,
            warm_up=self.warm_up,
            clip=self.clip,
        )

    def side(self, classes: int, features: int, tasks: int) -> NeuralProcess:
        """The neural process."""
        return NeuralProcess(classes, features, tasks, Sizes(self.latent, self.heads, self.decoder))

    def noise(self, classes: int, features: int) -> Mapping[str, tuple[int | str, ...]]:
        """By part: who is the context, which keys and queries are left out, and the draws of both latents."""
        shapes: dict[str, tuple[int | str, ...]] = {}
        for part, tasks in ((CURRENT, 1), (REPLAY, TASKS)):
            shapes[f"context/{part}"] = (part,)
            shapes[f"dropout/{part}"] = (2, part, self.latent)
            shapes[f"draws/{part}"] = (2, self.draws, tasks, self.latent)
        return shapes

    def step(self, net: Net, teacher: Net | None, batch: Batch) -> Outcome:
        """The same terms of the current and of the replayed images, and for these the divergence from the past."""
        features = net.decode(net.encode(batch.images)).features
        terms: Terms = {}
        for part in (CURRENT, REPLAY):
            if part in features:
                terms |= self._terms(part, features[part].float(), batch)
        return Outcome(terms)

    @torch.no_grad()
    def after_task(self, desk: Desk) -> None:
        """Note what the task's batches, each with one from the memory, say of the stream and of the task on average."""
        head, task, kept = _head(desk.side), desk.task, desk.remembered()
        new, old = (desk.answers(some, True, "batch").features.rows for some in (task, kept))
        found = []
        for chosen in desk.batches(task):
            others = desk.rng.choice(len(kept), min(len(kept), len(chosen)), replace=False)
            beside = torch.from_numpy(others).to(chosen.device)
            labels = torch.cat([task.labels[chosen], kept.labels[beside]])
            features = torch.cat([new[chosen], old[beside]])
            own = (desk.classes.task_of[labels] == head.tasks - 1).float()[None]
            whole, summary = head.look((features, labels), torch.ones_like(own), own, LAST)
            z = whole.at(_numbers(desk, (1, self.latent), whole.mean))
            posterior = head.own_posterior(summary[0], z, LAST)
            found.append(torch.stack([whole.mean[0], whole.std[0], posterior.mean[0], posterior.std[0]]))
        buffers = (head.old_whole_mean, head.old_whole_std, head.old_own_mean, head.old_own_std)
        for buffer, values in zip(buffers, torch.stack(found).mean(0), strict=True):
            buffer[-1] = values

    @torch.no_grad()
    def predictor(self, desk: Desk) -> Predict:
        """Draw the latents given the whole memory; each image then takes the draws of the task that is surest of it."""
        head, kept = _head(desk.side), desk.remembered()
        context = desk.answers(kept, self.augmented_context).features.rows, kept.labels
        everything = torch.ones_like(kept.labels, dtype=torch.float32)
        v_of_tasks = self._recalled(head, context, desk)

        def predict(logits: Tensor, features: Tensor) -> Tensor:
            relation = head.relate(features, context, everything)
            wide = (-1, len(features), -1)
            found = [head.decode(features, relation, v[:, None].expand(wide)) for v in v_of_tasks]
            return surest(torch.stack(found), self.averaged == "probabilities")

        return predict

    def _recalled(self, head: NeuralProcess, context: tuple[Tensor, Tensor], desk: Desk) -> list[Tensor]:
        """Draws (N x L) of the latent of each task that the memory knows."""
        task_of, everything = desk.classes.task_of[context[1]], torch.ones_like(context[1], dtype=torch.float32)[None]
        numbers = _numbers(desk, (2, self.test_draws, head.tasks, self.latent), context[0])
        found = []
        for number in sorted(set(task_of.tolist())):
            only = slice(number, number + 1)
            whole, summary = head.look(context, everything, (task_of == number).float()[None], only)
            own = head.own_posterior(summary[0], whole.at(numbers[0, :, only]), only)
            found.append(own.at(numbers[1, :, only])[:, 0])
        return found

    def _terms(self, part: str, features: Tensor, batch: Batch) -> Terms:
        """The cross-entropy of all draws, and the divergences."""
        head, labels, replayed = _head(batch.side), batch.labels[part], part == REPLAY
        tasks = ALL if replayed else LAST
        chosen = context_of(batch.noise[f"context/{part}"], labels, math.ceil(self.context * len(labels)))
        # Current images of the context are targets twice, as they are laid before the batch in the released code.
        targets = torch.ones_like(chosen) if replayed else 1 + chosen
        first = 0 if replayed else head.tasks - 1
        place = batch.classes.task_of[labels] - first
        own = (place == torch.arange(head.tasks - first, device=place.device)[:, None]).float()
        whole, summary = head.look((features, labels), torch.stack([targets, chosen]), own, tasks)
        draws = normal_numbers(batch.noise[f"draws/{part}"])
        said = head.own_posterior(summary[0], whole[0].at(draws[0]), tasks)
        hinted = head.own_posterior(summary[1], whole[1].at(draws[0, -1]), tasks)
        dropped = batch.noise[f"dropout/{part}"]
        keep = tuple((dropped >= self.dropout).float() / (1 - self.dropout))
        relation = head.relate(features, (features, labels), chosen, keep)
        logits = head.decode(features, relation, said.at(draws[1]).index_select(1, place))
        there = own.amax(1)
        terms = {
            part: _cross_entropy(logits, labels, targets),
            f"stream/{part}": self.stream_weight * whole[0].divergence(whole[1]),
            f"tasks/{part}": self.task_weight * (there * said[-1].divergence(hinted)).sum(),
        }
        return terms | self._past(whole[0], said[-1], there, head) if replayed and head.tasks > 1 else terms

    def _past(self, whole: Normal, own: Normal, there: Tensor, head: NeuralProcess) -> Terms:
        """How far a replayed batch is from what past tasks said of the stream, and of themselves if they are in it."""
        past = slice(head.tasks - 1)
        stream, tasks = whole.divergence(head.old_whole[past]), own[past].divergence(head.old_own[past])
        return {
            "past/stream": self.past_stream_weight * stream.sum(),
            "past/tasks": self.past_task_weight * (there[past] * tasks).sum(),
        }


def _cross_entropy(logits_NBC: Tensor, labels_B: Tensor, counts_B: Tensor) -> Tensor:
    """The mean over draws and over rows, each counted so often."""
    draws = len(logits_NBC)
    losses = F.cross_entropy(logits_NBC.flatten(0, 1), labels_B.repeat(draws), reduction="none")
    return (losses * counts_B.repeat(draws)).sum() / (draws * counts_B.sum())


def _numbers(desk: Desk, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Standard normal numbers of the desk."""
    return torch.from_numpy(desk.rng.standard_normal(shape)).to(like)


def _head(side: object) -> NeuralProcess:
    assert isinstance(side, NeuralProcess)
    return side
