"""The two-input net f(x, y): a lower half sees the image, a label feature is added to its map, an upper half answers.

Shape legend: B rows, C classes, D features, c h w: the map at the cut.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ider.nets.heads import Head, grown, linear, make_head
from ider.nets.norm import PartNorm2d, runs_kernels
from ider.nets.winners import winners
from ider.types import Answer, Parts, Sparsity, Teacher


@dataclass(frozen=True)
class Shape:
    """What a builder makes a net from. `split` blocks lie below the cut; 0 leaves that to the net."""

    image: Sequence[int]
    classes: int
    width: int
    split: int = 0
    label_input: bool = True
    head: str = "linear"
    sparsity: Sparsity | None = None


class Stack(nn.ModuleList):
    """Blocks in a row; each is called with the map and the sizes of the parts in it."""

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None, keep: Tensor | None = None) -> Tensor:
        """Send the map through all blocks; `keep` is for the last activation of a sparse net."""
        for block in self:
            x = block(x, sizes) if not isinstance(block, StageEnd) else block(x, keep if block.last else None)
        return x


class StageEnd(nn.Module):
    """Where a stage of a sparse net ends: channels may be masked, and the winners stay."""

    def __init__(self, sparsity: Sparsity, stage: int, last: bool) -> None:
        super().__init__()
        self.sparsity, self.stage, self.last = sparsity, stage, last

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """Map to map; `keep` (rows x channels) multiplies it first."""
        return winners(x if keep is None else x * keep[:, :, None, None].to(x.dtype), self.sparsity, self.stage)


class AveragePool(nn.Module):
    """The mean over the map."""

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Map to features."""
        if self.training and runs_kernels(x):
            from ider.nets.map_kernels import MeanOfMap  # which needs Triton

            mean: Tensor = MeanOfMap.apply(x)  # type: ignore[no-untyped-call]
            return mean
        return F.avg_pool2d(x, x.shape[2:]).flatten(1)  # its gradient keeps the layout of the map


class Flatten(nn.Module):
    """The map as it is, place by place."""

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Map to features."""
        return x.flatten(1)


class TwoInputNet(nn.Module):
    """`encode(x)` gives the map at the cut, `decode(z, y)` the logits; `y` is a distribution, None the uniform prior.

    Without `label_input` the net is the ordinary one: `decode` ignores `y`, so every second answer is the first.
    """

    def __init__(self, lower: Stack, upper: Stack, channels: tuple[int, int], shape: Shape) -> None:
        super().__init__()
        cut, features = channels
        self.lower, self.upper = lower, upper
        self.head: Head = make_head(shape.head, features, shape.classes)
        self.label = nn.Linear(shape.classes, cut) if shape.label_input else None

    @property
    def classes(self) -> int:
        """The width of the head."""
        return self.head.out_features

    @property
    def features_out(self) -> int:
        """How many features the head sees."""
        return self.head.in_features

    def encode(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Images to the map at the cut; `sizes` are the parts whose statistics stay separate."""
        map_Bchw: Tensor = self.lower(x, sizes)
        return map_Bchw

    def features(
        self,
        z: Tensor,
        y: Tensor | None = None,
        sizes: Sequence[int] | None = None,
        keep: Tensor | None = None,
    ) -> Tensor:
        """What the head sees."""
        features_BD: Tensor = self.upper(self._with_label(z, y), sizes, keep)
        return features_BD

    def decode(self, z: Tensor, y: Tensor | None = None, sizes: Sequence[int] | None = None) -> Tensor:
        """The map at the cut and a second input to logits over all classes of the head."""
        logits_BC: Tensor = self.head(self.features(z, y, sizes))
        return logits_BC

    def _with_label(self, z: Tensor, y: Tensor | None) -> Tensor:
        """The map plus the feature of the second input, which is the same at all places."""
        if self.label is None:
            return z
        if y is None:
            y = z.new_full((1, self.classes), 1 / self.classes)
        feature: Tensor = F.leaky_relu(self.label(y), 0.01)
        if self.training and runs_kernels(z):
            from ider.nets.map_kernels import AddToMap  # which needs Triton

            both: Tensor = AddToMap.apply(z, feature)  # type: ignore[no-untyped-call]
            return both
        return z + feature[:, :, None, None]

    @torch.no_grad()
    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Widen the head and the label input to `classes`, so that what is known stays as it is.

        The answers for the old classes do not move, neither for the prior nor for any distribution over the old
        classes: a new class enters the label input with the mean of the old columns, as if it said nothing.
        """
        new = classes - self.classes
        self.head = grown(self.head, classes, generator)
        if self.label is not None:
            weight, learns = self.label.weight, self.label.weight.requires_grad
            columns = weight.mean(1, keepdim=True).expand(-1, new)
            self.label = linear(torch.cat([weight, columns], 1), self.label.bias, learns)

    def frozen(self, statistics: str, dtype: torch.dtype | None = None) -> "TwoInputNet":
        """A copy that never learns, normalising by the statistics of its `batch` or by its `running` ones.

        Its convolutions may be kept in the `dtype` that they are computed in, so that no step has to convert them.
        """
        teacher = copy.deepcopy(self).requires_grad_(False).train(statistics == "batch")
        for norm in teacher.norms():
            norm.tracking = False
        for module in teacher.modules():
            if isinstance(module, nn.Conv2d):
                module.to(dtype)
        return teacher

    def averaged(self) -> "TwoInputNet":
        """A copy whose weights do not learn by themselves; it normalises by its batches, whose statistics it tracks."""
        return copy.deepcopy(self).requires_grad_(False).train()

    def norms(self) -> Iterator[PartNorm2d]:
        """All layers of normalisation."""
        return (module for module in self.modules() if isinstance(module, PartNorm2d))

    @contextmanager
    def untracked(self) -> Iterator[None]:
        """Within, running statistics do not move."""
        before = [(norm, norm.tracking) for norm in self.norms()]
        try:
            for norm, _ in before:
                norm.tracking = False
            yield
        finally:
            for norm, tracking in before:
                norm.tracking = tracking


class View:
    """A net as a method sees it: parts in, parts out."""

    def __init__(
        self,
        net: TwoInputNet,
        teacher: Teacher | None = None,
        tracking: bool = True,
        averages: Mapping[str, TwoInputNet] | None = None,
    ) -> None:
        self._net, self._frozen, self._tracking = net, teacher is not None, tracking
        self._averages = averages or {}

    def encode(self, images: Parts) -> Parts:
        """All parts through the lower half at once; a teacher's lower half leaves no graph behind."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._frozen), self._statistics():
            return images.like(self._net.encode(images.rows, images.groups))

    def decode(self, z: Parts, y: Parts | None = None, keep: Tensor | None = None) -> Answer:
        """All parts through the upper half at once; without `y` the second input is the prior."""
        with self._statistics():
            features = self._net.features(z.rows, None if y is None else y.rows, z.groups, keep)
        return Answer(z.like(self._net.head(features)), z.like(features))

    def untracked(self) -> "View":
        """The same net, whose running statistics do not move."""
        return View(self._net, Teacher() if self._frozen else None, tracking=False)

    def weights(self) -> Mapping[str, Tensor]:
        """Its weights by name."""
        return dict(self._net.named_parameters())

    def average(self, name: str) -> "View":
        """A running mean of it; it leaves no graph."""
        return View(self._averages[name], Teacher())

    def _statistics(self) -> AbstractContextManager[None]:
        return nullcontext() if self._tracking else self._net.untracked()
