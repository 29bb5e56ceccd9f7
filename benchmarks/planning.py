"""What the plan of an epoch costs: milliseconds on one core, made before each epoch's first step.

    python benchmarks/planning.py [REPEATS]

Large: 1,000,000 samples of 1,000 classes, a memory of 100,000; the project wants at most 2,000 ms. Small: a task of
CIFAR-100, 5,000 samples (157 steps) and a memory of 500; the project wants at most 3 ms. Both with batches of 32, two
draws of 32 (ER+ID), crops and flips. The median of REPEATS plans (5, and 100 of the small ones) from the same state.
"""

import statistics
import sys
import time

import numpy as np

from ider.memory.plan import Schedule, plan_epoch
from ider.memory.policy import POLICIES, Slots
from ider.randomness import generators
from ider.types import Draw

SCHEDULE = Schedule(
    batch=32,
    replay_batch=32,
    drop_last=False,
    draws=(Draw("replay"), Draw("distill")),
    coins=("current", "replay"),
    pad=4,
    flip=True,
)


def milliseconds(policy: str, labels: np.ndarray, slots: Slots, repeats: int) -> float:
    """The median of several plans after a warm-up, each from fresh generators."""
    times = []
    for _ in range(repeats + 1):
        tools = POLICIES[policy], generators(0)
        start = time.perf_counter()
        plan_epoch(labels, slots, SCHEDULE, tools)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def memory(capacity: int, classes: int, offered: int) -> Slots:
    """A balanced memory of the first `classes` after so many samples."""
    return Slots(np.random.default_rng(1).permutation(np.arange(capacity) % classes), offered)


def large() -> dict[str, tuple[np.ndarray, Slots]]:
    """Labels and memory of each large case; `later` is a task of new classes."""
    count, capacity, classes = 1_000_000, 100_000, 1_000
    labels = np.random.default_rng(0).integers(0, classes, count)
    return {
        "1,000,000 into an empty memory": (labels, Slots.empty(capacity)),
        "1,000,000 into one just filled": (labels, memory(capacity, classes, capacity)),
        "1,000,000, just filled, the second 500 classes": (500 + labels // 2, memory(capacity, classes // 2, capacity)),
        "1,000,000 after 10,000,000": (labels, memory(capacity, classes, 10_000_000)),
    }


def small() -> dict[str, tuple[np.ndarray, Slots]]:
    """Labels and memory of each small case: the first epoch of tasks 1, 2 and 10 of 10, with 50 epochs each."""
    count, capacity, classes, seen = 5_000, 500, 10, 250_000
    labels = np.arange(count) % classes
    return {
        "5,000 into an empty memory": (labels, Slots.empty(capacity)),
        "5,000, one task of 10 classes seen": (classes + labels, memory(capacity, classes, seen)),
        "5,000, nine tasks of 10 classes seen": (9 * classes + labels, memory(capacity, 9 * classes, 9 * seen)),
    }


def main(repeats: int) -> None:
    """Print a line for every case and policy."""
    for cases, times in ((large(), repeats), (small(), 20 * repeats)):
        for name, (labels, slots) in cases.items():
            found = "  ".join(f"{policy} {milliseconds(policy, labels, slots, times):9.2f} ms" for policy in POLICIES)
            sys.stdout.write(f"{name:48}{found}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
