"""Maps with zeros in memory behind their channels: found where they help, noticed nowhere else."""

import pytest
import torch
from torch import Tensor

from ider.nets.precision import Conv2d, _by_weight
from ider.types import Parts, whole

WIDE = 8


def images(channels: int = 3, rows: int = 6, side: int = 5) -> Tensor:
    """Channels last, with zeros behind the channels."""
    torch.manual_seed(0)
    maps = torch.zeros(rows, WIDE, side, side, dtype=torch.float64).to(memory_format=torch.channels_last)
    maps[:, :channels] = torch.randn(rows, channels, side, side, dtype=torch.float64)
    return maps[:, :channels]


def compact(maps: Tensor) -> Tensor:
    return maps.clone(memory_format=torch.contiguous_format).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("side", [1, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_zeros_are_found_behind_all_rows_or_some(channels: int, side: int) -> None:
    maps = images(channels, side=side)
    for rows in (maps, maps[2:4]):
        assert whole(rows).shape == (len(rows), WIDE, side, side)
        assert torch.equal(whole(rows)[:, :channels], rows)
        assert not whole(rows)[:, channels:].any()


@pytest.mark.parametrize("maps", [
    torch.zeros(2, 3, 4, 4), compact(images()), images()[:, 1:], images()[:, :, 1:], images()[..., 1:], images()[0],
    torch.zeros(6, 8), images().transpose(2, 3), images(WIDE), torch.zeros(2, 3, 1, 1), torch.zeros(1, 1, 4, 4),
    images().detach().requires_grad_(),
])  # fmt: skip
def test_other_maps_are_whole(maps: Tensor) -> None:
    assert whole(maps) is maps


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "c"), ("b", "c"), ()])
def test_picked_parts_keep_their_zeros_and_their_channels(names: tuple[str, ...]) -> None:
    sizes = {"a": 2, "b": 1, "c": 3}
    wide, plain = (Parts(maps, sizes).pick(*names) for maps in (images(), compact(images())))
    assert torch.equal(wide.rows, plain.rows)
    assert wide.sizes == plain.sizes
    assert whole(wide.rows).shape[1] == WIDE


def test_parts_without_zeros_are_joined_as_they_are_with_their_gradient() -> None:
    maps = compact(images()).requires_grad_()
    rows = Parts(maps, {"a": 2, "b": 1, "c": 3}).pick("a", "c").rows
    assert rows.is_contiguous(memory_format=torch.channels_last)
    rows.sum().backward()
    assert maps.grad is not None
    assert maps.grad.sum((1, 2, 3)).ne(0).tolist() == [True, True, False, True, True, True]


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_and_its_gradient_do_not_notice(stride: int) -> None:
    torch.manual_seed(1)
    conv = Conv2d(3, 7, 3, stride, 1, bias=False).double().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = []
    for maps in (images(), compact(images())):
        conv.zero_grad()
        out = conv(maps)
        slope = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        out.backward(slope)
        beside = _by_weight(slope, whole(maps), conv.weight, (conv.stride, conv.padding))
        assert beside.stride() == conv.weight.stride()
        found.append([out, conv.weight.grad, beside])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[0][1], found[0][2], rtol=1e-12, atol=1e-12)
