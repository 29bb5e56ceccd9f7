"""The optimiser and its schedule: SGD whose learning rate is a device tensor, so that a captured step can read it."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ider.config import TrainConfig

WARM_UP_START = 1e-5  # as released with NPCL


def sgd(weights: Iterable[Tensor], lr: float, momentum: float, weight_decay: float = 0.0) -> torch.optim.SGD:
    """A fresh optimiser over the weights, with its rate on their device."""
    weights = list(weights)
    rate = torch.tensor(lr, dtype=torch.float32, device=weights[0].device)
    return torch.optim.SGD(weights, lr=rate, momentum=momentum, weight_decay=weight_decay, fused=True)


def learning_rate(config: TrainConfig, epoch: int) -> float:
    """The rate of an epoch (from 0): it falls at `round(milestone * epochs)`, or along half a cosine to `decay`."""
    if config.schedule == "cosine":
        return float(
            config.lr * (config.decay + (1 - config.decay) * (1 + math.cos(math.pi * epoch / config.epochs)) / 2)
        )
    passed = sum(epoch >= round(milestone * config.epochs) for milestone in config.milestones)
    return float(config.lr * config.decay**passed)


def warmed(rate: float, warm_up: float, step: int, steps: int) -> float:
    """The rate of a step (from 0) of a task's `steps`: in the first share of them it climbs evenly from a small one."""
    climb = warm_up * steps
    return rate if step >= climb else WARM_UP_START + (rate - WARM_UP_START) * step / climb


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
