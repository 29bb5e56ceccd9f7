"""The optimiser's state survives a checkpoint."""

import torch
from torch import nn

from ider.engine.optim import momentum_of, restore_momentum


def learner() -> tuple[nn.Conv2d, torch.optim.SGD]:
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net, torch.optim.SGD(net.parameters(), lr=torch.tensor(0.5), momentum=0.9, fused=True)


def step(net: nn.Module, optimiser: torch.optim.SGD, images: torch.Tensor) -> None:
    optimiser.zero_grad()
    net(images).square().sum().backward()
    optimiser.step()


def test_momentum_of_weights_in_channels_last_order_goes_through_a_file_that_knows_no_order() -> None:
    images = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    (net, optimiser), (other, others) = learner(), learner()
    step(net, optimiser, images)
    other.load_state_dict(net.state_dict())
    restore_momentum(others, {name: buffer.contiguous() for name, buffer in momentum_of(optimiser).items()})
    assert list(momentum_of(others)) == ["0", "1"]
    for one in ((net, optimiser), (other, others)):
        step(*one, images)
    assert torch.equal(net.weight, other.weight)
    assert torch.equal(net.bias, other.bias)
