"""Weights cast all at once: the same step as when every layer casts its own, also with gradients on another stream."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ider.nets import NETS, Shape, TwoInputNet
from ider.nets.precision import Cast, Conv2d

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = Shape((3, 8, 8), 4, 8)


def net() -> TwoInputNet:
    torch.manual_seed(0)
    return NETS["resnet18"](SHAPE).to(DEVICE, memory_format=torch.channels_last)


def loss(net: TwoInputNet) -> Tensor:
    """Of both answers, so that the upper half is used twice, and of a weight itself."""
    images = torch.linspace(-1, 1, 6 * 3 * 64, device=DEVICE).view(6, 3, 8, 8)
    with torch.autocast(DEVICE, torch.bfloat16):
        z = net.encode(images.contiguous(memory_format=torch.channels_last))
        first = net.decode(z)
        second = net.decode(z, first.float().softmax(1))
    penalty = dict(net.named_parameters())["upper.0.conv1.weight"].square().sum()
    return first.float().logsumexp(1).mean() + second.float().square().mean() + penalty


def gradients(net: TwoInputNet) -> Iterator[tuple[str, Tensor]]:
    for name, weight in net.named_parameters():
        assert weight.grad is not None, name
        yield name, weight.grad


def test_a_step_is_the_same() -> None:
    plain, cast = net(), net()
    loss(plain).backward()
    weights = Cast(torch.bfloat16, cast)
    with weights:
        value = loss(cast)
    value.backward()
    weights.collect()
    for (name, mine), (_, theirs) in zip(gradients(cast), gradients(plain), strict=True):
        assert mine.dtype is torch.float32
        if DEVICE == "cpu":
            assert torch.equal(mine, theirs), name
        else:  # sums in another order, rounded to half precision
            assert torch.linalg.norm(mine - theirs) <= 0.02 * torch.linalg.norm(theirs) + 1e-6, name


def test_the_net_goes_on_naming_its_own_weights() -> None:
    mine = net()
    names = {name: weight.data_ptr() for name, weight in mine.named_parameters()}
    weights = Cast(torch.bfloat16, mine)
    with weights:
        assert {name: weight.data_ptr() for name, weight in mine.named_parameters()} == names
        assert mine.head.weight.dtype is torch.bfloat16
    assert mine.head.weight.dtype is torch.float32
    assert all(layer.side is None for layer in mine.modules() if isinstance(layer, Conv2d))


def test_in_the_same_precision_nothing_is_cast() -> None:
    mine = net()
    weights = Cast(torch.float32, mine)
    with weights:
        assert mine.head.weight is dict(mine.named_parameters())["head.weight"]
    weights.collect()
    assert mine.head.weight.grad is None


def test_a_layer_that_is_not_used_gets_no_gradient() -> None:
    mine = net()
    weights = Cast(torch.bfloat16, mine)
    with weights, torch.autocast(DEVICE, torch.bfloat16):
        value = mine.encode(torch.ones(2, 3, 8, 8, device=DEVICE)).float().sum()
    value.backward()
    weights.collect()
    assert mine.head.weight.grad is None
    assert next(mine.lower.parameters()).grad is not None


def test_all_convolutions_of_the_nets_take_part() -> None:
    for build in NETS.values():
        layers = [layer for layer in build(SHAPE).modules() if isinstance(layer, torch.nn.Conv2d)]
        assert layers
        assert all(isinstance(layer, Conv2d) and layer.bias is None and layer.groups == 1 for layer in layers)
