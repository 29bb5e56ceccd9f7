"""Heads: features to logits, and how a head widens when classes come that it has no output for.

Shape legend: B rows, D features, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CosineHead(nn.Module):
    """The cosine between features and a given vector a class, times one learnt scale (LUCIR).

    Only the classes of the mask `learning` learn, and the scale.
    """

    learning: Tensor

    def __init__(self, weight_CD: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_CD)
        self.scale = nn.Parameter(weight_CD.new_ones(()))
        self.register_buffer("learning", torch.ones(len(weight_CD), dtype=torch.bool, device=weight_CD.device))

    @property
    def in_features(self) -> int:
        """The number of features."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """The number of classes."""
        return len(self.weight)

    def cosines(self, features_BD: Tensor) -> Tensor:
        """The cosines alone."""
        weight_CD = torch.where(self.learning[:, None], self.weight, self.weight.detach())
        return F.linear(F.normalize(features_BD, dim=1), F.normalize(weight_CD, dim=1))

    def forward(self, features_BD: Tensor) -> Tensor:
        """Features to logits."""
        return self.scale * self.cosines(features_BD)


class NoHead(nn.Module):
    """In the place of a head where a method answers from the features by itself: it knows nothing of any class."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.in_features, self.out_features = features, classes

    def forward(self, features_BD: Tensor) -> Tensor:
        """Features to logits that are all alike."""
        return features_BD.new_zeros(len(features_BD), self.out_features)


Head = nn.Linear | CosineHead | NoHead


def make_head(kind: str, features: int, classes: int) -> Head:
    """A `linear` or a `cosine` head, both drawn alike, or `none`."""
    if kind == "none":
        return NoHead(features, classes)
    if kind == "linear":
        return nn.Linear(features, classes)
    bound = features**-0.5
    return CosineHead(torch.empty(classes, features).uniform_(-bound, bound))


@torch.no_grad()
def grown(head: Head, classes: int, generator: torch.Generator) -> Head:
    """The head with more classes: its answers for the old ones stay, new ones are drawn like those of a new head."""
    if isinstance(head, NoHead):
        return NoHead(head.in_features, classes)
    old, features = head.weight.shape
    bound = features**-0.5  # the default initialisation of torch.nn.Linear
    rows = torch.empty(classes - old, features + 1).uniform_(-bound, bound, generator=generator).to(head.weight)
    weight = torch.cat([head.weight, rows[:, :-1]])
    if isinstance(head, nn.Linear):
        return linear(weight, torch.cat([head.bias, rows[:, -1]]), head.weight.requires_grad)
    new = CosineHead(weight)
    new.scale.copy_(head.scale)
    new.learning[:old] = head.learning
    return new.requires_grad_(head.weight.requires_grad)


@torch.no_grad()
def linear(weight: Tensor, bias: Tensor, learns: bool) -> nn.Linear:
    """A linear layer of given weights; nothing is drawn on the way."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], dtype=weight.dtype)  # type: ignore
    layer = layer.to(weight.device)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)
    return layer.requires_grad_(learns)
