"""A step of ER+ID beside the released procedure, written plainly, in one process.

    python benchmarks/against_reference.py [cpu|cuda] [fp32|bf16]

The reference is the procedure that the authors released, step for step (every pass of its own, all of the frozen net's
gradients, `torch.nn` modules, no capture), but without its image pipeline: it is given normalised tensors. So it is a
lower bound of the time of the released code. Rounds of both alternate; the median of the rounds' ratios counts.
"""

import copy
import dataclasses
import statistics
import sys
import time
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ider import Learner, Task, recipe
from ider.engine.device import device_name, resolve

BATCH, ROUNDS, WEIGHTS = 32, 7, {"memory": 0.5, "current": 0.4, "replay": 0.5}


class Block(nn.Module):
    """A basic block."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        straight = stride == 1 and before == after
        conv = nn.Conv2d(before, after, 1, stride, bias=False)
        self.short = nn.Sequential() if straight else nn.Sequential(conv, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.short(x))


class Reference(nn.Module):
    """The two-input ResNet-18: `f1` up to stage 2, `f2` from there on, the second input added in between."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        stem = (nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        two, four, eight = 2 * width, 4 * width, 8 * width
        self.f1 = nn.Sequential(
            *stem, Block(width, width, 1), Block(width, width, 1), Block(width, two, 2), Block(two, two, 1)
        )
        self.f2 = nn.Sequential(
            Block(two, four, 2), Block(four, four, 1), Block(four, eight, 2), Block(eight, eight, 1)
        )
        self.label, self.head = nn.Sequential(nn.Linear(classes, two), nn.LeakyReLU(0.01)), nn.Linear(eight, classes)

    def decode(self, h: Tensor, u: Tensor) -> Tensor:
        return self.head(self.f2(h + self.label(u)[:, :, None, None]).mean((2, 3)))


def reference_loss(net: Reference, old: Reference | None, parts: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
    """The loss of a step: current batch, replay if the memory holds something, and, with an old net, fixed points."""

    def supervised(x: Tensor, y: Tensor) -> Tensor:
        h = net.f1(x)
        first = net.decode(h, prior(x, net.head.out_features))
        return F.cross_entropy(first, y) + F.cross_entropy(net.decode(h, first.softmax(1)), y)

    def fixed_point(x: Tensor) -> Tensor:
        assert old is not None
        first = net.decode(net.f1(x), prior(x, net.head.out_features))
        return F.mse_loss(first, old.decode(old.f1(x), first.softmax(1)))

    loss = 0.5 * supervised(*parts["current"])
    if old is not None:
        loss = loss + WEIGHTS["current"] * fixed_point(parts["current"][0])
    if "replay" in parts:
        loss = loss + WEIGHTS["replay"] * supervised(*parts["replay"])
    if old is not None:
        loss = loss + WEIGHTS["memory"] * fixed_point(parts["distill"][0])
    return loss


def reference_step(
    net: Reference, old: Reference | None, optimiser: torch.optim.SGD, parts: Mapping[str, tuple[Tensor, Tensor]]
) -> None:
    """One step."""
    loss = reference_loss(net, old, parts)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    loss.item()  # as released: the loss is logged at every step


def prior(x: Tensor, classes: int) -> Tensor:
    return torch.full((len(x), classes), 1 / classes, device=x.device)


def seconds(work: object, times: int, cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work()  # type: ignore[operator]
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def main(device: str = "cpu", precision: str = "fp32") -> None:
    cuda = device == "cuda"
    config = recipe("cifar100", "er+id", 500)
    engine = resolve(dataclasses.replace(config.engine, device=device, precision=precision))
    torch.set_num_threads(engine.threads)
    net = dataclasses.replace(config.net, classes=100)
    long = dataclasses.replace(config, engine=engine, net=net, train=dataclasses.replace(config.train, epochs=1))
    learner, rng = Learner(long, 0), np.random.default_rng(0)

    def task(number: int, count: int) -> Task:
        images = rng.integers(0, 256, (count, 3, 32, 32), np.uint8)
        return Task(images, np.arange(count) % 10 + 10 * number)

    learner.learn(task(0, 640))
    learner.config = dataclasses.replace(long, train=dataclasses.replace(config.train, epochs=10**6))
    ours = learner.learning(task(1, 640))

    reference = Reference(100).to(device)
    old, optimiser = copy.deepcopy(reference), torch.optim.SGD(reference.parameters(), 0.03)
    images = torch.randn(3, BATCH, 3, 32, 32, device=device)
    names = ("current", "replay", "distill")
    parts = {name: (images[k], torch.randint(100, (BATCH,), device=device)) for k, name in enumerate(names)}
    times = 200 if cuda else 2
    warm = 300 if cuda else 2
    for _ in range(warm):
        next(ours)
        reference_step(reference, old, optimiser, parts)
    rounds = []
    for _ in range(ROUNDS):
        theirs = seconds(lambda: reference_step(reference, old, optimiser, parts), times, cuda)
        rounds.append((theirs, seconds(lambda: next(ours), times, cuda)))
    ratios = sorted(theirs / mine for theirs, mine in rounds)
    for name, found in (("reference (fp32)", 0), (f"ider ({precision})", 1)):
        values = [1000 * pair[found] for pair in rounds]
        print(f"{name}: median {statistics.median(values):.1f} ms a step, {min(values):.1f} to {max(values):.1f}")
    print(f"{device_name(engine)}: {statistics.median(ratios):.2f} times as fast, {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
