"""What augmentation costs: its share of a training step of ER+ID (ResNet-18, three parts of 32 images of 32x32).

    python benchmarks/augmentation.py [cpu|cuda]

Prints the median milliseconds of crop, flip and normalisation alone, of the whole step, and their ratio, which the
project wants to be at most 5 %. Dated results are in benchmarks/README.md.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from ider import Learner, Task, recipe
from ider.data.augment import crop_and_flip, normalise

ROWS, PAD = 96, 4


def milliseconds(work: Callable[[], object], repeats: int, device: str) -> float:
    """The median of several timings after a warm-up, the device waited for."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[2:])


def augmentation(device: str) -> Callable[[], object]:
    """One step's crop, flip and normalisation."""
    images = torch.randint(0, 256, (ROWS, 3, 32, 32), dtype=torch.uint8, device=device)
    crops = torch.randint(0, 2 * PAD + 1, (ROWS, 2), device=device)
    flips = torch.rand(ROWS, device=device) < 0.5
    mean, std = torch.full((3,), 0.5, device=device), torch.full((3,), 0.25, device=device)
    return lambda: normalise(crop_and_flip(images, crops, flips, PAD), mean, std)


def step(device: str, steps: int) -> float:
    """Milliseconds a step of ER+ID from its second task on."""
    config = recipe("cifar100", "er+id")
    config = replace(
        config,
        net=replace(config.net, classes=100),
        train=replace(config.train, epochs=1),
        engine=replace(config.engine, device=device),
    )
    rng = np.random.default_rng(0)
    learner = Learner(config)
    for task in range(2):
        images = rng.integers(0, 256, (32 * steps, 3, 32, 32), dtype=np.uint8)
        labels = rng.integers(0, 10, 32 * steps) + 10 * task
        times: list[float] = []
        learner.learn(Task(images, labels), lambda progress, times=times: times.append(clock(device)))  # type: ignore[misc]
    return 1000 * statistics.median(np.diff(times))


def clock(device: str) -> float:
    """The time once the device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main(device: str) -> None:
    """Print the three numbers."""
    alone = milliseconds(augmentation(device), 50, device)
    whole = step(device, 6 if device == "cpu" else 100)
    print(f"{device}: augmentation {alone:.3f} ms, step {whole:.1f} ms, share {100 * alone / whole:.2f} %")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
