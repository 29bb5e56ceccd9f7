"""The optimiser and its schedule: SGD whose learning rate is a device tensor, so that a captured step can read it."""

import torch
from torch import Tensor, nn

from ider.config import TrainConfig


def sgd(net: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.SGD:
    """A fresh optimiser over all of the net's weights."""
    lr = torch.tensor(config.lr, dtype=torch.float32, device=device)
    return torch.optim.SGD(
        net.parameters(), lr=lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
    )


def learning_rate(config: TrainConfig, epoch: int) -> float:
    """The rate of an epoch (from 0): it falls at `round(milestone * epochs)`."""
    passed = sum(epoch >= round(milestone * config.epochs) for milestone in config.milestones)
    return float(config.lr * config.decay**passed)


def set_learning_rate(optimiser: torch.optim.SGD, value: float) -> None:
    """Overwrite the rate in place."""
    for group in optimiser.param_groups:
        group["lr"].fill_(value)


def momentum_of(optimiser: torch.optim.SGD) -> dict[str, Tensor]:
    """The momentum buffers by the weight's position; none before the first step, or without momentum."""
    buffers = {}
    for index, weight in enumerate(optimiser.param_groups[0]["params"]):
        buffer = optimiser.state[weight].get("momentum_buffer")
        if buffer is not None:
            buffers[str(index)] = buffer
    return buffers


@torch.no_grad()
def restore_momentum(optimiser: torch.optim.SGD, buffers: dict[str, Tensor]) -> None:
    """Take over the buffers that `momentum_of` gave."""
    for index, weight in enumerate(optimiser.param_groups[0]["params"]):
        if str(index) in buffers:
            # In the layout of the weight: the fused update goes through both in the order in which they lie in memory.
            optimiser.state[weight]["momentum_buffer"] = torch.empty_like(weight).copy_(buffers[str(index)])
