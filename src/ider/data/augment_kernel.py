"""The images of a step brought together, cropped, mirrored and normalised in one kernel, channels last.

In Triton; it does what `augment` does in torch, bit for bit. N rows of C channels of H x W pixels.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,type-arg,untyped-decorator"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 128


class Source(NamedTuple):
    """Images (uint8) and labels, and which of them to take."""

    images: Tensor
    labels: Tensor
    which: Tensor


class Moves(NamedTuple):
    """What `crop_and_flip` is to do with the rows."""

    crops: Tensor | None
    flips: Tensor | None
    pad: int


@triton.jit
def _bring(
    images_1, labels_1, which_1, images_2, labels_2, which_2, rows_1, crops, flips, mean, std, out, out_labels, pad,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, WIDTH: tl.constexpr, CROPS: tl.constexpr, FLIPS: tl.constexpr,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """out[n, p, c] = normalised pixel p of row n after its move, 0 for c from C up to WIDTH; out_labels[n]."""
    n = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    c = tl.arange(0, CHANNELS)
    if n < rows_1:
        which = tl.load(which_1 + n)
        image, label = images_1 + which * (C * H * W), labels_1 + which
    else:
        which = tl.load(which_2 + n - rows_1)
        image, label = images_2 + which * (C * H * W), labels_2 + which
    y, x = p // W, p % W
    if FLIPS:
        x = tl.where(tl.load(flips + n) != 0, W - 1 - x, x)
    if CROPS:
        y += tl.load(crops + 2 * n).to(tl.int32) - pad
        x += tl.load(crops + 2 * n + 1).to(tl.int32) - pad
    inside = (p < H * W) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    place = image + c[None, :] * (H * W) + (y * W + x)[:, None]
    pixel = tl.load(place, mask=inside[:, None] & (c < C)[None, :], other=0).to(tl.float32)
    mean_c, std_c = tl.load(mean + c, mask=c < C, other=0.0), tl.load(std + c, mask=c < C, other=1.0)
    value = tl.div_rn(tl.div_rn(pixel, 255.0) - mean_c[None, :], std_c[None, :])
    mask = (p < H * W)[:, None] & (c < WIDTH)[None, :]
    tl.store(out + (n * H * W + p)[:, None] * WIDTH + c[None, :], value.to(out.dtype.element_ty), mask=mask)
    if tl.program_id(0) == 0:
        tl.store(out_labels + n, tl.load(label))


def bring_together(
    sources: tuple[Source, Source], moves: Moves, statistics: tuple[Tensor, Tensor], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Normalised images and labels of the rows of both sources.

    In half precision their channels are the first of 8 (16, ...) in memory, the others zero: convolutions take these at
    a time, and `types.whole` finds them.
    """
    first, second = sources
    channels, height, width = first.images.shape[1:]
    rows, wide = len(first.which) + len(second.which), channels if dtype.itemsize > 2 else -(-channels // 8) * 8
    shape, device = (rows, wide, height, width), first.images.device
    out = torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)
    labels = torch.empty(rows, dtype=first.labels.dtype, device=device)
    crops, flips = moves.crops, moves.flips
    sizes = {"C": channels, "H": height, "W": width, "WIDTH": wide, "CROPS": crops is not None}
    sizes |= {"FLIPS": flips is not None, "PIXELS": PIXELS, "CHANNELS": triton.next_power_of_2(wide)}
    _bring[(triton.cdiv(height * width, PIXELS), rows)](
        *first, *second, len(first.which), crops, flips, *statistics, out, labels, moves.pad, **sizes
    )
    return out[:, :channels], labels
