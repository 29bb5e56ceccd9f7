"""The head of NPCL, a neural process: from a set of labelled features to latents of the stream and of each task.

Shape legend: B elements, W sets made of them, K tasks, N draws, M rows of context, F features, C classes, L latent.
A set is a number an element, how often the element is in it: so sets of every size have one shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ALL = slice(None)
LEAST = 0.01  # what is added to every standard deviation
NEVER = -1e9  # finite, so that an empty set has no gradient that is not a number


@dataclass(frozen=True)
class Normal:
    """Independent normal distributions."""

    mean: Tensor
    std: Tensor

    def __getitem__(self, which: object) -> "Normal":
        return Normal(self.mean[which], self.std[which])  # type: ignore[index]

    def at(self, numbers: Tensor) -> Tensor:
        """The values that standard normal numbers become."""
        return self.mean + self.std * numbers

    def divergence(self, other: "Normal") -> Tensor:
        """KL(self || other), summed over the last dimension."""
        spread = (self.std / other.std).square() + ((self.mean - other.mean) / other.std).square()
        return (spread / 2 - 0.5 + other.std.log() - self.std.log()).sum(-1)


class TaskLinear(nn.Module):
    """A linear layer for each of K tasks, or for those that are asked for."""

    def __init__(self, tasks: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = math.sqrt(6 / (inputs + outputs))  # Xavier's
        self.weight = nn.Parameter(torch.empty(tasks, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(tasks, 1, outputs))

    def forward(self, x: Tensor, tasks: slice = ALL) -> Tensor:
        """... x K x B x inputs to ... x K x B x outputs."""
        return x @ self.weight[tasks] + self.bias[tasks]


class TaskNorm(nn.Module):
    """Layer normalisation with weights for each of K tasks."""

    def __init__(self, tasks: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(tasks, 1, width))
        self.bias = nn.Parameter(torch.zeros(tasks, 1, width))

    def forward(self, x: Tensor, tasks: slice = ALL) -> Tensor:
        """Any ... x K x B x width."""
        return F.layer_norm(x, x.shape[-1:]) * self.weight[tasks] + self.bias[tasks]


class Attention(nn.Module):
    """Attention in several heads, O = Q + softmax(Q K' / sqrt(L)) V, and then O + ReLU(linear O)."""

    def __init__(self, tasks: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (TaskLinear(tasks, width, width) for _ in range(4))

    def forward(self, inputs: tuple[Tensor, Tensor, Tensor], counts: Tensor, tasks: slice = ALL) -> Tensor:
        """Queries, keys and values (... x K x B x L) to what is found; `counts` (... x K x B) are of the keys."""
        layers = (self.query, self.key, self.value)
        query, key, value = (self._split(layer(x, tasks)) for layer, x in zip(layers, inputs, strict=True))
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.heads * query.shape[-1])
        often = torch.where(counts > 0, counts.clamp(min=1e-6).log(), NEVER)
        found = query + (scores.float() + often[..., None, None, :]).softmax(-1).to(value.dtype) @ value
        merged = found.transpose(-2, -3).flatten(-2)
        after: Tensor = merged + F.relu(self.out(merged, tasks))
        return after

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(-2, -3)


class Latent(nn.Module):
    """A hidden layer, and from it the mean and the standard deviation of a normal distribution."""

    def __init__(self, tasks: int, inputs: int, width: int) -> None:
        super().__init__()
        self.hidden, self.norm = TaskLinear(tasks, inputs, width), TaskNorm(tasks, width)
        self.mean, self.log_std = (TaskLinear(tasks, width, width) for _ in range(2))

    def forward(self, x: Tensor, tasks: slice = ALL) -> Normal:
        """... x K x inputs to distributions of ... x K x L."""
        h = F.relu(self.norm(self.hidden(x[..., None, :], tasks), tasks))
        mean, log_std = (layer(h, tasks).squeeze(-2).float() for layer in (self.mean, self.log_std))
        return Normal(mean, log_std.exp() + LEAST)


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers, each followed by layer normalisation and ReLU."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class Sizes:
    """How wide the head is."""

    latent: int = 128
    heads: int = 4
    decoder: int = 512


class NeuralProcess(nn.Module):
    """What a set says of the stream (`whole`) and of each task (`own`), and the answer to features given that."""

    old_whole_mean: Tensor
    old_whole_std: Tensor
    old_own_mean: Tensor
    old_own_std: Tensor

    def __init__(self, classes: int, features: int, tasks: int, sizes: Sizes) -> None:
        super().__init__()
        width, heads, labelled = sizes.latent, sizes.heads, features + classes
        self.classes, self.tasks = classes, tasks
        self.element, self.value = perceptron(labelled, width, width), perceptron(labelled, width, width)
        self.key, self.query = perceptron(features, width), perceptron(features, width)
        self.task_attention = nn.ModuleList(Attention(tasks, width, heads) for _ in range(2))
        self.attention, self.cross = (nn.ModuleList(Attention(1, width, heads) for _ in range(2)) for _ in range(2))
        self.whole, self.own = Latent(1, width, width), Latent(tasks, 2 * width, width)
        self.decoder = perceptron(features + 2 * width, sizes.decoder, sizes.decoder)
        self.answer = nn.Linear(sizes.decoder, classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for name in ("whole", "own"):  # posteriors of past tasks, averaged; one that is not yet there is standard
            self.register_buffer(f"old_{name}_mean", torch.zeros(tasks, width))
            self.register_buffer(f"old_{name}_std", torch.ones(tasks, width))

    @property
    def old_whole(self) -> Normal:
        """What the training set of each task said of the stream as it then was, on average (K x L)."""
        return Normal(self.old_whole_mean, self.old_whole_std)

    @property
    def old_own(self) -> Normal:
        """What it said of its own task (K x L)."""
        return Normal(self.old_own_mean, self.old_own_std)

    def look(
        self, samples: tuple[Tensor, Tensor], sets_WB: Tensor, of_task_KB: Tensor, tasks: slice = ALL
    ) -> tuple[Normal, Tensor]:
        """What sets of features and labels say: of the stream (W x L), and a summary of each task (W x K x L)."""
        elements_BL = self.element(self._labelled(*samples))
        shared, counts_WKB = sets_WB[:, None], sets_WB[:, None] * of_task_KB
        x = elements_BL.expand(*shared.shape, -1)
        for attention in self.attention:
            x = attention((x, x, x), shared)
        whole = self.whole(_mean(x, shared))[:, 0]
        x = elements_BL.expand(*counts_WKB.shape, -1)
        for attention in self.task_attention:
            x = attention((x, x, x), counts_WKB, tasks)
        return whole, _mean(x, counts_WKB)

    def own_posterior(self, summary: Tensor, z: Tensor, tasks: slice = ALL) -> Normal:
        """What summaries (... x K x L) say of their tasks, given values of the stream's latent (... x K x L)."""
        posterior: Normal = self.own(torch.cat([summary.float().expand(z.shape), z], -1), tasks)
        return posterior

    def relate(
        self, features_BF: Tensor, context: tuple[Tensor, Tensor], counts_M: Tensor, keep: Sequence[Tensor] = ()
    ) -> Tensor:
        """What features find in a context of features and labels (B x L); `keep` multiplies keys and queries."""
        key, query, value = self.key(context[0]), self.query(features_BF), self.value(self._labelled(*context))
        if keep:
            key, query = key * keep[0], query * keep[1]
        found: Tensor = query[None]
        for attention in self.cross:
            found = attention((found, key[None], value[None]), counts_M[None])
        return found[0]

    def decode(self, features_BF: Tensor, relation_BL: Tensor, v_NBL: Tensor) -> Tensor:
        """The logits of each draw (N x B x C)."""
        given = torch.cat([features_BF.float(), relation_BL.float()], -1).expand(len(v_NBL), -1, -1)
        logits: Tensor = self.answer(self.decoder(torch.cat([given, v_NBL], -1)))
        return logits.float()

    def _labelled(self, features: Tensor, labels: Tensor) -> Tensor:
        return torch.cat([features.float(), F.one_hot(labels, self.classes).float()], -1)


def _mean(x: Tensor, counts: Tensor) -> Tensor:
    """The mean over the elements of each set; zero for an empty one."""
    return (x.float() * counts[..., None]).sum(-2) / counts.sum(-1, keepdim=True).clamp(min=1)


def normal_numbers(uniform: Tensor) -> Tensor:
    """Standard normal numbers from uniform ones."""
    return math.sqrt(2) * torch.erfinv(2 * uniform.clamp(1e-6, 1 - 1e-6) - 1)


def context_of(numbers_B: Tensor, labels_B: Tensor, least: int) -> Tensor:
    """Which elements are the context (0 or 1): one of each label, then others by chance up to `least` in all."""
    rank = torch.argsort(torch.argsort(numbers_B))
    rivals_BB = (labels_B[:, None] == labels_B) & (rank < rank[:, None])
    chosen = ~rivals_BB.any(1)
    place = torch.argsort(torch.argsort(rank + len(rank) * ~chosen))
    return (place < chosen.sum().clamp(min=least)).float()


def surest(logits_KNBC: Tensor, of_probabilities: bool = False) -> Tensor:
    """Of K answers to each row that with the lowest mean entropy over the draws, averaged over them (B x C)."""
    log_p = logits_KNBC.log_softmax(-1)
    entropy_KB = -(log_p.exp() * log_p).sum(-1).mean(1)
    # The logarithm of a mean of probabilities, of which none may vanish on the way.
    mean_KBC = log_p.logsumexp(1) - math.log(log_p.shape[1]) if of_probabilities else logits_KNBC.mean(1)
    chosen: Tensor = mean_KBC[entropy_KB.argmin(0), torch.arange(mean_KBC.shape[1], device=mean_KBC.device)]
    return chosen
