"""What happens to images on the device: crop and mirror in one gather on uint8, then normalisation to float.

Shape legend: N images, C channels, H x W pixels.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor


def crop_and_flip(images: Tensor, crops: Tensor | None, flips: Tensor | None, pad: int) -> Tensor:
    """Zero-pad by `pad`, cut each image out again at its own offset (N x 2, from 0 to 2 * pad), mirror those flagged.

    Without `crops` the cut is central, so nothing moves; without `flips` nothing is mirrored.
    """
    if crops is None and flips is None:
        return images
    count, channels, height, width = images.shape
    padded = F.pad(images, (pad, pad, pad, pad)) if crops is not None else images
    rows_NH = torch.arange(height, device=images.device).expand(count, height)
    columns_NW = torch.arange(width, device=images.device).expand(count, width)
    if flips is not None:
        columns_NW = torch.where(flips[:, None], width - 1 - columns_NW, columns_NW)
    if crops is not None:
        rows_NH, columns_NW = rows_NH + crops[:, :1], columns_NW + crops[:, 1:]
    which = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[None, :, None, None]
    return padded[which, channel, rows_NH[:, None, :, None], columns_NW[:, None, None, :]]


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Pixels 0..255 to floats of the given mean and standard deviation per channel (both for pixels in 0..1)."""
    return (images.float() / 255 - mean[:, None, None]) / std[:, None, None]


def channel_statistics(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, of pixels in 0..1; the latter 1 where nothing ever changes."""
    pixels = images.astype(np.float64) / 255
    mean, spread = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    return tuple(mean.tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist())
