"""Steps with much of their own arithmetic are one graph: no wait for the host, no break, and traced once a shape."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from ider import Learner, LearnerConfig, Task
from ider.config import EngineConfig, MemoryConfig, NetConfig, TrainConfig
from ider.engine import capture
from ider.methods import CLSER, NPCL, SARL, Idempotent
from ider.protocols import Method

METHODS: dict[str, Method] = {
    "npcl": NPCL(draws=2, latent=8, heads=2, decoder=9),
    "sarl, online": SARL(warm_up_steps=2),
    "cls-er+id, joint call": Idempotent(base=CLSER(mixed=True)),
}


def tasks() -> list[Task]:
    rng = np.random.default_rng(0)
    shape = (30, 1, 6, 6)
    return [Task(rng.integers(0, 256, shape).astype(np.uint8), 2 * n + np.arange(30) % 2) for n in range(2)]


def weights(method: Method, mode: Any) -> list[torch.Tensor]:
    config = LearnerConfig(
        method=method,
        net=NetConfig(name="small-conv", width=3, classes=4),
        memory=MemoryConfig(size=5),
        train=TrainConfig(epochs=1, batch=5, replay_batch=4, lr=0.01),
        engine=EngineConfig(device="cpu", precision="fp32", capture="off", threads=1),
    )
    learner = Learner(dataclasses.replace(config, engine=dataclasses.replace(config.engine, capture=mode)), seed=0)
    for task in tasks():
        learner.learn(task)
    return list(learner.model.tensors().values())


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_traced_step_is_the_step(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backend that runs what was traced as it is; a break or a second trace would raise."""
    traced: list[Any] = []

    def compiled(function: Any) -> Any:
        traced.append(function)
        return torch.compile(function, fullgraph=True, dynamic=False, backend="eager")

    monkeypatch.setattr("ider.engine.step.compiled", compiled)
    assert capture.compiled is not compiled
    for mine, theirs in zip(weights(method, "compile"), weights(method, "off"), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    assert traced
