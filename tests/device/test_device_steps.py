"""On a GPU: recorded, compiled and plain steps agree, nothing waits for the device, seeds side by side agree too."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from ider import METHODS, Learner, Task
from ider.config import EngineConfig, LearnerConfig, MemoryConfig, NetConfig, TrainConfig
from ider.engine.capture import WARM_UP
from ider.engine.replicas import take_turns
from ider.protocols import Method

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CLASSES, SHAPE, IMAGES = 6, (3, 16, 16), 72


@pytest.fixture(autouse=True)
def _whole_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single precision in convolutions, too, where a GPU would otherwise round more."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def tasks() -> list[Task]:
    """Three tasks, whose last batch is smaller than the others."""
    rng = np.random.default_rng(0)
    return [
        Task(rng.integers(0, 256, (IMAGES, *SHAPE)).astype(np.uint8), first + np.arange(IMAGES) % 2)
        for first in (0, 2, 4)
    ]


def config(method: Method, mode: str, precision: str = "fp32") -> LearnerConfig:
    return LearnerConfig(
        method=method,
        net=NetConfig(name="resnet18", width=8, classes=CLASSES),
        memory=MemoryConfig(size=20),
        train=TrainConfig(epochs=6, batch=16, replay_batch=16, lr=0.01),
        engine=EngineConfig(device="cuda", precision=precision, capture=mode),
    )


def learnt(method: Method, mode: str, seed: int = 3, precision: str = "fp32") -> Learner:
    learner = Learner(config(method, mode, precision), seed)
    for task in tasks():
        learner.learn(task)
    return learner


def losses(learner: Learner) -> list[float]:
    return [entry["loss"] for entry in learner.history]


@pytest.mark.parametrize("mode", ["graph", "compile"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_the_same_however_its_steps_run(name: str, mode: str) -> None:
    plain, other = learnt(METHODS[name], "off"), learnt(METHODS[name], mode)
    # Convolutions that sum in another order round otherwise, and training makes more of it from epoch to epoch.
    np.testing.assert_allclose(losses(other)[0], losses(plain)[0], rtol=2e-3)
    np.testing.assert_allclose(losses(other)[:3], losses(plain)[:3], rtol=0.03)
    np.testing.assert_allclose(losses(other), losses(plain), rtol=0.1, atol=0.02)
    assert (other.slots.labels == plain.slots.labels).all() or METHODS[name].needs().memory == "tasks"


@contextmanager
def _waiting_raises() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", METHODS)
def test_nothing_waits_for_the_device_inside_an_epoch(name: str) -> None:
    learner = Learner(config(METHODS[name], "graph"), 0)
    first, second, _ = tasks()
    learner.learn(first)
    watched = 0
    for progress in (steps := learner.learning(second)):
        while progress.epoch > WARM_UP and progress.step < progress.steps:
            with _waiting_raises():
                progress = next(steps)
            watched += 1
    assert watched > 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_seeds_side_by_side_are_what_each_is_alone(precision: str) -> None:
    method, seeds = METHODS["er+id"], range(9)  # each with some streams: more than the device has, so they are shared
    alone = [losses(learnt(method, "graph", seed, precision)) for seed in seeds]
    again = [losses(learnt(method, "graph", seed, precision)) for seed in seeds]
    learners = [Learner(config(method, "graph", precision), seed) for seed in seeds]

    def steps(learner: Learner) -> Iterator[object]:
        for task in tasks():
            yield from learner.learning(task)

    for _ in take_turns(map(steps, learners), len(seeds), "cuda"):
        pass
    noise = max(np.abs(np.subtract(one, other)).max() for one, other in zip(alone, again, strict=True))
    together = [np.abs(np.subtract(one, losses(other))).max() for one, other in zip(alone, learners, strict=True)]
    assert max(together) <= max(10 * noise, 1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_half_precision_is_near_single_precision(name: str) -> None:
    single, half = (losses(learnt(METHODS[name], "graph", precision=precision)) for precision in ("fp32", "bf16"))
    assert half[0] == pytest.approx(single[0], rel=0.05)
    assert np.mean(half) == pytest.approx(np.mean(single), rel=0.15)
