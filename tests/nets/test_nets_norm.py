"""PartNorm2d against `torch.nn.BatchNorm2d` on separate passes and against the textbook formula in NumPy."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from ider.nets.norm import PartNorm2d

CHANNELS = 3
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def pair(seed: int = 0) -> tuple[PartNorm2d, nn.BatchNorm2d]:
    """Ours and torch's with the same, untidy, weights and statistics."""
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = PartNorm2d(CHANNELS).double(), nn.BatchNorm2d(CHANNELS).double()
    with torch.no_grad():
        for name in ("weight", "bias", "running_mean", "running_var"):
            values = torch.rand(CHANNELS, generator=generator, dtype=torch.float64) + 0.5
            getattr(ours, name).copy_(values)
            getattr(theirs, name).copy_(values)
    return ours, theirs


def maps(rows: int, side: int = 2, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, CHANNELS, side, side, generator=generator, dtype=torch.float64) + 1


def by_formula(x: NDArray[np.float64], sizes: Sequence[int], norm: PartNorm2d) -> tuple[NDArray[np.float64], ...]:
    """Output and running statistics: biased variance to normalise, unbiased variance to remember."""
    weight, bias, mean, var = (
        getattr(norm, name).detach().numpy().copy() for name in ("weight", "bias", "running_mean", "running_var")
    )
    out, start = np.empty_like(x), 0
    for size in sizes:
        group = x[start : start + size]
        values = group.transpose(1, 0, 2, 3).reshape(CHANNELS, -1)
        m, v, n = values.mean(1), values.var(1), values.shape[1]
        scale = (weight / np.sqrt(v + 1e-5))[:, None, None]
        out[start : start + size] = (group - m[:, None, None]) * scale + bias[:, None, None]
        mean, var = 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v * n / (n - 1)
        start += size
    return out, mean, var


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(2, 3), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_groups_equal_separate_batch_norm_passes(sizes: list[int], side: int, seed: int) -> None:
    ours, theirs = pair(seed)
    x_ours, x_theirs = (maps(sum(sizes), side, seed).requires_grad_() for _ in range(2))
    out = ours(x_ours, sizes)
    expected = torch.cat([theirs(group) for group in x_theirs.split(sizes)])
    torch.testing.assert_close(out, expected, **EXACT)
    upstream = maps(sum(sizes), side, seed + 1)
    (out * upstream).sum().backward()
    (expected * upstream).sum().backward()
    torch.testing.assert_close(x_ours.grad, x_theirs.grad, **EXACT)
    for name in ("weight", "bias"):
        torch.testing.assert_close(getattr(ours, name).grad, getattr(theirs, name).grad, **EXACT)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), **EXACT)


def test_groups_equal_the_formula() -> None:
    norm, _ = pair()
    x, sizes = maps(9), (4, 2, 3)
    out, mean, var = by_formula(x.numpy(), sizes, norm)
    np.testing.assert_allclose(norm(x, sizes).detach().numpy(), out, **EXACT)
    np.testing.assert_allclose(norm.running_mean.numpy(), mean, **EXACT)
    np.testing.assert_allclose(norm.running_var.numpy(), var, **EXACT)


def test_the_last_group_weighs_most_in_the_running_statistics() -> None:
    first, last = pair()[0], pair()[0]
    x, y = maps(2, seed=1), maps(2, seed=2) + 100
    first(torch.cat([y, x]), (2, 2))
    last(torch.cat([x, y]), (2, 2))
    assert (last.running_mean > first.running_mean + 0.5).all()


def test_a_mixed_group_equals_one_batch_norm_pass() -> None:
    ours, theirs = pair()
    x = maps(6)
    expected = theirs(x)
    torch.testing.assert_close(ours(x, (6,)), expected, **EXACT)
    torch.testing.assert_close(ours.running_var, theirs.running_var, **EXACT)
    torch.testing.assert_close(pair()[0](x), expected, **EXACT)
    assert (ours(x, (2, 4)) - expected).abs().max() > 0.1


def test_eval_mode_uses_and_keeps_the_running_statistics_whatever_the_groups() -> None:
    ours, theirs = (norm.eval() for norm in pair())
    before, x = ours.running_mean.clone(), maps(5)
    torch.testing.assert_close(ours(x, (2, 3)), theirs(x), **EXACT)
    assert torch.equal(ours(x, (2, 3)), ours(x))
    assert torch.equal(ours.running_mean, before)


@pytest.mark.parametrize("sizes", [(5,), (2, 3), None])
def test_without_tracking_the_batch_normalises_but_is_forgotten(sizes: tuple[int, ...] | None) -> None:
    tracking, quiet = pair()[0], pair()[0]
    quiet.tracking = False
    x, before = maps(5), {name: value.clone() for name, value in quiet.state_dict().items()}
    assert torch.equal(quiet(x, sizes), tracking(x, sizes))
    assert all(torch.equal(value, before[name]) for name, value in quiet.state_dict().items())
    assert not torch.equal(tracking.running_mean, before["running_mean"])


def test_without_tracking_eval_mode_still_uses_the_running_statistics() -> None:
    ours, theirs = (norm.eval() for norm in pair())
    ours.tracking = False
    torch.testing.assert_close(ours(maps(3)), theirs(maps(3)), **EXACT)


@pytest.mark.parametrize("tracking", [True, False])
def test_one_value_a_channel_uses_the_running_statistics(tracking: bool) -> None:
    ours, theirs = pair()
    ours.tracking = tracking
    x, before = maps(1, side=1), ours.running_mean.clone()
    with pytest.raises(ValueError, match="more than 1 value"):
        theirs(x)
    torch.testing.assert_close(ours(x), theirs.eval()(x), **EXACT)
    assert torch.equal(ours.running_mean, before)


def test_a_lonely_group_beside_a_full_one_alone_uses_the_running_statistics() -> None:
    ours, theirs = pair()
    x = maps(4, side=1)
    out = ours(x, (1, 3))
    torch.testing.assert_close(out[:1], theirs.eval()(x[:1]), **EXACT)
    torch.testing.assert_close(out[1:], theirs.train()(x[1:]), **EXACT)
    torch.testing.assert_close(ours.running_var, theirs.running_var, **EXACT)


def test_the_state_has_the_same_names_as_batch_norm_but_for_its_counter() -> None:
    ours, theirs = pair()
    assert list(ours.state_dict()) == [name for name in theirs.state_dict() if name != "num_batches_tracked"]
