"""The losses of 20 steps of every method are those on file: whoever changes one of them notices and says why."""

import json
import runpy
from pathlib import Path

import pytest

from ider.methods import METHODS

HERE = Path(__file__).parent
KNOWN = json.loads((HERE / "losses.json").read_text())
RUN = runpy.run_path(str(HERE / "regenerate.py"))


def test_every_method_and_no_other_is_on_file() -> None:
    assert list(KNOWN) == list(METHODS), "run python tests/golden/regenerate.py"


@pytest.mark.parametrize("name", METHODS)
def test_the_losses_are_those_on_file(name: str) -> None:
    found = RUN["history"](name)
    assert len(found) == len(KNOWN[name])
    for epoch, known in zip(found, KNOWN[name], strict=True):
        assert epoch == pytest.approx(known, rel=1e-4), "if it is meant: python tests/golden/regenerate.py"


def test_the_slice_has_twenty_steps_of_two_tasks() -> None:
    stream = RUN["tiny_stream"]()
    assert [len(task) for task in stream.tasks] == [40, 40]
    assert [task.classes for task in stream.tasks] == [(0, 1), (2, 3)]
    assert len(stream.joined().tasks[0]) / 8 * 2 == 20
