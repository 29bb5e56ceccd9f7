"""Normalisation by groups of rows, an addition and a ReLU as two passes over the map each way, in Triton.

The first pass sums slices of each group; in the second every program adds up the slices of its group, in their order,
and applies the result. Where groups are small, one program does both passes over some channels of a group, in one
launch. Sums are of single precision, and of distances from the group's first value, so that a large mean costs no
digits.

A ReLU is a maximum with a `floor` of 0; without one the floor is minus infinity.

The backward pass reads the result of the ReLU only if something was added before it: otherwise it computes the sign
again, by the arithmetic of the forward pass.

Shape legend: a map lies in memory as R rows (images x height x width) of C channels; G groups of N rows each.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,type-arg,untyped-decorator"

import math
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
    is_last,
    leave_sums,
    load_pivot,
    moments,
    moments_of,
    move,
    put_learnt,
    put_pair,
    read_back,
    read_tile,
    rectified_slope,
    tile_place,
    totals_of,
    track,
    write_back,
    write_tile,
)


@triton.jit(do_not_specialize=["N", "S", "length"])
def _forward_sums(
    x, sums, N, C, S, length,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    row, stop = split * length, tl.minimum(split * length + length, N)
    base = (group * N).to(tl.int64) * C
    place, inside = tile_place(row, stop, base, c, C, ROWS)
    value = tl.load(x + place, mask=inside, other=0.0)
    pivot = load_pivot(x, group, c, N, C)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    squares = tl.zeros([ROWS, CHANNELS], tl.float32)
    while row < stop:
        place, inside = tile_place(row + ROWS, stop, base, c, C, ROWS)
        next_value = tl.load(x + place, mask=inside, other=0.0)  # on its way while the tile before is added up
        place, inside = tile_place(row, stop, base, c, C, ROWS)
        far = tl.where(inside, value.to(tl.float32) - pivot[None, :], 0.0)
        total += far
        squares += far * far
        value, row = next_value, row + ROWS
    leave_sums(tl.sum(total, 0), tl.sum(squares, 0), sums, split, group, c, C, S)


@triton.jit(do_not_specialize=["N", "S", "length", "G", "tracks"])
def _forward_apply(
    x, add, y, sums, statistics, weight, bias, running_mean, running_var,
    N, C, S, length, G, tracks, momentum, eps, floor,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    row, stop = split * length, tl.minimum(split * length + length, N)
    base = (group * N).to(tl.int64) * C
    place, inside = tile_place(row, stop, base, c, C, ROWS)
    value, added = read_tile(x, add, place, inside)  # on its way while the slices are added up
    factor, shift = tl.load(weight + c, mask=c < C), tl.load(bias + c, mask=c < C)
    tl.debug_barrier()  # across which the compiler moves no load
    mean, var = moments_of(x, sums, group, c, N, C, S, SLICES)
    factor = 1.0 / tl.sqrt(var + eps) * factor
    while row < stop:
        place, inside = tile_place(row + ROWS, stop, base, c, C, ROWS)
        next_value, next_added = read_tile(x, add, place, inside)  # on its way while the tile before is written
        place, inside = tile_place(row, stop, base, c, C, ROWS)
        write_tile(y, place, inside, value, added, add, mean, factor, shift, floor)
        value, added, row = next_value, next_added, row + ROWS
    if split == 0:
        put_pair(statistics, group, c, C, mean, var)
    if (split == tl.num_programs(0) - 1) & (group == 0):  # which has no rows
        if tracks > 0:
            old_mean, old_var = tl.load(running_mean + c, mask=c < C), tl.load(running_var + c, mask=c < C)
            g = 0
            while g < G:
                mean, var = moments_of(x, sums, g, c, N, C, S, SLICES)
                old_mean, old_var = move(old_mean, old_var, mean, var, N, momentum)
                g += 1
            tl.store(running_mean + c, old_mean, mask=c < C)
            tl.store(running_var + c, old_var, mask=c < C)


@triton.jit(do_not_specialize=["N", "G", "tracks"])
def _forward_whole(
    x, add, y, arrivals, statistics, weight, bias, running_mean, running_var,
    N, C, G, tracks, momentum, eps, floor,
    TILES: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    base = (group * N).to(tl.int64) * C
    pivot = load_pivot(x, group, c, N, C)
    factor, shift = tl.load(weight + c, mask=c < C), tl.load(bias + c, mask=c < C)
    place, inside = tile_place(0, N, base, c, C, ROWS)
    value, added = read_tile(x, add, place, inside)  # the first tile stays until it is written
    total = tl.where(inside, value.to(tl.float32) - pivot[None, :], 0.0)
    squares = total * total
    for tile in tl.static_range(1, TILES):
        more, within = tile_place(tile * ROWS, N, base, c, C, ROWS)
        far = tl.load(x + more, mask=within, other=0.0).to(tl.float32)
        far = tl.where(within, far - pivot[None, :], 0.0)
        total += far
        squares += far * far
    mean, var = moments(tl.sum(total, 0), tl.sum(squares, 0), pivot, N)
    put_pair(statistics, group, c, C, mean, var)
    factor = 1.0 / tl.sqrt(var + eps) * factor
    for tile in range(1, TILES):
        place, inside = tile_place(tile * ROWS, N, base, c, C, ROWS)
        next_value, next_added = read_tile(x, add, place, inside)
        place, inside = tile_place((tile - 1) * ROWS, N, base, c, C, ROWS)
        write_tile(y, place, inside, value, added, add, mean, factor, shift, floor)
        value, added = next_value, next_added
    place, inside = tile_place((TILES - 1) * ROWS, N, base, c, C, ROWS)
    write_tile(y, place, inside, value, added, add, mean, factor, shift, floor)
    if tracks > 0:
        if is_last(arrivals, G):
            track(running_mean, running_var, statistics, c, C, N, momentum, G)


@triton.jit(do_not_specialize=["N", "S", "length"])
def _backward_sums(
    dy, y, x, sums, statistics, weight, bias, N, C, S, length, eps, floor,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    row, stop = split * length, tl.minimum(split * length + length, N)
    base = (group * N).to(tl.int64) * C
    place, inside = tile_place(row, stop, base, c, C, ROWS)
    slope, value, result = read_back(dy, y, x, place, inside)
    mean, inverse, factor, shift = affine(statistics, weight, bias, group, c, C, eps)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    products = tl.zeros([ROWS, CHANNELS], tl.float32)
    while row < stop:
        row += ROWS
        place, inside = tile_place(row, stop, base, c, C, ROWS)
        next_slope, next_value, next_result = read_back(dy, y, x, place, inside)
        steep, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, floor)
        total += steep
        products += steep * normal
        slope, value, result = next_slope, next_value, next_result
    leave_sums(tl.sum(total, 0), tl.sum(products, 0), sums, split, group, c, C, S)


@triton.jit(do_not_specialize=["N", "S", "length", "G", "learns"])
def _backward_apply(
    dy, y, x, sums, statistics, weight, bias, dx, dadd, dweight, dbias,
    N, C, S, length, G, learns, eps, floor,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    row, stop = split * length, tl.minimum(split * length + length, N)
    base = (group * N).to(tl.int64) * C
    place, inside = tile_place(row, stop, base, c, C, ROWS)
    slope, value, result = read_back(dy, y, x, place, inside)
    tl.debug_barrier()  # as in the forward pass
    mean, inverse, factor, shift = affine(statistics, weight, bias, group, c, C, eps)
    by_bias, by_weight = totals_of(sums, group, c, C, S, SLICES)
    while row < stop:
        place, inside = tile_place(row + ROWS, stop, base, c, C, ROWS)
        next_slope, next_value, next_result = read_back(dy, y, x, place, inside)
        place, inside = tile_place(row, stop, base, c, C, ROWS)
        slope, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, floor)
        write_back(dx, dadd, place, inside, slope, normal, factor, by_bias / N, by_weight / N)
        slope, value, result, row = next_slope, next_value, next_result, row + ROWS
    if (split == tl.num_programs(0) - 1) & (group == 0):
        if learns > 0:
            by_bias, by_weight = tl.zeros([CHANNELS], tl.float32), tl.zeros([CHANNELS], tl.float32)
            g = 0
            while g < G:
                total, products = totals_of(sums, g, c, C, S, SLICES)
                by_bias += total
                by_weight += products
                g += 1
            put_learnt(dweight, dbias, c, C, by_weight, by_bias)


@triton.jit(do_not_specialize=["N", "G", "learns"])
def _backward_whole(
    dy, y, x, arrivals, slopes, statistics, weight, bias, dx, dadd, dweight, dbias, N, C, G, learns, eps, floor,
    TILES: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean, inverse, factor, shift = affine(statistics, weight, bias, group, c, C, eps)
    base = (group * N).to(tl.int64) * C
    place, inside = tile_place(0, N, base, c, C, ROWS)
    slope, value, result = read_back(dy, y, x, place, inside)
    total, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, floor)
    products = total * normal
    for tile in tl.static_range(1, TILES):
        place, inside = tile_place(tile * ROWS, N, base, c, C, ROWS)
        steep, far, kept = read_back(dy, y, x, place, inside)
        steep, normal = rectified_slope(steep, far, kept, y, mean, inverse, factor, shift, floor)
        total += steep
        products += steep * normal
    by_bias, by_weight = tl.sum(total, 0), tl.sum(products, 0)
    for tile in range(1, TILES):
        place, inside = tile_place(tile * ROWS, N, base, c, C, ROWS)
        next_slope, next_value, next_result = read_back(dy, y, x, place, inside)
        place, inside = tile_place((tile - 1) * ROWS, N, base, c, C, ROWS)
        slope, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, floor)
        write_back(dx, dadd, place, inside, slope, normal, factor, by_bias / N, by_weight / N)
        slope, value, result = next_slope, next_value, next_result
    place, inside = tile_place((TILES - 1) * ROWS, N, base, c, C, ROWS)
    slope, normal = rectified_slope(slope, value, result, y, mean, inverse, factor, shift, floor)
    write_back(dx, dadd, place, inside, slope, normal, factor, by_bias / N, by_weight / N)
    if learns > 0:
        if G > 1:
            put_pair(slopes, group, c, C, by_bias, by_weight)
            if is_last(arrivals, G):
                add_up(dweight, dbias, slopes, c, C, G)
        else:
            put_learnt(dweight, dbias, c, C, by_weight, by_bias)


CHANNELS, TILE, WARPS, REGISTERS = 32, 4096, 8, 128
"""Of a program on a large group: channels; values that it holds of each of two maps, or half of one; warps; registers
of a thread, so that two programs share a processor."""
SUMMING, WRITING, SLICES = 264, 264, 64
"""Programs that sum or write a map, two a processor of a large GPU: all are at work at once. Most slices of a group,
which every program that writes adds up once for all its tiles."""
SMALL, SMALL_CHANNELS, SMALL_TILE, SMALL_WARPS = 1024, 16, 512, 8
"""Rows of a group up to which one launch does all; channels of its programs; rows they hold at a time; their warps."""


class _Launch:
    """How the work on a map of G groups of N rows is cut up.

    A small group is cut by channels alone, another into slices, for sums and again for the rest. What varies from layer
    to layer is no constant of a kernel, so that few kernels have to be compiled.
    """

    def __init__(self, x: Tensor, groups: int, size: int) -> None:
        self.groups, self.rows, self.channels = groups, size * x.shape[2] * x.shape[3], x.shape[1]
        self.small = self.rows <= SMALL
        self.block = min(SMALL_CHANNELS if self.small else CHANNELS, triton.next_power_of_2(self.channels))
        self.tile = SMALL_TILE if self.small else TILE // self.block
        self.blocks, self.tiles = triton.cdiv(self.channels, self.block), triton.cdiv(self.rows, self.tile)
        if not self.small:
            self.slices = min(self._cuts(SUMMING), SLICES)
            self.sums = torch.empty(groups * 2 * self.slices * self.channels, dtype=torch.float32, device=x.device)

    def _cuts(self, programs: int) -> int:
        """How many slices a group falls into where about so many programs work on the map."""
        cuts: int = max(1, min(self.tiles, programs // (self.groups * self.blocks)))
        return cuts

    def whole(self, kernel: Any, *arguments: Any, **numbers: Any) -> None:
        """Run a kernel that does all the work on small groups."""
        cut = {"G": self.groups, "TILES": self.tiles, "ROWS": self.tile}
        self._run(kernel, (self.groups, self.blocks), arguments, numbers | cut)

    def sum(self, kernel: Any, maps: int, *arguments: Any, **numbers: Any) -> None:
        """Run a kernel that reads so many maps and sums slices."""
        self._run(kernel, (self.slices, self.blocks, self.groups), arguments, numbers | self._cut(self.slices, maps))

    def write(self, kernel: Any, maps: int, *arguments: Any, **numbers: Any) -> None:
        """Run a kernel that writes a map; one program more than there are slices does what is done once a channel."""
        cuts = self._cuts(WRITING - self.groups * self.blocks)
        more = self._cut(cuts, maps) | {"G": self.groups, "SLICES": SLICES}
        self._run(kernel, (cuts + 1, self.blocks, self.groups), arguments, numbers | more)

    def _cut(self, cuts: int, maps: int) -> dict[str, int]:
        rows = self.tile * (2 if maps == 1 else 1)
        return {"S": self.slices, "length": triton.cdiv(self.rows, cuts), "ROWS": rows, "maxnreg": REGISTERS}

    def _run(self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any], numbers: dict[str, Any]) -> None:
        shape = {"N": self.rows, "C": self.channels, "CHANNELS": self.block}
        kernel[grid](*arguments, **shape, **numbers, num_warps=SMALL_WARPS if self.small else WARPS)


def runs_of(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Neighbouring groups of one size, which one launch can do: (first row, groups, rows of each)."""
    runs, start = [], 0
    for size, alike in groupby(sizes):
        count = len(list(alike))
        runs.append((start, count, size))
        start += count * size
    return runs


def _floor(relu: bool) -> float:
    return 0.0 if relu else -math.inf


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
        numbers = {"tracks": len(tracked), "momentum": momentum, "eps": eps, "floor": _floor(relu)}
        done = 0
        for start, count, size in runs_of(sizes):
            launch, rows = _Launch(x, count, size), slice(start, start + count * size)
            mine = statistics[done : done + count]
            maps = (x[rows], None if add is None else add[rows], y[rows])
            known = (mine, weight, bias, *(tracked or (mine, mine)))
            if launch.small:
                launch.whole(_forward_whole, *maps, arrivals, *known, **numbers)
            else:
                launch.sum(_forward_sums, 1, x[rows], launch.sums)
                launch.write(_forward_apply, 1 if add is None else 2, *maps, launch.sums, *known, **numbers)
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
        settings = {"eps": ctx.eps, "floor": _floor(ctx.relu)}
        last = {"learns": int(learns), **settings}
        learnt = torch.empty((2, len(runs), x.shape[1]), dtype=torch.float32, device=x.device)
        done = 0
        for number, (start, count, size) in enumerate(runs):
            launch, rows = _Launch(x, count, size), slice(start, start + count * size)
            mine = slice(done, done + count)
            known = (statistics[mine], weight, bias)
            maps = (dy[rows], None if y is None else y[rows], x[rows])
            written = (dx[rows], None if dadd is None else dadd[rows], learnt[0, number], learnt[1, number])
            if launch.small:
                passed = (ctx.arrivals, slopes[mine])
                launch.whole(_backward_whole, *maps, *passed, *known, *written, **last)
            else:
                launch.sum(_backward_sums, 2, *maps, launch.sums, *known, **settings)
                launch.write(_backward_apply, 2, *maps, launch.sums, *known, *written, **last)
            done += count
        dweight, dbias = learnt[:, 0] if len(runs) == 1 else learnt.sum(1)
        by = (dweight, dbias) if learns else (None, None)
        return dx, dadd if ctx.relu else (dy if ctx.needs_input_grad[1] else None), *by, None, None
