"""Checks of a method at work: a learner takes it through two small tasks, hooks and all."""

from typing import Any

import numpy as np
import torch

from ider.config import EngineConfig, LearnerConfig, MemoryConfig, NetConfig, TrainConfig
from ider.contract.stage import CLASSES, LATER, SHAPE, stage
from ider.contract.words import demand, listed
from ider.engine.learner import Learner
from ider.protocols import Method
from ider.streams import Task
from ider.types import CURRENT, Batch, Outcome


class Witness:
    """A method that notes what the engine gives to the one underneath: parts, coins, and whether there is a teacher."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.seen: list[tuple[set[str], set[str], bool]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def step(self, net: Any, teacher: Any, batch: Batch) -> Outcome:
        """The step underneath."""
        needs = self.method.needs()
        drawn = {name for name in batch.images.sizes if name != CURRENT}
        given = {
            "mixed": batch.images.mixed is batch.labels.mixed is needs.mixed,
            "stored": set(batch.stored) <= {item.name for item in needs.stores},
            "side": (batch.side is None) == (needs.side is None),
            "views": (batch.views is None) == (needs.views is None),
            "slots": set(batch.slots.sizes) == drawn,
            "dice": set(batch.dice) == drawn & set(needs.dice),
        }
        demand(all(given.values()), f"the engine does not give what it asks for: {given}")
        self.seen.append((set(batch.images.sizes), set(batch.coins), teacher is not None))
        return self.method.step(net, teacher, batch)


def config(method: Method) -> LearnerConfig:
    """A learner of the small net with a memory of five."""
    return LearnerConfig(
        method=method,
        net=NetConfig(name="small-conv", width=4, split=1, classes=CLASSES),
        memory=MemoryConfig(size=5),
        train=TrainConfig(epochs=1, batch=4, replay_batch=4, lr=0.01),
        engine=EngineConfig(device="cpu", precision="fp32", capture="off"),
    )


def two_tasks() -> list[Task]:
    """Six images of two classes each."""
    rng = np.random.default_rng(0)
    return [Task(rng.integers(0, 256, (6, *SHAPE)).astype(np.uint8), first + np.arange(6) % 2) for first in (0, 2)]


def learns(method: Method) -> None:
    """A learner takes it through two tasks: every weight moves, and what is logged is the sum of the terms."""
    tasks = two_tasks()
    learner = Learner(config(method)).learn(tasks[0])
    before = {name: weight.clone() for name, weight in learner.net.named_parameters()}
    learner.learn(tasks[1])
    still = [name for name, weight in learner.net.named_parameters() if torch.equal(weight, before[name])]
    demand(not still, f"in the second task the weights {listed(still[:3])} do not move")
    teacher, asked = learner.teacher, method.needs().teacher
    demand((teacher is not None) == (asked is not None), "the teacher is not there as asked for")
    if teacher is not None and asked is not None:
        modes = {module.training for module in teacher.modules()}
        demand(modes == {asked.statistics == "batch"}, "the teacher does not normalise as asked for")
    for entry in learner.history:
        terms = [value for name, value in entry.items() if name not in ("task", "epoch", "loss")]
        demand(np.isfinite(entry["loss"]), f"the loss is {entry['loss']} in task {entry['task']}")
        demand(
            abs(entry["loss"] - sum(terms)) <= 1e-5 * max(1, abs(entry["loss"])), "the loss is not the sum of its terms"
        )
    known, found = set(stage(method, LATER).terms(method)), set(learner.history[-1]) - {"task", "epoch", "loss"}
    demand(
        known == found,
        f"from the second task on its terms are {listed(sorted(known))}, at work {listed(sorted(found))}",
    )
    answers = learner.predict_proba(tasks[0].images)
    demand(np.isfinite(answers).all(), "its predictions are not finite")


def is_given(method: Method) -> None:
    """A learner gives it what it asks for, when it is due, and nothing else."""
    witness, needs = Witness(method), method.needs()
    learner = Learner(config(witness))
    for task in two_tasks():
        learner.learn(task)
    always = {CURRENT, *(draw.name for draw in needs.draws if not draw.later)}
    later, teaches = {CURRENT, *(draw.name for draw in needs.draws)}, needs.teacher is not None
    first = [{CURRENT}, always] if needs.memory == "steps" else [{CURRENT}]
    expected = [(parts, parts & set(needs.coins), False) for parts in first]
    expected += [(later, later & set(needs.coins), teaches)]
    seen, due = _once(witness.seen), _once(expected)
    demand(seen == due, f"it was given (parts, coins, teacher) {seen}, but {due} was due")


def _once(things: list[Any]) -> list[Any]:
    return [thing for number, thing in enumerate(things) if thing not in things[:number]]
