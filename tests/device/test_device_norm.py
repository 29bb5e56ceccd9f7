"""The fused normalisation of a GPU against batch normalisation in float64; without a GPU, in Triton's interpreter."""

import os
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ider.nets.norm import PartNorm2d

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported
pytest.importorskip("triton")

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def reference(x: Tensor, sizes: list[int], add: Tensor | None, relu: bool, norm: nn.BatchNorm2d) -> Tensor:
    out = torch.cat([norm(group) for group in x.split(sizes)])
    out = out if add is None else out + add
    return F.relu(out) if relu else out


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the kernels, in use on any device, with tiles and programs so few that each has several tiles."""
    from ider.nets import norm_kernels

    monkeypatch.setattr(PartNorm2d, "_fuses", lambda *_: True)
    for name, value in {"SMALL_TILE": 64, "TILE": 1024, "SUMMING": 18, "WRITING": 24}.items():
        monkeypatch.setattr(norm_kernels, name, value)
    return norm_kernels


def pair(channels: int) -> tuple[PartNorm2d, nn.BatchNorm2d]:
    ours, theirs = PartNorm2d(channels).to(DEVICE), nn.BatchNorm2d(channels).double()
    with torch.no_grad():
        for name in ("weight", "bias"):
            values = torch.rand(channels) + 0.5
            getattr(ours, name).copy_(values)
            getattr(theirs, name).copy_(values)
    return ours, theirs


def assert_alike(
    norms: tuple[PartNorm2d, nn.BatchNorm2d], sizes: list[int], side: int, adds: bool, relu: bool, dtype: torch.dtype
) -> None:
    """One pass both ways through ours and through theirs, all that comes of it compared, and the counters at zero."""
    ours, theirs = norms
    shape = (sum(sizes), len(ours.weight), side, side)
    x, add, slope = (torch.randn(shape).to(dtype) + 3 * place for place in (1, 0, 0))
    mine = [part.to(DEVICE).contiguous(memory_format=torch.channels_last).requires_grad_() for part in (x, add)]
    exact = [part.double().requires_grad_() for part in (x, add)]
    found = ours(mine[0], sizes, mine[1] if adds else None, relu)
    wanted = reference(exact[0], sizes, exact[1] if adds else None, relu, theirs)
    found.backward(slope.to(DEVICE).contiguous(memory_format=torch.channels_last))
    wanted.backward(slope.double())
    pairs = {"value": (found, wanted), "x": (mine[0].grad, exact[0].grad)}
    if adds:
        pairs["add"] = (mine[1].grad, exact[1].grad)
    if ours.weight.requires_grad:
        pairs |= {"weight": (ours.weight.grad, theirs.weight.grad), "bias": (ours.bias.grad, theirs.bias.grad)}
    if ours.tracking:
        pairs |= {"mean": (ours.running_mean, theirs.running_mean), "var": (ours.running_var, theirs.running_var)}
    for name, (one, other) in pairs.items():
        assert one is not None
        assert other is not None
        scale = other.detach().abs().max().item() + 1e-6
        distance = (one.detach().cpu().double() - other.detach()).abs()
        if relu and dtype is torch.bfloat16:  # rounding decides which values just above zero pass
            assert distance.quantile(0.999).item() < TOLERANCE[dtype] * scale, name
        else:
            assert distance.max().item() < TOLERANCE[dtype] * scale, name
    assert not ours.arrivals.any()


KINDS = [(False, False), (False, True), (True, True), (True, False)]


@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("adds", "relu"), KINDS)
@pytest.mark.parametrize(
    ("sizes", "channels", "side"),
    [([8, 8, 8], 64, 8), ([8, 3], 128, 6), ([5], 3, 7), ([12], 256, 4), ([2, 3, 3, 1], 65, 9), ([2] * 5, 20, 5)],
)
def test_value_gradients_and_running_statistics(
    sizes: list[int], channels: int, side: int, adds: bool, relu: bool, dtype: torch.dtype, small: int,
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(kernels, "SMALL", small)
    monkeypatch.setattr(kernels, "SMALL_TILE", 256)  # fewer of them, for the sake of time
    torch.manual_seed(0)
    assert_alike(pair(channels), sizes, side, adds, relu, dtype)


@pytest.mark.skipif(DEVICE == "cpu", reason="maps as large as a GPU is given")
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("sizes", [[32, 32, 32], [64], [8, 32, 32]])
@pytest.mark.parametrize(("channels", "side"), [(64, 32), (128, 16), (256, 8), (512, 4)])
def test_maps_of_a_large_net_as_they_are_cut_up(channels: int, side: int, sizes: list[int], adds: bool) -> None:
    torch.manual_seed(0)
    assert_alike(pair(channels), sizes, side, adds, False, torch.float32)


@pytest.mark.parametrize("small", [128, 127, 100])
@pytest.mark.parametrize(("adds", "relu"), KINDS)
def test_small_and_large_groups_in_one_call_and_call_after_call(
    adds: bool, relu: bool, small: int, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SMALL", small)  # groups of 128, 96, 96 and 144 rows
    torch.manual_seed(0)
    norms = pair(20)
    for _ in range(2):  # gradients add up, running statistics go on
        assert_alike(norms, [8, 6, 6, 9], 4, adds, relu, torch.float32)


def test_a_group_is_small_up_to_the_bound_and_then_takes_one_launch(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[str] = []

    def note(_: object, kernel: Any, *__: object) -> None:
        launched.append(kernel.fn.__name__)

    monkeypatch.setattr(kernels._Launch, "_run", note)
    monkeypatch.setattr(kernels, "SMALL", 128)
    x = torch.randn(25, 4, 4, 4, device=DEVICE, requires_grad=True)
    pair(4)[0](x, [8, 8, 9]).sum().backward()
    ways = [[f"_{way}_whole", f"_{way}_sums", f"_{way}_apply"] for way in ("forward", "backward")]
    assert launched == ways[0] + ways[1]


@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("sizes", [[6], [5, 5, 4]])
@pytest.mark.parametrize(("adds", "relu"), KINDS)
def test_a_frozen_teacher_keeps_its_statistics_and_passes_gradients_on(
    adds: bool, relu: bool, sizes: list[int], small: int, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SMALL", small)
    torch.manual_seed(0)
    ours, theirs = pair(17)
    ours.requires_grad_(False)
    ours.tracking = False
    assert_alike((ours, theirs), sizes, 4, adds, relu, torch.float32)
    assert ours.weight.grad is None
    assert ours.bias.grad is None
    assert torch.equal(ours.running_mean.cpu(), torch.zeros(17))
    assert torch.equal(ours.running_var.cpu(), torch.ones(17))


@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("adds", [False, True])
def test_gradients_pass_just_where_the_result_is_above_zero(
    adds: bool, dtype: torch.dtype, small: int, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SMALL", small)
    torch.manual_seed(0)
    norm = pair(16)[0]
    x, add = (torch.randn(24, 16, 4, 4, device=DEVICE).to(dtype) for _ in range(2))
    out = norm(x.requires_grad_(), [16, 8], add if adds else None, relu=True)
    out.backward(torch.ones_like(out))
    assert norm.bias.grad is not None
    assert torch.equal(norm.bias.grad, (out > 0).sum((0, 2, 3)).float())
