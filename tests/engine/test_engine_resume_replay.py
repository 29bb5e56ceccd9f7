"""Methods that work between tasks, interrupted in mid-task: the saved learner ends with the bytes of the whole one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from replay import a_learner, tasks

from ider import Learner
from ider.engine.ledger import Progress
from ider.methods import METHODS, BiC
from ider.protocols import Method

SAVED: dict[str, Method] = {name: METHODS[name] for name in ("xder", "xder+id", "icarl", "lucir")}
SAVED["bic"] = BiC(held_out=0.4, fit_epochs=5)
PLACES = {(1, 0, 1), (1, 1, 2), (2, 1, 1)}
"""Task, epoch and step after which the learner is saved."""


def fresh(name: str) -> Learner:
    return a_learner(SAVED[name], size=18, seed=3, momentum=0.5)


def saving(learner: Learner, folder: Path) -> Iterator[Progress]:
    for task in tasks(2, 2, 1):
        for now in learner.learning(task):
            if (now.task, now.epoch, now.step) in PLACES:
                learner.save(folder / f"{now.task}{now.epoch}{now.step}")
            yield now


@pytest.mark.parametrize("name", SAVED)
def test_resumed_it_ends_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    whole = fresh(name)
    steps = list(saving(whole, tmp_path))
    assert len(list(tmp_path.iterdir())) == len(PLACES) < len(steps)
    whole.save(tmp_path / "whole")
    expected = (tmp_path / "whole").read_bytes()
    for place in PLACES:
        resumed = Learner.load(tmp_path / "".join(map(str, place)))
        for task in tasks(2, 2, 1)[place[0] :]:
            resumed.learn(task)
        resumed.save(tmp_path / "resumed")
        assert (tmp_path / "resumed").read_bytes() == expected, place


@pytest.mark.parametrize("name", SAVED)
def test_interrupted_in_one_process_it_goes_on(name: str) -> None:
    whole, stopped = fresh(name), fresh(name)
    for number, task in enumerate(tasks(2, 2)):
        whole.learn(task)
        for now in stopped.learning(task):
            if (now.task, now.epoch, now.step) == (number, 1, 2):
                break
        stopped.learn(task)
    ours, theirs = (learner.model.tensors() for learner in (stopped, whole))
    assert list(ours) == list(theirs)
    assert all(torch.equal(values, theirs[key]) for key, values in ours.items())


@pytest.mark.parametrize("name", SAVED)
def test_the_seed_decides(name: str) -> None:
    first, other = (a_learner(SAVED[name], size=18, seed=seed) for seed in (0, 1))
    again = a_learner(SAVED[name], size=18, seed=0)
    for learner in (first, again, other):
        torch.manual_seed(id(learner) % 1000)  # the global generator must not matter
        for task in tasks(2, 2):
            learner.learn(task)
    one, two, three = (learner.model.tensors() for learner in (first, again, other))
    assert all(torch.equal(values, two[key]) for key, values in one.items())
    assert not torch.equal(one["net/lower.0.conv.weight"], three["net/lower.0.conv.weight"])
