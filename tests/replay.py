"""Learners and tasks for tests of methods that fill the memory between tasks: seconds in all, on the CPU."""

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray

from ider import Learner, Task
from ider.config import EngineConfig, ImageConfig, MemoryConfig, NetConfig, RunConfig, TrainConfig
from ider.protocols import Method

SIDE = 6


def tasks(*sizes: int, each: int = 12, seed: int = 0) -> list[Task]:
    """Tasks of so many classes, `each` images a class; a class is the row that is lit, in noise, and one column."""
    rng, made, first = np.random.default_rng(seed), [], 0
    for size in sizes:
        labels = np.tile(np.arange(first, first + size), each)
        images = rng.integers(0, 90, (len(labels), 1, SIDE, SIDE))
        images[np.arange(len(labels)), 0, labels % SIDE] += 120
        images[np.arange(len(labels)), 0, :, labels // SIDE] += 40
        made.append(Task(images.astype(np.uint8), labels))
        first += size
    return made


def a_learner(
    method: Method,
    size: int = 20,
    classes: int = 6,
    policy: str = "auto",
    seed: int = 0,
    augmented: bool = True,
    **train: float,
) -> Learner:
    """A small net; labels enter as a second input if the method wants that."""
    return Learner(
        RunConfig(
            method=method,
            net=NetConfig(name="small-conv", width=4, classes=classes, label_input=method.needs().second_input),
            memory=MemoryConfig(size=size, policy=policy),
            train=dataclasses.replace(TrainConfig(epochs=2, batch=8, replay_batch=8, lr=0.05), **train),
            images=ImageConfig(mean=(0.3,), std=(0.25,), pad=int(augmented), flip=augmented),
            engine=EngineConfig(device="cpu", precision="fp32", threads=1),
        ),
        seed,
    )


@torch.no_grad()
def shown(learner: Learner, images: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The net's logits and features for images as they are, by its running statistics."""
    net = learner.net
    before = net.training
    net.eval()
    x = (torch.from_numpy(images).float() / 255 - 0.3) / 0.25
    features = net.features(net.encode(x))
    net.train(before)
    return net.head(features).numpy(), features.numpy()
