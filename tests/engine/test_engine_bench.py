"""`ider bench`: the operations of a step are those of the step alone."""

from dataclasses import replace

from ider import METHODS, recipe
from ider.bench import measure
from ider.config import EngineConfig, MemoryConfig, NetConfig
from ider.methods import BiC
from ider.protocols import Method


def gflop(method: Method) -> float:
    config = replace(
        recipe("digits", "er"),
        method=method,
        net=NetConfig(name="small-conv", width=4, label_input=False),
        memory=MemoryConfig(size=40),
        engine=EngineConfig(device="cpu", precision="fp32", threads=1),
    )
    return measure(config, seconds=0).gflop_per_step


def test_what_a_method_does_between_tasks_is_no_step() -> None:
    plain = gflop(METHODS["finetune"])
    taught = gflop(BiC(fit_epochs=0))
    assert gflop(BiC(fit_epochs=20)) == gflop(METHODS["icarl"]) == taught
    assert gflop(METHODS["gdumb"]) == plain  # a step of 32 images of the memory, though its last one has 8
    assert plain < taught < 2 * plain  # the old net's forward pass
