"""What the kernels of the normalisation share: sums left and found, and tiles of a map read and written.

Shape legend: a map lies in memory as R rows (images x height x width) of C channels; G groups of N rows each.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,type-arg,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def leave_sums(total, products, sums, split, group, c, C, S):
    """Store what a program summed of its slice."""
    out = sums + (group * 2 * S + split) * C + c
    tl.store(out, total, mask=c < C)
    tl.store(out + S * C, products, mask=c < C)


@triton.jit
def total_of(sums, which, group, c, C, S, SLICES: tl.constexpr):
    """Add up the slices of a group in their order."""
    s = tl.arange(0, SLICES)
    inside = (s < S)[:, None] & (c < C)[None, :]
    place = ((group * 2 + which) * S + s)[:, None] * C + c[None, :]
    return tl.sum(tl.load(sums + place, mask=inside, other=0.0, cache_modifier=".cg"), 0)


@triton.jit
def is_last(arrivals, count):
    """Whether all other programs that share a counter have left their results; the counter then starts again."""
    counter = arrivals + tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == count - 1
    if last:
        tl.atomic_xchg(counter, 0)
    return last


@triton.jit
def get_pair(pairs, group, c, C):
    """A group's pair of numbers a channel, read past what this processor remembers."""
    place = pairs + group * 2 * C + c
    first = tl.load(place, mask=c < C, other=0.0, cache_modifier=".cg")
    return first, tl.load(place + C, mask=c < C, other=0.0, cache_modifier=".cg")


@triton.jit
def put_pair(pairs, group, c, C, first, second):
    """Store a group's pair of numbers a channel."""
    tl.store(pairs + group * 2 * C + c, first, mask=c < C)
    tl.store(pairs + group * 2 * C + C + c, second, mask=c < C)


@triton.jit
def affine(statistics, weight, bias, group, c, C, eps):
    """A group's mean, one by its standard deviation, that times the weight, and the bias."""
    mean, var = get_pair(statistics, group, c, C)
    inverse = 1.0 / tl.sqrt(var + eps)
    return mean, inverse, inverse * tl.load(weight + c, mask=c < C), tl.load(bias + c, mask=c < C)


@triton.jit
def tile_place(tile, base, N, c, C, ROWS: tl.constexpr):
    """Where a tile's values lie, and which of them are the group's."""
    row = tile * ROWS + tl.arange(0, ROWS)
    return base + row[:, None] * C + c[None, :], (row < N)[:, None] & (c < C)[None, :]


@triton.jit
def normalised(value, mean, factor, shift):
    """The normalised map. One fused operation, so that forward and backward pass round alike and agree on its sign."""
    return tl.fma(value.to(tl.float32) - mean[None, :], factor[None, :], shift[None, :])


@triton.jit
def read_tile(x, add, place, inside, ADD: tl.constexpr):
    """The values, and what is to be added to them."""
    value = tl.load(x + place, mask=inside, other=0.0)
    added = value
    if ADD:
        added = tl.load(add + place, mask=inside, other=0.0)
    return value, added


@triton.jit
def write_tile(y, place, inside, value, added, mean, factor, shift, ADD: tl.constexpr, RELU: tl.constexpr):
    """Normalise a tile, add, rectify and store."""
    value = normalised(value, mean, factor, shift)
    if ADD:
        value += added.to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def track(running_mean, running_var, statistics, c, C, N, momentum, G: tl.constexpr):
    """Move the running statistics group after group."""
    known = c < C
    old_mean = tl.load(running_mean + c, mask=known, other=0.0)
    old_var = tl.load(running_var + c, mask=known, other=0.0)
    for g in tl.static_range(G):
        mean, var = get_pair(statistics, g, c, C)
        old_mean += momentum * (mean - old_mean)
        old_var += momentum * (var * (N / (N - 1)) - old_var)
    tl.store(running_mean + c, old_mean, mask=known)
    tl.store(running_var + c, old_var, mask=known)


@triton.jit
def read_back(dy, y, x, place, inside):
    """The slope, the value, and the result of the ReLU if it was kept."""
    slope, value = tl.load(dy + place, mask=inside, other=0.0), tl.load(x + place, mask=inside, other=0.0)
    result = value
    if y is not None:
        result = tl.load(y + place, mask=inside, other=0.0)
    return slope, value, result


@triton.jit
def rectified_slope(slope, value, result, y, mean, inverse, factor, shift, RELU: tl.constexpr):
    """The slope before the ReLU, and the value before weight and bias."""
    slope = slope.to(tl.float32)
    if RELU:
        if y is None:
            result = normalised(value, mean, factor, shift)
        slope = tl.where(result > 0, slope, 0.0)
    return slope, (value.to(tl.float32) - mean[None, :]) * inverse[None, :]


@triton.jit
def write_back(dx, dadd, place, inside, slope, normal, factor, by_bias, by_weight, ADD: tl.constexpr):
    """Store the slopes of what was added and of what was normalised."""
    if ADD:
        tl.store(dadd + place, slope.to(dadd.dtype.element_ty), mask=inside)
    slope = factor[None, :] * (slope - by_bias[None, :] - normal * by_weight[None, :])
    tl.store(dx + place, slope.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def add_up(dweight, dbias, slopes, c, C, G: tl.constexpr):
    """Add up the gradients of the groups."""
    by_bias = tl.zeros(c.shape, tl.float32)
    by_weight = tl.zeros(c.shape, tl.float32)
    for g in tl.static_range(G):
        one, other = get_pair(slopes, g, c, C)
        by_bias += one
        by_weight += other
    tl.store(dbias + c, by_bias, mask=c < C)
    tl.store(dweight + c, by_weight, mask=c < C)
