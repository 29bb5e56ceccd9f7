"""A value a row and channel on every place of a map, and the mean over all places: each the other's gradient.

In Triton, for maps that lie channels last: N rows of P places of C channels.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,type-arg,untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PLACES, CHANNELS = 64, 64


@triton.jit
def _spread(maps, values, out, P, C, step, scale, ADD: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr):
    """out[n, p, c] = maps[n, p, c] + scale * values[n, c]; values of one row for all have step 0."""
    n = tl.program_id(2).to(tl.int64)
    p = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = (p < P)[:, None] & (c < C)[None, :]
    place = (n * P + p[:, None]) * C + c[None, :]
    value = tl.load(values + n * step + c, mask=c < C, other=0.0).to(tl.float32) * scale
    spread = tl.broadcast_to(value[None, :], (PLACES, CHANNELS))
    if ADD:
        spread += tl.load(maps + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, spread.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _sum(maps, out, P, C, scale, TILES: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr):
    """out[n, c] = scale * the sum over p of maps[n, p, c]."""
    n = tl.program_id(1).to(tl.int64)
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros([PLACES, CHANNELS], tl.float32)
    for tile in tl.static_range(TILES):
        p = tile * PLACES + tl.arange(0, PLACES)
        inside = (p < P)[:, None] & (c < C)[None, :]
        total += tl.load(maps + (n * P + p[:, None]) * C + c[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(out + n * C + c, (tl.sum(total, 0) * scale).to(out.dtype.element_ty), mask=c < C)


def spread(values: Tensor, out: Tensor, scale: float = 1.0, maps: Tensor | None = None) -> Tensor:
    """Fill the maps `out` with the values (rows or one row x channels), the same at all places, on top of `maps`."""
    rows, channels, height, width = out.shape
    values, step = values.contiguous(), channels if len(values) > 1 else 0
    grid = (triton.cdiv(height * width, PLACES), triton.cdiv(channels, CHANNELS), rows)
    sizes = {"ADD": maps is not None, "PLACES": PLACES, "CHANNELS": CHANNELS}
    _spread[grid](maps, values, out, height * width, channels, step, scale, **sizes)
    return out


def total(maps: Tensor, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """The sum over all places, times `scale`: rows x channels."""
    rows, channels, height, width = maps.shape
    out = torch.empty((rows, channels), dtype=dtype, device=maps.device)
    grid = (triton.cdiv(channels, CHANNELS), rows)
    sizes = {"TILES": triton.cdiv(height * width, PLACES), "PLACES": PLACES, "CHANNELS": CHANNELS}
    _sum[grid](maps, out, height * width, channels, scale, **sizes)
    return out


class AddToMap(torch.autograd.Function):
    """A map plus a value a row (or one for all rows) and channel."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, values: Tensor) -> Tensor:
        """The sum."""
        ctx.shared, ctx.dtype = len(values) == 1, values.dtype
        maps = maps.contiguous(memory_format=torch.channels_last)
        return spread(values, torch.empty_like(maps), maps=maps)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradients of map and values."""
        if not ctx.needs_input_grad[1]:
            return slope, None
        slope = slope.contiguous(memory_format=torch.channels_last)
        if ctx.shared:
            return slope, total(slope, torch.float32).sum(0, keepdim=True).to(ctx.dtype)
        return slope, total(slope, ctx.dtype)


class MeanOfMap(torch.autograd.Function):
    """The mean over all places, for each row and channel."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> Tensor:
        """The means."""
        maps = maps.contiguous(memory_format=torch.channels_last)
        ctx.shape = maps.shape
        return total(maps, maps.dtype, 1 / (maps.shape[2] * maps.shape[3]))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        """The gradient of the map."""
        out = torch.empty(ctx.shape, dtype=slope.dtype, device=slope.device, memory_format=torch.channels_last)
        return spread(slope, out, 1 / (out.shape[2] * out.shape[3]))
