"""The kernels that put a value on all places of a map, and take the mean, against float64; see `test_device_norm`."""

import os

import pytest
import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported
pytest.importorskip("triton")

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
SHAPES = [(5, 3, 7, 7), (3, 64, 8, 8), (2, 65, 9, 8), (4, 130, 4, 4), (1, 8, 1, 1)]


def random(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same values on the device (maps channels last) and as float64."""
    values = torch.randn(shape).to(dtype)
    form = torch.channels_last if len(shape) == 4 else torch.contiguous_format
    ours = values.to(DEVICE).clone(memory_format=form)
    return ours.requires_grad_(), values.double().requires_grad_()


def close(found: Tensor | None, wanted: Tensor | None, dtype: torch.dtype) -> None:
    assert found is not None
    assert wanted is not None
    assert found.dtype is dtype
    distance = (found.detach().cpu().double() - wanted.detach()).abs().max().item()
    assert distance <= TOLERANCE[dtype] * (wanted.detach().abs().max().item() + 1)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_adding_to_a_map(shape: tuple[int, ...], shared: bool, dtype: torch.dtype) -> None:
    from ider.nets.map_kernels import AddToMap

    torch.manual_seed(0)
    (maps, exact_maps), (slope, exact_slope) = random(shape, dtype), random(shape, dtype)
    values, exact_values = random((1 if shared else shape[0], shape[1]), dtype)
    found, wanted = AddToMap.apply(maps, values), exact_maps + exact_values[:, :, None, None]
    found.backward(slope.detach())
    wanted.backward(exact_slope.detach())
    for one, other in ((found, wanted), (maps.grad, exact_maps.grad), (values.grad, exact_values.grad)):
        close(one, other, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_mean_of_a_map(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    from ider.nets.map_kernels import MeanOfMap

    torch.manual_seed(0)
    (maps, exact), (slope, exact_slope) = random(shape, dtype), random(shape[:2], dtype)
    found, wanted = MeanOfMap.apply(maps), exact.mean((2, 3))
    found.backward(slope.detach())
    wanted.backward(exact_slope.detach())
    close(found, wanted, dtype)
    close(maps.grad, exact.grad, dtype)
    assert maps.grad is not None
    assert maps.grad.is_contiguous(memory_format=torch.channels_last)
