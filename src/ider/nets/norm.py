"""Batch normalisation whose statistics are taken per part, so that one pass over many parts equals separate passes."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PartNorm2d(nn.Module):
    """`torch.nn.BatchNorm2d` over each of `sizes` consecutive groups of rows; running statistics move group by group.

    `tracking` off leaves the running statistics alone (a teacher that normalises by the batch it sees).
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.momentum, self.eps, self.tracking = momentum, eps, True

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Normalise each group of rows on its own; without `sizes`, or in eval mode, all rows are one group."""
        if not self.training or sizes is None or len(sizes) == 1:
            return self._normalise(x)
        if torch.compiler.is_compiling() and len(set(sizes)) == 1 and x.numel() > len(sizes) * x.shape[1]:
            return self._normalise_alike(x, len(sizes))
        return torch.cat([self._normalise(group) for group in torch.split(x, list(sizes))])

    def _normalise_alike(self, x: Tensor, groups: int) -> Tensor:
        """Groups of one size, all in one reduction: what a compiler makes fewer and larger kernels of."""
        x_GBchw = x.unflatten(0, (groups, -1))
        var_Gc, mean_Gc = torch.var_mean(x_GBchw.float(), (1, 3, 4), correction=0)
        if self.tracking:
            self._track(mean_Gc.detach(), var_Gc.detach(), x.numel() // (groups * x.shape[1]))
        scale_Gc = self.weight * torch.rsqrt(var_Gc + self.eps)
        shift_Gc = self.bias - mean_Gc * scale_Gc
        out = x_GBchw.float() * scale_Gc[:, None, :, None, None] + shift_Gc[:, None, :, None, None]
        return out.to(x.dtype).flatten(0, 1)

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
