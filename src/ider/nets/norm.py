"""Batch normalisation whose statistics are taken per part, so that one pass over many parts equals separate passes.

With it go the addition and the ReLU that follow it in a residual net: on a GPU all three are one pass over the map.
"""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PartNorm2d(nn.Module):
    """`torch.nn.BatchNorm2d` over each of `sizes` consecutive groups of rows; running statistics move group by group.

    `tracking` off leaves the running statistics alone (a teacher that normalises by the batch it sees).
    """

    running_mean: Tensor
    running_var: Tensor
    arrivals: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("arrivals", torch.zeros(1024, dtype=torch.int32), persistent=False)  # of programs
        self.momentum, self.eps, self.tracking = momentum, eps, True

    def forward(
        self, x: Tensor, sizes: Sequence[int] | None = None, add: Tensor | None = None, relu: bool = False
    ) -> Tensor:
        """Normalise each group of rows on its own, then add, then rectify.

        Without `sizes`, or in eval mode, all rows are one group.
        """
        sizes = (len(x),) if sizes is None or not self.training else tuple(sizes)
        if self._fuses(x, sizes):
            from ider.nets.norm_kernels import FusedNorm  # which needs Triton

            buffers = (self.arrivals, *((self.running_mean, self.running_var) if self.tracking else ()))
            settings = (sizes, relu, self.momentum, self.eps)
            fused: Tensor = FusedNorm.apply(x, add, self.weight, self.bias, buffers, settings)  # type: ignore[no-untyped-call]
            return fused
        out = self._normalise_groups(x, sizes)
        out = out if add is None else out + add
        return F.relu(out) if relu else out

    def _fuses(self, x: Tensor, sizes: Sequence[int]) -> bool:
        values, channels = min(sizes) * x.shape[2] * x.shape[3], x.shape[1]
        counted = channels <= 16 * len(self.arrivals)  # a counter for each program on a small group
        return self.training and values > 1 and counted and runs_kernels(x)

    def _normalise_groups(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        if len(sizes) == 1:
            return self._normalise(x)
        if torch.compiler.is_compiling() and len(set(sizes)) == 1 and x.numel() > len(sizes) * x.shape[1]:
            return self._normalise_alike(x, len(sizes))
        return torch.cat([self._normalise(group) for group in torch.split(x, list(sizes))])

    def _normalise_alike(self, x: Tensor, groups: int) -> Tensor:
        """Groups of one size, all in one reduction: what a compiler makes fewer and larger kernels of."""
        x_GBchw = x.reshape(groups, -1, *x.shape[1:])
        var_Gc, mean_Gc = torch.var_mean(x_GBchw.float(), (1, 3, 4), correction=0)
        if self.tracking:
            self._track(mean_Gc.detach(), var_Gc.detach(), x.numel() // (groups * x.shape[1]))
        scale_Gc = self.weight * torch.rsqrt(var_Gc + self.eps)
        shift_Gc = self.bias - mean_Gc * scale_Gc
        out_GBchw = x_GBchw.float() * scale_Gc[:, None, :, None, None] + shift_Gc[:, None, :, None, None]
        return out_GBchw.to(x.dtype).reshape(x.shape)

    def _track(self, mean_Gc: Tensor, var_Gc: Tensor, count: int) -> None:
        """Move the running statistics group after group."""
        for mean_c, var_c in zip(mean_Gc, var_Gc, strict=True):
            self.running_mean.lerp_(mean_c, self.momentum)
            self.running_var.lerp_(var_c * (count / (count - 1)), self.momentum)

    def _normalise(self, x: Tensor) -> Tensor:
        # One value a channel has no variance: such a group (a batch of one on a 1x1 map) uses the running statistics.
        by_batch = self.training and x.numel() > x.shape[1]
        mean, var = (self.running_mean, self.running_var) if self.tracking or not by_batch else (None, None)
        return F.batch_norm(x, mean, var, self.weight, self.bias, by_batch, self.momentum, self.eps)


def runs_kernels(x: Tensor) -> bool:
    """Whether kernels in Triton work on this map; a compiler makes its own."""
    return x.is_cuda and not torch.compiler.is_compiling() and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
