"""Many runs, side by side. What is finished is kept, what is half done goes on, a failure does not stop the rest."""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.queues import Queue
from pathlib import Path

from ider.config import EngineConfig, RunConfig
from ider.engine.device import resolve
from ider.engine.ledger import Progress
from ider.engine.replicas import take_turns
from ider.engine.run import run, running
from ider.errors import RunError, UserError
from ider.methods import METHODS
from ider.records import RECORD
from ider.streams import build

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


def execute(jobs: Sequence[Job], observer: Observer) -> None:
    """Do all jobs; if some fail, do the others first and then say which failed and why.

    As many at once as their engine says: on a GPU, whose steps overlap, in this process; on the CPU in processes.
    """
    done = {job.folder for job in jobs if (job.folder / RECORD).exists()}
    for job in jobs:
        if job.folder in done:
            observer(job, None)
    left = [job for job in jobs if job.folder not in done]
    if not left:
        return
    engine = resolve(left[0].config.engine, len(left))
    here = engine.device == "cuda" or engine.at_once == 1
    failures = _here(left, engine, observer) if here else _in_processes(left, engine.at_once, observer)
    if failures:
        lines = "\n".join(f"  {name}: {reason}" for name, reason in failures.items())
        raise RunError(f"{len(failures)} of {len(jobs)} runs failed:\n{lines}")


def _here(jobs: Sequence[Job], engine: EngineConfig, observer: Observer) -> dict[str, str]:
    """Do the jobs side by side in this process; those on the same data share it."""
    failures: dict[str, str] = {}
    shared = cache(build)

    def steps(job: Job) -> Iterator[Progress]:
        try:
            stream = shared(job.config.stream, job.config.engine.data_dir)
            yield from running(job.config, job.seed, job.folder, stream)
        except (RunError, OSError) as error:
            failures[job.name] = str(error)

    reporters = [_Reporter(partial(observer, job)) for job in jobs]
    for number, progress in take_turns(map(steps, jobs), engine.at_once, engine.device):
        if progress is not None:
            reporters[number](progress)
        elif jobs[number].name not in failures:
            observer(jobs[number], None)
    return failures


def _in_processes(jobs: Sequence[Job], workers: int, observer: Observer) -> dict[str, str]:
    context = multiprocessing.get_context("spawn")
    news: Queue[tuple[int, Progress | None] | None] = context.Queue()
    relay = threading.Thread(target=_relay, args=(news, jobs, observer), daemon=True)
    relay.start()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (news, METHODS.others()))
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


def _start_worker(news: "Queue[tuple[int, Progress | None] | None]", methods: Sequence[str]) -> None:
    global _news
    _news = news
    for name in methods:  # before the first job, whose method it may be
        with suppress(UserError):  # a name given in a script's main part, which is not run here
            METHODS.load(name)
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
