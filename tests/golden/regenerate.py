"""The losses of 20 steps of every method on a fixed slice of the digits. Run this file to write them anew.

`python tests/golden/regenerate.py` prints what changed; a change of losses.json needs a reason in the commit.
"""

import json
import sys
from pathlib import Path

import torch

from ider import Learner, LearnerConfig, Stream, Task, split
from ider.config import EngineConfig, ImageConfig, MemoryConfig, NetConfig, TrainConfig
from ider.data.datasets import digits
from ider.methods import METHODS

LOSSES = Path(__file__).with_name("losses.json")
History = list[dict[str, float]]


def tiny_stream() -> Stream:
    """The first 40 training images of each of the first two tasks: two digits each, 5 steps of 8 an epoch."""
    whole = split(digits(), 5)
    tasks = tuple(Task(task.images[:40], task.labels[:40]) for task in whole.tasks[:2])
    return Stream(tasks, tasks, whole.class_names)


def history(name: str) -> History:
    """What a learner with seed 0 writes down: 2 tasks of 2 epochs of 5 steps (joint: 1 of 2 of 10)."""
    method = METHODS[name]
    config = LearnerConfig(
        method=method,
        net=NetConfig(name="small-conv", width=8, split=1, classes=10),
        memory=MemoryConfig(size=10, policy="class-balanced" if method.needs().memory == "steps" else "auto"),
        train=TrainConfig(epochs=2, batch=8, replay_batch=8, lr=0.03, milestones=(0.5,)),
        images=ImageConfig(mean=(0.3061,), std=(0.3766,), pad=1, flip=True),
        engine=EngineConfig(device="cpu", precision="fp32"),
    )
    stream, learner = tiny_stream(), Learner(config, seed=0)
    for task in (stream.joined() if method.needs().joined else stream).tasks:
        learner.learn(task)
    return learner.history


def main() -> None:
    """Write the losses of all methods."""
    torch.set_num_threads(1)
    old = json.loads(LOSSES.read_text()) if LOSSES.exists() else {}
    new = {name: history(name) for name in METHODS}
    for name in sorted(old.keys() | new.keys()):
        same = json.dumps(old.get(name)) == json.dumps(new.get(name))
        sys.stdout.write(f"{name}: {'unchanged' if same else 'changed'}\n")
    LOSSES.write_text(json.dumps(new, indent=1) + "\n")


if __name__ == "__main__":
    main()
