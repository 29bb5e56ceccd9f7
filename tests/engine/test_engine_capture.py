"""A compiled step does what the plain one does, for every method and phase, and is compiled once a shape."""

import shutil
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from ider import METHODS, Learner, Task
from ider.config import EngineConfig, LearnerConfig, MemoryConfig, NetConfig, TrainConfig
from ider.engine import capture
from ider.protocols import Method

CLASSES, SHAPE = 4, (1, 6, 6)


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(capture, "_COMPILED", {})
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def tasks() -> list[Task]:
    """Two tasks whose last batch is smaller than the others."""
    rng = np.random.default_rng(0)
    return [Task(rng.integers(0, 256, (18, *SHAPE)).astype(np.uint8), first + np.arange(18) % 2) for first in (0, 2)]


def learnt(method: Method, mode: str) -> Learner:
    config = LearnerConfig(
        method=method,
        net=NetConfig(name="small-conv", width=4, split=1, classes=CLASSES),
        memory=MemoryConfig(size=9),
        train=TrainConfig(epochs=2, batch=4, replay_batch=4, lr=0.01),
        engine=EngineConfig(device="cpu", precision="fp32", capture=mode),
    )
    learner = Learner(config, seed=3)
    for task in tasks():
        learner.learn(task)
    return learner


def assert_alike(one: Learner, other: Learner) -> None:
    """All that is learnt and kept is the same up to rounding."""
    pairs = zip(one.model.tensors().items(), other.model.tensors().values(), strict=True)
    for (name, mine), theirs in pairs:
        torch.testing.assert_close(theirs, mine, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def compiling_with(backend: str, monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    counter, compile_ = CompileCounterWithBackend(backend), torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: compile_(function, backend=counter, **options))
    return counter


@pytest.mark.parametrize("name", METHODS)
def test_one_graph_and_the_same_weights_for_every_method(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = learnt(METHODS[name], "off")
    counter = compiling_with("eager", monkeypatch)
    other = learnt(METHODS[name], "compile")
    assert counter.frame_count > 0
    assert_alike(plain, other)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler of compiled steps needs g++")
def test_what_the_real_compiler_makes_of_a_step_gives_the_same_weights() -> None:
    assert_alike(learnt(METHODS["er+id"], "off"), learnt(METHODS["er+id"], "compile"))


def test_a_step_that_would_be_compiled_again_after_warming_up_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling_with("eager", monkeypatch)
    rows = [4]

    def step() -> None:
        capture.compiled(torch.sin)(torch.zeros(rows[0]))

    watched = capture.capture(step, "compile")
    for _ in range(capture.WARM_UP + 2):
        watched()
    rows[0] = 5
    with pytest.raises(RuntimeError, match="recompile"):
        watched()
