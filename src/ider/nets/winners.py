"""Sparse activations (k-winners): of all channels only the strongest stay, and what is negative does not.

Shape legend: B rows, C channels, H x W places.
"""

import torch
from torch import Tensor

from ider.types import Sparsity


def winners(x_BCHW: Tensor, sparsity: Sparsity, stage: int) -> Tensor:
    """The map with the winners of a stage (from 0) alone, rectified."""
    share, channels = sparsity.shares[min(stage, len(sparsity.shares) - 1)], x_BCHW.shape[1]
    if sparsity.kind == "global":
        return global_winners(x_BCHW, int(share * channels + 1e-9))
    return local_winners(x_BCHW, round(share * channels))


def global_winners(x_BCHW: Tensor, count: int) -> Tensor:
    """Per image the `count` channels with the largest sum of absolute values: those above the next one's (SCoMMER)."""
    scores_BC = x_BCHW.detach().abs().float().sum((2, 3))
    losers = scores_BC.shape[1] - count
    if losers > 0:
        bar_B1 = scores_BC.kthvalue(losers, dim=1, keepdim=True).values
        x_BCHW = x_BCHW * (scores_BC > bar_B1)[:, :, None, None]
    return x_BCHW.relu()


def local_winners(x_BCHW: Tensor, count: int) -> Tensor:
    """Per place the `count` largest channels, where they are not negative (SARL)."""
    channels = x_BCHW.shape[1]
    bar_B1HW = x_BCHW.detach().kthvalue(channels - count + 1, dim=1, keepdim=True).values.clamp(min=0)
    return torch.where(x_BCHW >= bar_B1HW, x_BCHW, torch.zeros_like(x_BCHW))
