"""A learner of any method that is saved in mid-task and loaded ends with the bytes of the one that was not."""

from pathlib import Path

import pytest
from support import tiny_learner, tiny_tasks

from ider import Learner
from ider.methods import METHODS


def finished(learner: Learner, file: Path) -> bytes:
    learner.save(file)
    return file.read_bytes()


@pytest.mark.parametrize("name", METHODS)
def test_saved_in_mid_task_it_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    """In the first and in the second task, within an epoch, before and after the second epoch's rate has fallen.

    With momentum, a memory that is full only in the second task, and a head that grows.
    """
    tasks, saved, files = tiny_tasks(2, images=18), [(0, 1, 2), (1, 0, 3), (1, 1, 1)], {}
    whole = tiny_learner(METHODS[name], size=37, classes=0, momentum=0.5, milestones=(0.5,))
    for task in tasks:
        for now in whole.learning(task):
            where = (now.task, now.epoch, now.step)
            if where in saved:
                files[where] = tmp_path / "-".join(map(str, where))
                whole.save(files[where])
    expected = finished(whole, tmp_path / "whole")
    assert len(files) == len(saved)
    for (number, epoch, step), file in files.items():
        rest = Learner.load(file)
        assert (rest.tasks_learned, rest.epoch, rest.step) == (number, epoch, step)
        for task in tasks[number:]:
            rest.learn(task)
        assert finished(rest, tmp_path / "rest") == expected, (number, epoch, step)
