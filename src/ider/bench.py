"""How fast a configuration trains on this machine, beside the time that its arithmetic alone would take here.

Images are random: speed does not depend on what they show, and no dataset need be there.
"""

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from ider.config import LearnerConfig, RunConfig
from ider.data.published import PUBLISHED
from ider.engine.capture import WARM_UP
from ider.engine.device import compute_dtype, device_name, resolve
from ider.engine.learner import Learner
from ider.engine.ledger import Progress
from ider.engine.replicas import take_turns
from ider.streams import Task

EVALUATED = 10_000
_DIGITS = (1258, 539)


def _told(text: str) -> Any:
    """A field, and what is to be said of it."""
    return field(metadata={"help": text})


@dataclass(frozen=True)
class Measurement:
    """What `measure` found. Times are of this machine on this day; `times_floor` compares better."""

    benchmark: str = _told("whose images and settings")
    method: str = _told("the recipe")
    memory: int = _told("slots")
    seeds: int = _told("runs side by side")
    device: str = _told("what the arithmetic runs on")
    torch: str = _told("its version")
    precision: str = _told("of convolutions and matrix products")
    capture: str = _told("how a step runs")
    ms_per_step: float = _told("of one run: wall time over the steps of all, planning and transfer included")
    times_floor: float = _told("the same in units of the time that its arithmetic takes at tflops_ceiling")
    images_per_s: float = _told("current images, of all runs together")
    planning_percent: float = _told("the host's time in planning epochs, of the wall time; a GPU is at work meanwhile")
    transfer_percent: float = _told("the host's time in handing plans to the device, of the wall time")
    evaluation_s: float = _told("both answers to 10,000 images")
    evaluation_percent: float = _told("what evaluation would take of a whole run of this benchmark")
    start_s: float = _told("to full speed in the second task: an epoch of the first, warming up, compiling, recording")
    peak_mb: float = _told("the most memory of the device; on the CPU of the process")
    gflop_per_step: float = _told("floating-point operations of a step, in 10^9")
    tflops_ceiling: float = _told("what a large matrix product reaches here in this precision, in 10^12 a second")


def measure(config: RunConfig, seconds: float = 5.0) -> Measurement:
    """Train all seeds of `config` side by side on random images for so many seconds, in their second task."""
    began = time.perf_counter()
    bench = _Bench(config)
    pace = bench.start()
    start = time.perf_counter() - began
    before = pace.spent()
    steps, wall = pace.go(1, seconds)
    planning, transfer = (after - earlier for after, earlier in zip(pace.spent(), before, strict=True))
    evaluation, step = bench.evaluation(pace.learners[0]), wall / steps
    peak, flops, ceiling = bench.peak_mb(), bench.flops(), bench.ceiling()
    return Measurement(
        benchmark=config.benchmark,
        method=config.recipe,
        memory=config.memory.size,
        seeds=len(config.seeds),
        device=device_name(bench.config.engine),
        torch=torch.__version__,
        precision=bench.config.engine.precision,
        capture=bench.config.engine.capture,
        ms_per_step=1000 * step,
        times_floor=step * ceiling / flops,
        images_per_s=config.train.batch / step,
        planning_percent=100 * planning / wall,
        transfer_percent=100 * transfer / wall,
        evaluation_s=evaluation,
        evaluation_percent=bench.evaluation_percent(evaluation, step),
        start_s=start,
        peak_mb=peak,
        gflop_per_step=flops / 1e9,
        tflops_ceiling=ceiling / 1e12,
    )


class _Bench:
    """One configuration, its random tasks, and what is measured beside the training."""

    def __init__(self, config: RunConfig) -> None:
        at_once = len(config.seeds)
        self.config = replace(config, engine=resolve(replace(config.engine, at_once=at_once), at_once))
        self.cuda = self.config.engine.device == "cuda"
        known = PUBLISHED.get(config.stream.data)
        self.images, self.tests = (count // config.stream.tasks for count in (known.images if known else _DIGITS))
        self.classes = {"cifar100": 100, "tiny-imagenet": 200}.get(config.stream.data, 10)
        self.tasks = [self._task(number, self.images) for number in range(2)]
        torch.set_num_threads(self.config.engine.threads)

    def start(self) -> "_Pace":
        """Learners of all seeds in the second task, at full speed."""
        learners = [Learner(self._lasting(1), seed) for seed in self.config.seeds]
        for learner in learners:
            learner.learn(self.tasks[0])
            learner.config = replace(learner.config, train=self._lasting(10**6).train)
        pace = _Pace(learners, self.tasks[1])
        # Each shape of step is recorded after some runs of it, and the last batch of an epoch has a shape of its own.
        epoch = -(-self.images // self.config.train.batch)
        pace.go((WARM_UP + 1) * (epoch if self.config.engine.capture == "graph" else 1), 0)
        return pace

    def evaluation(self, learner: Learner) -> float:
        """Seconds for both answers to `EVALUATED` images."""
        images = self._task(0, EVALUATED).images
        learner.answers(images[:1000])  # libraries choose their kernels
        return self._seconds(lambda: learner.answers(images))

    def evaluation_percent(self, seconds: float, step: float) -> float:
        """A test set is answered after each task from its own on, just before its own, and at both ends of a run."""
        tasks, train = self.config.stream.tasks, self.config.train
        answered = self.tests * (tasks * (tasks + 1) / 2 + (tasks - 1) + 2 * tasks)
        training = step * train.epochs * tasks * -(-self.images // train.batch)
        spent = seconds * answered / EVALUATED
        return 100 * spent / (spent + training)

    def peak_mb(self) -> float:
        """The most memory so far."""
        if self.cuda:
            return torch.cuda.max_memory_allocated() / 1e6
        import resource  # POSIX only

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if platform.system() == "Darwin" else peak / 1e3

    def flops(self) -> int:
        """The floating-point operations of one step of the second task, as PyTorch counts them.

        What a method does before and after a task is no step.
        """
        config = self._lasting(2)
        learner = Learner(replace(config, engine=replace(config.engine, capture="off")))
        train = self.config.train
        learner.learn(self._task(0, max(train.batch, train.replay_batch)))
        steps, counts = learner.learning(self._task(1, 3 * train.batch)), []
        next(steps)
        for _ in range(2):  # of an epoch over a small memory one may be the last, with fewer images
            with FlopCounterMode(display=False) as counter:
                next(steps)
            counts.append(int(counter.get_total_flops()))
        return max(counts)

    def ceiling(self) -> float:
        """Operations a second in a large product of random matrices."""
        side = 8192 if self.cuda else 2048
        dtype = compute_dtype(self.config.engine)
        left, right = (torch.randn(side, side, device=self.config.engine.device).to(dtype) for _ in range(2))
        return float(2 * side**3 / min(self._seconds(lambda: left @ right) for _ in range(8)))

    def _task(self, number: int, count: int) -> Task:
        """Random images of the benchmark's shape, with as many classes as its tasks have."""
        known = {"digits": 8, "fashion-mnist": 28, "tiny-imagenet": 64}.get(self.config.stream.data, 32)
        side, classes = self.config.stream.image_size or known, self.classes // self.config.stream.tasks
        shape = (count, len(self.config.images.mean) or 3, side, side)
        images = np.random.default_rng(number).integers(0, 256, shape, np.uint8)
        return Task(images, np.arange(count) % classes + number * classes)

    def _lasting(self, epochs: int) -> LearnerConfig:
        """The configuration with so many epochs a task and a head for all classes."""
        net = replace(self.config.net, classes=self.config.net.classes or self.classes)
        return replace(self.config, net=net, train=replace(self.config.train, epochs=epochs))

    def _seconds(self, work: Callable[[], object]) -> float:
        start = _now(self.cuda)
        work()
        return _now(self.cuda) - start


class _Pace:
    """Learners that go on and on, side by side, and are timed over a stretch of their way."""

    def __init__(self, learners: list[Learner], task: Task) -> None:
        self.learners = learners
        runs: list[Iterator[Progress]] = [learner.learning(task) for learner in learners]
        self.turns = take_turns(runs, len(learners), learners[0].config.engine.device)
        self.cuda = learners[0].config.engine.device == "cuda"

    def go(self, rounds: int, seconds: float) -> tuple[int, float]:
        """So many steps of every learner, and on for so long at least: the steps of all, and the wall time."""
        start, done = _now(self.cuda), 0
        while done < rounds or time.perf_counter() - start < seconds:
            for _ in self.learners:
                next(self.turns)
            done += 1
        return done * len(self.learners), _now(self.cuda) - start

    def spent(self) -> tuple[float, float]:
        """The host's seconds in planning and in transfer, of all learners."""
        return sum(one.planning_s for one in self.learners), sum(one.transfer_s for one in self.learners)


def _now(cuda: bool) -> float:
    """The time once the device has done its work."""
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter()
