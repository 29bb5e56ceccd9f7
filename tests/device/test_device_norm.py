"""The fused normalisation of a GPU against batch normalisation in float64; without a GPU, in Triton's interpreter."""

import os

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


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("adds", "relu"), [(False, False), (False, True), (True, True), (True, False)])
@pytest.mark.parametrize(
    ("sizes", "channels", "side"),
    [([8, 8, 8], 64, 8), ([8, 3], 128, 6), ([5], 3, 7), ([12], 256, 4), ([2, 3, 3, 1], 65, 9)],
)
def test_value_gradients_and_running_statistics(
    sizes: list[int], channels: int, side: int, adds: bool, relu: bool, dtype: torch.dtype, monkeypatch
) -> None:
    monkeypatch.setattr(PartNorm2d, "_fuses", lambda *_: True)
    torch.manual_seed(0)
    shape = (sum(sizes), channels, side, side)
    ours, theirs = PartNorm2d(channels).to(DEVICE), nn.BatchNorm2d(channels).double()
    with torch.no_grad():
        for name in ("weight", "bias"):
            values = torch.rand(channels) + 0.5
            getattr(ours, name).copy_(values)
            getattr(theirs, name).copy_(values)
    x, add, slope = (torch.randn(shape).to(dtype) + 3 * place for place in (1, 0, 0))
    mine = [part.to(DEVICE).contiguous(memory_format=torch.channels_last).requires_grad_() for part in (x, add)]
    exact = [part.double().requires_grad_() for part in (x, add)]
    found = ours(mine[0], sizes, mine[1] if adds else None, relu)
    wanted = reference(exact[0], sizes, exact[1] if adds else None, relu, theirs)
    found.backward(slope.to(DEVICE).contiguous(memory_format=torch.channels_last))
    wanted.backward(slope.double())
    pairs = {
        "value": (found, wanted),
        "x": (mine[0].grad, exact[0].grad),
        "weight": (ours.weight.grad, theirs.weight.grad),
        "bias": (ours.bias.grad, theirs.bias.grad),
        "mean": (ours.running_mean, theirs.running_mean),
        "var": (ours.running_var, theirs.running_var),
    }
    if adds:
        pairs["add"] = (mine[1].grad, exact[1].grad)
    for name, (one, other) in pairs.items():
        assert one is not None
        assert other is not None
        scale = other.detach().abs().max().item() + 1e-6
        distance = (one.detach().cpu().double() - other.detach()).abs()
        if relu and dtype is torch.bfloat16:  # rounding decides which values just above zero pass
            assert distance.quantile(0.999).item() < TOLERANCE[dtype] * scale, name
        else:
            assert distance.max().item() < TOLERANCE[dtype] * scale, name
