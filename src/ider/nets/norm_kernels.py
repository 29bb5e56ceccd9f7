"""Normalisation by groups of rows, an addition and a ReLU as two passes over the map each way, in Triton.

The first pass sums slices of each group, and the program that is the last to arrive adds the slices up in their order;
the second pass applies the result. Sums are of single precision, and of distances from the group's first value, so
that a large mean costs no digits.

Shape legend: a map lies in memory as R rows (images x height x width) of C channels; G groups of N rows each.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,type-arg,untyped-decorator"

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _leave_sums(total, products, sums, split, group, c, C, S):
    out = sums + (group * 2 * S + split) * C + c
    tl.store(out, total, mask=c < C)
    tl.store(out + S * C, products, mask=c < C)


@triton.jit
def _total(sums, which, group, c, C, S, SLICES: tl.constexpr):
    s = tl.arange(0, SLICES)
    inside = (s < S)[:, None] & (c < C)[None, :]
    place = ((group * 2 + which) * S + s)[:, None] * C + c[None, :]
    return tl.sum(tl.load(sums + place, mask=inside, other=0.0, cache_modifier=".cg"), 0)


@triton.jit
def _is_last(arrivals, count):
    """Whether all other programs of this group and block have left their sums; the counter then starts again."""
    counter = arrivals + tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == count - 1
    if last:
        tl.atomic_xchg(counter, 0)
    return last


@triton.jit
def _forward_sums(
    x, sums, arrivals, statistics, N, C, S,
    TILES: tl.constexpr, UNROLL: tl.constexpr, SLICES: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = c < C
    base = x + (group * N).to(tl.int64) * C
    pivot = tl.load(base + c, mask=known, other=0.0).to(tl.float32)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    squares = tl.zeros([ROWS, CHANNELS], tl.float32)
    for many in range(TILES // UNROLL):
        for one in tl.static_range(UNROLL):
            row = (split * TILES + many * UNROLL + one) * ROWS + tl.arange(0, ROWS)
            inside = (row < N)[:, None] & known[None, :]
            value = tl.load(base + row[:, None] * C + c[None, :], mask=inside, other=0.0).to(tl.float32)
            value = tl.where(inside, value - pivot[None, :], 0.0)
            total += value
            squares += value * value
    _leave_sums(tl.sum(total, 0), tl.sum(squares, 0), sums, split, group, c, C, S)
    if _is_last(arrivals, S):
        first = _total(sums, 0, group, c, C, S, SLICES) / N
        second = _total(sums, 1, group, c, C, S, SLICES) / N
        tl.store(statistics + group * 2 * C + c, pivot + first, mask=known)
        tl.store(statistics + group * 2 * C + C + c, tl.maximum(second - first * first, 0.0), mask=known)


@triton.jit
def _forward_apply(
    x, add, y, statistics, weight, bias, running_mean, running_var, N, C, momentum, eps,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
    G: tl.constexpr, TRACK: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = c < C
    mean = tl.load(statistics + group * 2 * C + c, mask=known, other=0.0)
    var = tl.load(statistics + group * 2 * C + C + c, mask=known, other=0.0)
    scale = tl.load(weight + c, mask=known, other=0.0) / tl.sqrt(var + eps)
    shift = tl.load(bias + c, mask=known, other=0.0)
    base = (group * N).to(tl.int64) * C
    row = split * ROWS + tl.arange(0, ROWS)
    inside = (row < N)[:, None] & known[None, :]
    place = base + row[:, None] * C + c[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    value = (value - mean[None, :]) * scale[None, :] + shift[None, :]
    if ADD:
        value += tl.load(add + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)
    if TRACK:
        if (split == 0) & (group == 0):
            old_mean = tl.load(running_mean + c, mask=known, other=0.0)
            old_var = tl.load(running_var + c, mask=known, other=0.0)
            for g in tl.static_range(G):
                mean = tl.load(statistics + g * 2 * C + c, mask=known, other=0.0)
                var = tl.load(statistics + g * 2 * C + C + c, mask=known, other=0.0)
                old_mean += momentum * (mean - old_mean)
                old_var += momentum * (var * (N / (N - 1)) - old_var)
            tl.store(running_mean + c, old_mean, mask=known)
            tl.store(running_var + c, old_var, mask=known)


@triton.jit
def _backward_sums(
    dy, y, x, sums, arrivals, statistics, slopes, N, C, S, eps,
    TILES: tl.constexpr, UNROLL: tl.constexpr, SLICES: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
    RELU: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = c < C
    mean = tl.load(statistics + group * 2 * C + c, mask=known, other=0.0)
    scale = 1.0 / tl.sqrt(tl.load(statistics + group * 2 * C + C + c, mask=known, other=0.0) + eps)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    products = tl.zeros([ROWS, CHANNELS], tl.float32)
    base = (group * N).to(tl.int64) * C
    for many in range(TILES // UNROLL):
        for one in tl.static_range(UNROLL):
            row = (split * TILES + many * UNROLL + one) * ROWS + tl.arange(0, ROWS)
            inside = (row < N)[:, None] & known[None, :]
            place = base + row[:, None] * C + c[None, :]
            slope = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
            if RELU:
                slope = tl.where(tl.load(y + place, mask=inside, other=0.0) > 0, slope, 0.0)
            value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
            total += slope
            products += slope * ((value - mean[None, :]) * scale[None, :])
    _leave_sums(tl.sum(total, 0), tl.sum(products, 0), sums, split, group, c, C, S)
    if _is_last(arrivals, S):
        tl.store(slopes + group * 2 * C + c, _total(sums, 0, group, c, C, S, SLICES), mask=known)
        tl.store(slopes + group * 2 * C + C + c, _total(sums, 1, group, c, C, S, SLICES), mask=known)


@triton.jit
def _backward_apply(
    dy, y, x, statistics, slopes, weight, dx, dadd, dweight, dbias, N, C, eps,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
    G: tl.constexpr, LEARNS: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = c < C
    mean = tl.load(statistics + group * 2 * C + c, mask=known, other=0.0)
    scale = 1.0 / tl.sqrt(tl.load(statistics + group * 2 * C + C + c, mask=known, other=0.0) + eps)
    mean_slope = tl.load(slopes + group * 2 * C + c, mask=known, other=0.0) / N
    mean_product = tl.load(slopes + group * 2 * C + C + c, mask=known, other=0.0) / N
    factor = scale * tl.load(weight + c, mask=known, other=0.0)
    base = (group * N).to(tl.int64) * C
    row = split * ROWS + tl.arange(0, ROWS)
    inside = (row < N)[:, None] & known[None, :]
    place = base + row[:, None] * C + c[None, :]
    slope = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        slope = tl.where(tl.load(y + place, mask=inside, other=0.0) > 0, slope, 0.0)
    value = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * scale[None, :]
    if ADD:
        tl.store(dadd + place, slope.to(dadd.dtype.element_ty), mask=inside)
    slope = factor[None, :] * (slope - mean_slope[None, :] - value * mean_product[None, :])
    tl.store(dx + place, slope.to(dx.dtype.element_ty), mask=inside)
    if LEARNS:
        if (split == 0) & (group == 0):
            by_bias = tl.zeros([CHANNELS], tl.float32)
            by_weight = tl.zeros([CHANNELS], tl.float32)
            for g in tl.static_range(G):
                by_bias += tl.load(slopes + g * 2 * C + c, mask=known, other=0.0)
                by_weight += tl.load(slopes + g * 2 * C + C + c, mask=known, other=0.0)
            tl.store(dbias + c, by_bias, mask=known)
            tl.store(dweight + c, by_weight, mask=known)


PROGRAMS, MOST_SLICES = 264, 256
"""Programs that sum a map: two a processor of a large GPU. Slices of a group, which one program adds up."""
TILE, UNROLL, WARPS = 4096, 8, 4
"""Values of a map that a program holds at a time; tiles whose loads it starts together; warps that share them."""


class _Launch:
    """How the work on a map of G groups of N rows is cut up: into slices for sums, into tiles for the rest."""

    def __init__(self, x: Tensor, groups: int, size: int) -> None:
        self.groups, self.rows, self.channels = groups, size * x.shape[2] * x.shape[3], x.shape[1]
        self.block = min(64, triton.next_power_of_2(self.channels))
        self.tile = min(TILE // self.block, triton.next_power_of_2(self.rows))
        self.blocks, self.tiles = triton.cdiv(self.channels, self.block), triton.cdiv(self.rows, self.tile)
        self.slices = max(1, min(self.tiles, PROGRAMS // (groups * self.blocks), MOST_SLICES))
        self.sums = torch.empty(groups * 2 * self.slices * self.channels, dtype=torch.float32, device=x.device)

    def sum(self, kernel: Any, *arguments: Any, **constants: Any) -> None:
        """Run a kernel that sums slices."""
        each = triton.cdiv(self.tiles, self.slices)
        unroll = min(UNROLL, each)
        cut = {"TILES": triton.cdiv(each, unroll) * unroll, "UNROLL": unroll}
        more = {"S": self.slices, "SLICES": triton.next_power_of_2(self.slices)}
        self._run(kernel, self.slices, arguments, constants | cut | more)

    def map(self, kernel: Any, *arguments: Any, **constants: Any) -> None:
        """Run a kernel that writes a map, tile by tile."""
        self._run(kernel, self.tiles, arguments, constants | {"G": self.groups})

    def _run(self, kernel: Any, parts: int, arguments: Sequence[Any], constants: dict[str, Any]) -> None:
        shape = {"N": self.rows, "C": self.channels, "ROWS": self.tile, "CHANNELS": self.block, "num_warps": WARPS}
        kernel[(parts, self.blocks, self.groups)](*arguments, **shape, **constants)


def runs_of(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Neighbouring groups of one size, which one launch can do: (first row, groups, rows of each)."""
    runs, start = [], 0
    for size, alike in groupby(sizes):
        count = len(list(alike))
        runs.append((start, count, size))
        start += count * size
    return runs


class FusedNorm(torch.autograd.Function):
    """relu(normalise(x) * weight + bias + add): each group of rows by its own mean and variance.

    `buffers` are counters of zero, one a group and 64 channels, then the running mean and variance if they are tracked;
    `settings`: the sizes of the groups, relu, momentum, eps.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        add: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        buffers: Sequence[Tensor],
        settings: tuple[Sequence[int], bool, float, float],
    ) -> Tensor:
        """The map, normalised and rectified."""
        sizes, relu, momentum, eps = settings
        arrivals, *tracked = buffers
        x = x.contiguous(memory_format=torch.channels_last)
        add = None if add is None else add.to(x.dtype).contiguous(memory_format=torch.channels_last)
        y = torch.empty_like(x)
        statistics = torch.empty((len(sizes), 2, x.shape[1]), dtype=torch.float32, device=x.device)
        running = tracked or (None, None)
        done = 0
        for start, count, size in runs_of(sizes):
            launch, rows = _Launch(x, count, size), slice(start, start + count * size)
            mine = statistics[done : done + count]
            launch.sum(_forward_sums, x[rows], launch.sums, arrivals, mine)
            maps = (x[rows], None if add is None else add[rows], y[rows])
            numbers = {"momentum": momentum, "eps": eps, "ADD": add is not None, "RELU": relu, "TRACK": bool(tracked)}
            launch.map(_forward_apply, *maps, mine, weight, bias, *running, **numbers)
            done += count
        ctx.save_for_backward(x, y if relu else None, weight, statistics)
        ctx.sizes, ctx.relu, ctx.eps, ctx.arrivals = sizes, relu, eps, arrivals
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, add, weight and bias."""
        x, y, weight, statistics = ctx.saved_tensors
        adds, learns = ctx.needs_input_grad[1] and ctx.relu, ctx.needs_input_grad[2]
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx, dadd = torch.empty_like(x), torch.empty_like(x) if adds else None
        runs = runs_of(ctx.sizes)
        slopes = torch.empty_like(statistics)
        learnt = torch.empty((2, len(runs), x.shape[1]), dtype=torch.float32, device=x.device)
        done = 0
        for number, (start, count, size) in enumerate(runs):
            launch, rows = _Launch(x, count, size), slice(start, start + count * size)
            known = (statistics[done : done + count], slopes[done : done + count])
            maps = (dy[rows], None if y is None else y[rows], x[rows])
            launch.sum(_backward_sums, *maps, launch.sums, ctx.arrivals, *known, eps=ctx.eps, RELU=ctx.relu)
            written = (dx[rows], None if dadd is None else dadd[rows], learnt[0, number], learnt[1, number])
            numbers = {"eps": ctx.eps, "ADD": adds, "RELU": ctx.relu, "LEARNS": learns}
            launch.map(_backward_apply, *maps, *known, weight, *written, **numbers)
            done += count
        dweight, dbias = learnt[:, 0] if len(runs) == 1 else learnt.sum(1)
        by = (dweight, dbias) if learns else (None, None)
        return dx, dadd if ctx.relu else (dy if ctx.needs_input_grad[1] else None), *by, None, None
