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
def totals_of(sums, group, c, C, S, SLICES: tl.constexpr):
    """Add up the slices of a group in their order."""
    s = tl.arange(0, SLICES)
    inside = (s < S)[:, None] & (c < C)[None, :]
    place = (group * 2 * S + s)[:, None] * C + c[None, :]
    total = tl.load(sums + place, mask=inside, other=0.0)
    products = tl.load(sums + place + S * C, mask=inside, other=0.0)
    return tl.sum(total, 0), tl.sum(products, 0)


@triton.jit
def moments(total, squares, pivot, N):
    """Mean and variance of N values, from the sums of their distances from the pivot and of those squared."""
    first, second = total / N, squares / N
    return pivot + first, tl.maximum(second - first * first, 0.0)


@triton.jit
def moments_of(x, sums, group, c, N, C, S, SLICES: tl.constexpr):
    """A group's mean and variance, from its slices."""
    pivot = load_pivot(x, group, c, N, C)
    total, squares = totals_of(sums, group, c, C, S, SLICES)
    return moments(total, squares, pivot, N)


@triton.jit
def load_pivot(x, group, c, N, C):
    """A group's first value a channel."""
    return tl.load(x + (group * N).to(tl.int64) * C + c, mask=c < C, other=0.0).to(tl.float32)


@triton.jit
def is_last(arrivals, count):
    """Whether all other programs that share a counter have left their results; the counter then starts again."""
    counter = arrivals + tl.program_id(1)
    tl.debug_barrier()
    last = count == 1
    if count > 1:
        last = tl.atomic_add(counter, 1, sem="acq_rel") == count - 1
        if last:
            tl.atomic_xchg(counter, 0)
    return last


@triton.jit
def get_pair(pairs, group, c, C, known):
    """A group's pair of numbers a channel, read past what this processor remembers."""
    place = pairs + group * 2 * C + c
    first = tl.load(place, mask=known, other=0.0, cache_modifier=".cg")
    return first, tl.load(place + C, mask=known, other=0.0, cache_modifier=".cg")


@triton.jit
def put_pair(pairs, group, c, C, first, second):
    """Store a group's pair of numbers a channel."""
    tl.store(pairs + group * 2 * C + c, first, mask=c < C)
    tl.store(pairs + group * 2 * C + C + c, second, mask=c < C)


@triton.jit
def affine(statistics, weight, bias, group, c, C, eps):
    """A group's mean, one by its standard deviation, that times the weight, and the bias."""
    mean, var = get_pair(statistics, group, c, C, c < C)
    inverse = 1.0 / tl.sqrt(var + eps)
    return mean, inverse, inverse * tl.load(weight + c, mask=c < C), tl.load(bias + c, mask=c < C)


@triton.jit
def tile_place(start, stop, base, c, C, ROWS: tl.constexpr):
    """Where the values of a tile lie that starts with a row of the group, and which of them lie before another row."""
    row = start + tl.arange(0, ROWS)
    return base + row[:, None] * C + c[None, :], (row < stop)[:, None] & (c < C)[None, :]


@triton.jit
def normalised(value, mean, factor, shift):
    """The normalised map. One fused operation, so that forward and backward pass round alike and agree on its sign."""
    return tl.fma(value.to(tl.float32) - mean[None, :], factor[None, :], shift[None, :])


@triton.jit
def read_tile(x, add, place, inside):
    """The values, and what is to be added to them."""
    value = tl.load(x + place, mask=inside, other=0.0)
    added = value
    if add is not None:
        added = tl.load(add + place, mask=inside, other=0.0)
    return value, added


@triton.jit
def write_tile(y, place, inside, value, added, add, mean, factor, shift, floor):
    """Normalise a tile, add, rectify and store."""
    value = normalised(value, mean, factor, shift)
    if add is not None:
        value += added.to(tl.float32)
    value = tl.maximum(value, floor, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def move(old_mean, old_var, mean, var, N, momentum):
    """Running statistics after another group."""
    return old_mean + momentum * (mean - old_mean), old_var + momentum * (var * (N / (N - 1)) - old_var)


@triton.jit
def track(running_mean, running_var, statistics, c, C, N, momentum, G):
    """Move the running statistics group after group."""
    old_mean = tl.load(running_mean + c, mask=c < C, other=0.0)
    old_var = tl.load(running_var + c, mask=c < C, other=0.0)
    g = 0
    while g < G:
        for _ in tl.static_range(4):  # whose numbers are on their way together
            mean, var = get_pair(statistics, g, c, C, (c < C) & (g < G))
            new_mean, new_var = move(old_mean, old_var, mean, var, N, momentum)
            old_mean, old_var = tl.where(g < G, new_mean, old_mean), tl.where(g < G, new_var, old_var)
            g += 1
    tl.store(running_mean + c, old_mean, mask=c < C)
    tl.store(running_var + c, old_var, mask=c < C)


@triton.jit
def read_back(dy, y, x, place, inside):
    """The slope, the value, and the result of the ReLU if it was kept."""
    slope, value = tl.load(dy + place, mask=inside, other=0.0), tl.load(x + place, mask=inside, other=0.0)
    result = value
    if y is not None:
        result = tl.load(y + place, mask=inside, other=0.0)
    return slope, value, result


@triton.jit
def rectified_slope(slope, value, result, y, mean, inverse, factor, shift, floor):
    """The slope before the ReLU, and the value before weight and bias."""
    if y is None:
        result = normalised(value, mean, factor, shift)
    slope = tl.where(result <= floor, 0.0, slope.to(tl.float32))
    return slope, (value.to(tl.float32) - mean[None, :]) * inverse[None, :]


@triton.jit
def write_back(dx, dadd, place, inside, slope, normal, factor, by_bias, by_weight):
    """Store the slopes of what was added and of what was normalised."""
    if dadd is not None:
        tl.store(dadd + place, slope.to(dadd.dtype.element_ty), mask=inside)
    slope = factor[None, :] * (slope - by_bias[None, :] - normal * by_weight[None, :])
    tl.store(dx + place, slope.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def add_up(dweight, dbias, slopes, c, C, G):
    """Add up the gradients of the groups."""
    by_bias = tl.zeros(c.shape, tl.float32)
    by_weight = tl.zeros(c.shape, tl.float32)
    g = 0
    while g < G:
        for _ in tl.static_range(4):
            first, second = get_pair(slopes, g, c, C, (c < C) & (g < G))
            by_bias += first
            by_weight += second
            g += 1
    put_learnt(dweight, dbias, c, C, by_weight, by_bias)


@triton.jit
def put_learnt(dweight, dbias, c, C, by_weight, by_bias):
    """Store the gradients of weight and bias."""
    tl.store(dbias + c, by_bias, mask=c < C)
    tl.store(dweight + c, by_weight, mask=c < C)
