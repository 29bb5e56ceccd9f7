"""Runs in parallel processes. What is finished is kept, what is half done goes on, a failure does not stop the rest."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path

from ider.config import RunConfig
from ider.engine.learner import Progress
from ider.engine.run import run
from ider.errors import RunError

REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """One seed of one configuration, and its folder."""

    config: RunConfig
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.config.recipe} seed {self.seed}"


Observer = Callable[[Job, Progress | None], None]
"""Told of each job's progress, with None at its end."""


def workers_for(jobs: int, device: str) -> int:
    """How many runs to have at work at once: one a core on the CPU, one on a GPU."""
    return 1 if device == "cuda" else max(1, min(jobs, os.cpu_count() or 1))


def execute(jobs: Sequence[Job], workers: int, observer: Observer) -> None:
    """Do all jobs; if some fail, do the others first and then say which failed and why."""
    failures = _in_processes(jobs, workers, observer) if workers > 1 else _in_turn(jobs, observer)
    if failures:
        lines = "\n".join(f"  {name}: {reason}" for name, reason in failures.items())
        raise RunError(f"{len(failures)} of {len(jobs)} runs failed:\n{lines}")


def _in_turn(jobs: Sequence[Job], observer: Observer) -> dict[str, str]:
    failures = {}
    for job in jobs:
        try:
            run(job.config, job.seed, job.folder, _Reporter(lambda progress, job=job: observer(job, progress)))  # type: ignore[misc]
            observer(job, None)
        except (RunError, OSError) as error:
            failures[job.name] = str(error)
    return failures


def _in_processes(jobs: Sequence[Job], workers: int, observer: Observer) -> dict[str, str]:
    context = multiprocessing.get_context("spawn")
    news: Queue[tuple[int, Progress | None] | None] = context.Queue()
    relay = threading.Thread(target=_relay, args=(news, jobs, observer), daemon=True)
    relay.start()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (news,))
    futures = [pool.submit(_work, number, job) for number, job in enumerate(jobs)]
    try:
        return {job.name: reason for job, future in zip(jobs, futures, strict=True) if (reason := _outcome(future))}
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        news.put(None)
        relay.join()


def _outcome(future: "Future[None]") -> str | None:
    """Why a job failed, if it did. A user's mistake is nobody's failure: it goes up."""
    try:
        future.result()
    except BrokenProcessPool:
        return "its process died (killed, or out of memory?); what it had saved is kept"
    except (RunError, OSError) as error:
        return str(error)
    return None


class _Reporter:
    """Passes on at most one report in a while: a step of a small net takes less time than telling of it."""

    def __init__(self, report: Callable[[Progress], None]) -> None:
        self.report, self.next = report, 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self.next:
            self.next = now + REPORT_SECONDS
            self.report(progress)


_news: "Queue[tuple[int, Progress | None] | None] | None" = None


def _start_worker(news: "Queue[tuple[int, Progress | None] | None]") -> None:
    global _news
    _news = news
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and ends its workers


def _work(number: int, job: Job) -> None:
    assert _news is not None
    news = _news
    run(job.config, job.seed, job.folder, _Reporter(lambda progress: news.put((number, progress))))
    news.put((number, None))


def _relay(news: "Queue[tuple[int, Progress | None] | None]", jobs: Sequence[Job], observer: Observer) -> None:
    while (message := news.get()) is not None:
        number, progress = message
        observer(jobs[number], progress)
