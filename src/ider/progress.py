"""Live progress in a terminal: a bar for all runs, a line for each at work. Elsewhere a line for each run that ends."""

import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ider.engine.ledger import Progress as Step
from ider.sweeps.runner import Job

ROOMY = 110
"""Columns of a terminal that has room for everything."""


class Display:
    """An observer of jobs that draws on a console; use it as a context."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total, self.done = console, total, 0
        self.lock = threading.Lock()
        self.share: dict[str, float] = {}
        self.lines: dict[str, TaskID] = {}
        self.speed: dict[str, tuple[float, float]] = {}
        text, percent = TextColumn("{task.description}"), TextColumn("{task.percentage:>3.0f}%")
        columns: tuple[ProgressColumn, ...] = (text, BarColumn(), percent, TimeElapsedColumn(), TimeRemainingColumn())
        if console.width < ROOMY:  # the bar and the time spent give way, not what the words say
            columns = (text, percent, TimeRemainingColumn())
        self.bars = Progress(*columns, console=console, transient=True)
        self.live = console.is_terminal

    def __enter__(self) -> "Display":
        if self.live:
            self.bars.start()
            self.all = self.bars.add_task(f"{self.total} runs", total=self.total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.bars.stop()

    def __call__(self, job: Job, step: Step | None) -> None:
        """Take note of a job's progress, or with None of its end."""
        with self.lock:
            if step is None:
                self._finish(job)
            elif self.live:
                self._advance(job, step)

    def _advance(self, job: Job, step: Step) -> None:
        tasks = 1 if job.config.method.needs().joined else job.config.stream.tasks
        within = (step.epoch + step.step / max(step.steps, 1)) / step.epochs
        self.share[job.name] = (step.task + within) / tasks
        if job.name not in self.lines:
            self.lines[job.name] = self.bars.add_task(job.name, total=1)
        self.bars.update(self.lines[job.name], completed=self.share[job.name], description=self._text(job, step, tasks))
        self.bars.update(self.all, completed=sum(self.share.values()))

    def _text(self, job: Job, step: Step, tasks: int) -> str:
        place = f"task {step.task + 1}/{tasks} epoch {step.epoch + 1}/{step.epochs}"
        loss = "" if step.loss is None else f" loss {step.loss:.3f}"
        return f"{job.name} {place}{loss}{self._rate(job, step)}"

    def _rate(self, job: Job, step: Step) -> str:
        """Current images a second since the job's first report."""
        done = ((step.task * step.epochs + step.epoch) * step.steps + step.step) * job.config.train.batch
        start, count = self.speed.setdefault(job.name, (time.monotonic(), done))
        seconds = time.monotonic() - start
        return f" {(done - count) / seconds:,.0f} images/s" if seconds > 1 else ""

    def _finish(self, job: Job) -> None:
        self.done += 1
        self.share[job.name] = 1.0
        if job.name in self.lines:
            self.bars.remove_task(self.lines.pop(job.name))
        if self.live:
            self.bars.update(self.all, completed=sum(self.share.values()))
        else:
            self.console.print(f"[{self.done}/{self.total}] {job.name} done", markup=False, highlight=False)
