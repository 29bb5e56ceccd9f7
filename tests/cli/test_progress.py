"""The progress display: everything it promises on a narrow terminal too, and next to nothing where there is none."""

import io
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ider import recipe
from ider.engine.ledger import Progress
from ider.progress import Display
from ider.sweeps.runner import Job


def job_of(name: str) -> Job:
    return Job(replace(recipe("cifar100", name), recipe=name), 0, Path("nowhere"))


def shown(width: int, terminal: bool) -> str:
    """What a console has been told about a run that is half-way through its eighth task, and ends."""
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, legacy_windows=False)
    job = job_of("er-matched")
    with Display(console, 4) as display:
        display.speed[job.name] = (time.monotonic() - 100, 0)
        display(job, Progress(task=7, epoch=24, epochs=50, step=157, steps=157, loss=1.25))
        if terminal:
            display.bars.refresh()
        display(job, None)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_is_told_task_epoch_loss_speed_and_time_left(width: int) -> None:
    text = shown(width, terminal=True)
    assert re.search(r"er-matched seed 0 task 8/10 epoch 25/50 loss 1\.250 \d{2},\d{3} images/s .*75% .*-:--:--", text)
    assert "4 runs" in text
    assert "…" not in text  # nothing is cut short


def test_what_is_no_terminal_gets_a_line_a_run() -> None:
    assert shown(80, terminal=False) == "[1/4] er-matched seed 0 done\n"
