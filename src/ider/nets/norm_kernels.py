"""Normalisation by groups of rows, an addition and a ReLU as two passes over the map each way, in Triton.

The first pass sums slices of each group, and the program that is the last to arrive adds the slices up in their order;
the second pass applies the result. Where groups are small, one program does both passes over some channels of a group,
in one launch. Sums are of single precision, and of distances from the group's first value, so that a large mean costs
no digits.

The backward pass reads the result of the ReLU only if something was added before it: otherwise it computes the sign
again, by the arithmetic of the forward pass.

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

from ider.nets.norm_tiles import (
    add_up,
    affine,
    get_pair,
    is_last,
    leave_sums,
    put_pair,
    read_back,
    read_tile,
    rectified_slope,
    tile_place,
    total_of,
    track,
    write_back,
    write_tile,
)


@triton.jit
def _forward_sums(
    x, sums, arrivals, statistics, N, C, S,
    TILES: tl.constexpr, UNROLL: tl.constexpr, SLICES: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    base = (group * N).to(tl.int64) * C
    pivot = tl.load(x + base + c, mask=c < C, other=0.0).to(tl.float32)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    squares = tl.zeros([ROWS, CHANNELS], tl.float32)
    for many in range(TILES // UNROLL):
        for one in tl.static_range(UNROLL):
            place, inside = tile_place(split * TILES + many * UNROLL + one, base, N, c, C, ROWS)
            value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
            value = tl.where(inside, value - pivot[None, :], 0.0)
            total += value
            squares += value * value
    leave_sums(tl.sum(total, 0), tl.sum(squares, 0), sums, split, group, c, C, S)
    if is_last(arrivals, S):
        first = total_of(sums, 0, group, c, C, S, SLICES) / N
        second = total_of(sums, 1, group, c, C, S, SLICES) / N
        put_pair(statistics, group, c, C, pivot + first, tl.maximum(second - first * first, 0.0))


@triton.jit
def _forward_apply(
    x, add, y, statistics, weight, bias, running_mean, running_var, N, C, momentum, eps,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
    G: tl.constexpr, TRACK: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean, _, factor, shift = affine(statistics, weight, bias, group, c, C, eps)
    place, inside = tile_place(split, (group * N).to(tl.int64) * C, N, c, C, ROWS)
    value, added = read_tile(x, add, place, inside, ADD)
    write_tile(y, place, inside, value, added, mean, factor, shift, ADD, RELU)
    if TRACK:
        if (split == 0) & (group == 0):
            track(running_mean, running_var, statistics, c, C, N, momentum, G)


@triton.jit
def _forward_whole(
    x, add, y, arrivals, statistics, weight, bias, running_mean, running_var, N, C, momentum, eps,
    TILES: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
    G: tl.constexpr, TRACK: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    base = (group * N).to(tl.int64) * C
    pivot = tl.load(x + base + c, mask=c < C, other=0.0).to(tl.float32)
    factor, shift = tl.load(weight + c, mask=c < C), tl.load(bias + c, mask=c < C)
    place, inside = tile_place(0, base, N, c, C, ROWS)
    value, added = read_tile(x, add, place, inside, ADD)  # the first tile stays until it is written
    total = tl.where(inside, value.to(tl.float32) - pivot[None, :], 0.0)
    squares = total * total
    for tile in tl.static_range(1, TILES):
        more, within = tile_place(tile, base, N, c, C, ROWS)
        far = tl.load(x + more, mask=within, other=0.0).to(tl.float32)
        far = tl.where(within, far - pivot[None, :], 0.0)
        total += far
        squares += far * far
    first, second = tl.sum(total, 0) / N, tl.sum(squares, 0) / N
    mean, var = pivot + first, tl.maximum(second - first * first, 0.0)
    put_pair(statistics, group, c, C, mean, var)
    factor = 1.0 / tl.sqrt(var + eps) * factor
    for tile in range(1, TILES):
        place, inside = tile_place(tile, base, N, c, C, ROWS)
        next_value, next_added = read_tile(x, add, place, inside, ADD)  # on its way while the tile before is written
        place, inside = tile_place(tile - 1, base, N, c, C, ROWS)
        write_tile(y, place, inside, value, added, mean, factor, shift, ADD, RELU)
        value, added = next_value, next_added
    place, inside = tile_place(TILES - 1, base, N, c, C, ROWS)
    write_tile(y, place, inside, value, added, mean, factor, shift, ADD, RELU)
    if TRACK:
        last = group == 0
        if G > 1:
            last = is_last(arrivals, G)
        else:
            tl.debug_barrier()
        if last:
            track(running_mean, running_var, statistics, c, C, N, momentum, G)


@triton.jit
def _backward_sums(
    dy, y, x, sums, arrivals, statistics, slopes, weight, bias, N, C, S, eps,
    TILES: tl.constexpr, UNROLL: tl.constexpr, SLICES: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
    RELU: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean, inverse, factor, shift = affine(statistics, weight, bias, group, c, C, eps)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    products = tl.zeros([ROWS, CHANNELS], tl.float32)
    base = (group * N).to(tl.int64) * C
    for many in range(TILES // UNROLL):
        for one in tl.static_range(UNROLL):
            place, inside = tile_place(split * TILES + many * UNROLL + one, base, N, c, C, ROWS)
            slope, value, result = read_back(dy, y, x, place, inside)
            slope, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, RELU)
            total += slope
            products += slope * normal
    leave_sums(tl.sum(total, 0), tl.sum(products, 0), sums, split, group, c, C, S)
    if is_last(arrivals, S):
        first, second = total_of(sums, 0, group, c, C, S, SLICES), total_of(sums, 1, group, c, C, S, SLICES)
        put_pair(slopes, group, c, C, first, second)


@triton.jit
def _backward_apply(
    dy, y, x, statistics, slopes, weight, bias, dx, dadd, dweight, dbias, N, C, eps,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
    G: tl.constexpr, LEARNS: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean, inverse, factor, shift = affine(statistics, weight, bias, group, c, C, eps)
    by_bias, by_weight = get_pair(slopes, group, c, C)
    place, inside = tile_place(split, (group * N).to(tl.int64) * C, N, c, C, ROWS)
    slope, value, result = read_back(dy, y, x, place, inside)
    slope, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, RELU)
    write_back(dx, dadd, place, inside, slope, normal, factor, by_bias / N, by_weight / N, ADD)
    if LEARNS:
        if (split == 0) & (group == 0):
            add_up(dweight, dbias, slopes, c, C, G)


@triton.jit
def _backward_whole(
    dy, y, x, arrivals, statistics, slopes, weight, bias, dx, dadd, dweight, dbias, N, C, eps,
    TILES: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
    G: tl.constexpr, LEARNS: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean, inverse, factor, shift = affine(statistics, weight, bias, group, c, C, eps)
    base = (group * N).to(tl.int64) * C
    place, inside = tile_place(0, base, N, c, C, ROWS)
    slope, value, result = read_back(dy, y, x, place, inside)
    total, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, RELU)
    products = total * normal
    for tile in tl.static_range(1, TILES):
        place, inside = tile_place(tile, base, N, c, C, ROWS)
        steep, far, kept = read_back(dy, y, x, place, inside)
        steep, normal = rectified_slope(steep, far, kept, y, mean, inverse, factor, shift, RELU)
        total += steep
        products += steep * normal
    by_bias, by_weight = tl.sum(total, 0), tl.sum(products, 0)
    for tile in range(1, TILES):  # as in the forward pass
        place, inside = tile_place(tile, base, N, c, C, ROWS)
        next_slope, next_value, next_result = read_back(dy, y, x, place, inside)
        place, inside = tile_place(tile - 1, base, N, c, C, ROWS)
        slope, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, RELU)
        write_back(dx, dadd, place, inside, slope, normal, factor, by_bias / N, by_weight / N, ADD)
        slope, value, result = next_slope, next_value, next_result
    place, inside = tile_place(TILES - 1, base, N, c, C, ROWS)
    slope, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, RELU)
    write_back(dx, dadd, place, inside, slope, normal, factor, by_bias / N, by_weight / N, ADD)
    if LEARNS:
        if G > 1:
            put_pair(slopes, group, c, C, by_bias, by_weight)
            if is_last(arrivals, G):
                add_up(dweight, dbias, slopes, c, C, G)
        else:
            tl.store(dbias + c, by_bias, mask=c < C)
            tl.store(dweight + c, by_weight, mask=c < C)


PROGRAMS, MOST_SLICES = 264, 256
"""Programs that sum a map: two a processor of a large GPU. Slices of a group, which one program adds up."""
TILE, UNROLL, WARPS = 4096, 8, 4
"""Values of a map that a program holds at a time; tiles whose loads it starts together; warps that share them."""


SMALL, SMALL_CHANNELS, SMALL_TILE, SMALL_WARPS = 1024, 16, 512, 8
"""Rows of a group up to which one launch does all; channels of its programs; rows they hold at a time; their warps."""


class _Launch:
    """How the work on a map of G groups of N rows is cut up.

    A small group is cut by channels alone, another into slices for sums and tiles for the rest.
    """

    def __init__(self, x: Tensor, groups: int, size: int) -> None:
        self.groups, self.rows, self.channels = groups, size * x.shape[2] * x.shape[3], x.shape[1]
        self.small = self.rows <= SMALL
        self.block = min(SMALL_CHANNELS if self.small else 64, triton.next_power_of_2(self.channels))
        self.tile = min(SMALL_TILE if self.small else TILE // self.block, triton.next_power_of_2(self.rows))
        self.blocks, self.tiles = triton.cdiv(self.channels, self.block), triton.cdiv(self.rows, self.tile)
        if not self.small:
            self.slices = max(1, min(self.tiles, PROGRAMS // (groups * self.blocks), MOST_SLICES))
            self.sums = torch.empty(groups * 2 * self.slices * self.channels, dtype=torch.float32, device=x.device)

    def whole(self, kernel: Any, *arguments: Any, **constants: Any) -> None:
        """Run a kernel that does all the work on small groups."""
        self._run(kernel, (self.groups, self.blocks), arguments, constants | {"TILES": self.tiles, "G": self.groups})

    def sum(self, kernel: Any, *arguments: Any, **constants: Any) -> None:
        """Run a kernel that sums slices."""
        each = triton.cdiv(self.tiles, self.slices)
        unroll = min(UNROLL, each)
        cut = {"TILES": triton.cdiv(each, unroll) * unroll, "UNROLL": unroll}
        more = {"S": self.slices, "SLICES": triton.next_power_of_2(self.slices)}
        self._run(kernel, (self.slices, self.blocks, self.groups), arguments, constants | cut | more)

    def map(self, kernel: Any, *arguments: Any, **constants: Any) -> None:
        """Run a kernel that writes a map, tile by tile."""
        self._run(kernel, (self.tiles, self.blocks, self.groups), arguments, constants | {"G": self.groups})

    def _run(self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any], constants: dict[str, Any]) -> None:
        shape = {"N": self.rows, "C": self.channels, "ROWS": self.tile, "CHANNELS": self.block}
        kernel[grid](*arguments, **shape, **constants, num_warps=SMALL_WARPS if self.small else WARPS)


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

    `buffers` are counters of zero, as many as `PartNorm2d` asks for, then the running mean and variance if they are
    tracked; `settings`: the sizes of the groups, relu, momentum, eps.
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
            maps = (x[rows], None if add is None else add[rows], y[rows])
            numbers = {"momentum": momentum, "eps": eps, "ADD": add is not None, "RELU": relu, "TRACK": bool(tracked)}
            if launch.small:
                launch.whole(_forward_whole, *maps, arrivals, mine, weight, bias, *running, **numbers)
            else:
                launch.sum(_forward_sums, x[rows], launch.sums, arrivals, mine)
                launch.map(_forward_apply, *maps, mine, weight, bias, *running, **numbers)
            done += count
        ctx.save_for_backward(x, y if relu and add is not None else None, weight, bias, statistics)
        ctx.sizes, ctx.relu, ctx.eps, ctx.arrivals = sizes, relu, eps, arrivals
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, add, weight and bias."""
        x, y, weight, bias, statistics = ctx.saved_tensors
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
            written = (dx[rows], None if dadd is None else dadd[rows], learnt[0, number], learnt[1, number])
            numbers = {"eps": ctx.eps, "ADD": adds, "RELU": ctx.relu, "LEARNS": learns}
            if launch.small:
                launch.whole(_backward_whole, *maps, ctx.arrivals, *known, weight, bias, *written, **numbers)
            else:
                sums, settings = (launch.sums, ctx.arrivals), {"eps": ctx.eps, "RELU": ctx.relu}
                launch.sum(_backward_sums, *maps, *sums, *known, weight, bias, **settings)
                launch.map(_backward_apply, *maps, *known, weight, bias, *written, **numbers)
            done += count
        dweight, dbias = learnt[:, 0] if len(runs) == 1 else learnt.sum(1)
        by = (dweight, dbias) if learns else (None, None)
        return dx, dadd if ctx.relu else (dy if ctx.needs_input_grad[1] else None), *by, None, None
