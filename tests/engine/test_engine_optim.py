"""The optimiser's state survives a checkpoint."""

import torch
from torch import nn

from ider.config import TrainConfig
from ider.engine.optim import momentum_of, restore_momentum, sgd

CONFIG = TrainConfig(lr=0.5, momentum=0.9)


def step(net: nn.Module, optimiser: torch.optim.SGD, images: torch.Tensor) -> None:
    optimiser.zero_grad()
    net(images).square().sum().backward()
    optimiser.step()


def test_momentum_of_weights_in_channels_last_order_goes_through_a_file_that_knows_no_order() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 5, 5, generator=generator)
    nets = [nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last) for _ in range(2)]  # type: ignore[call-overload]
    first, second = (sgd(net, CONFIG, torch.device("cpu")) for net in nets)
    step(nets[0], first, images)
    nets[1].load_state_dict(nets[0].state_dict())
    restore_momentum(second, {name: buffer.contiguous() for name, buffer in momentum_of(first).items()})
    assert list(momentum_of(second)) == ["0", "1"]
    for net, optimiser in zip(nets, (first, second), strict=True):
        step(net, optimiser, images)
    assert torch.equal(nets[0].weight, nets[1].weight)
    assert torch.equal(nets[0].bias, nets[1].bias)
