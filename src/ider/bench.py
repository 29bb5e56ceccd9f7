"""How fast a configuration trains on this machine, beside the time that its arithmetic alone would take here.

Images are random: speed does not depend on what they show, and no dataset need be there.
"""

import platform
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from ider.config import RunConfig
from ider.data.published import PUBLISHED
from ider.engine.capture import WARM_UP
from ider.engine.device import resolve
from ider.engine.learner import Learner, Progress
from ider.engine.replicas import take_turns
from ider.streams import Task

SIDES = {"digits": 8, "fashion-mnist": 28, "tiny-imagenet": 64}
EVALUATED = 10_000


@dataclass(frozen=True)
class Measurement:
    """What `measure` found; times are of this machine on this day, `times_floor` says more."""

    benchmark: str
    method: str
    memory: int
    seeds: int
    device: str
    torch: str
    precision: str
    capture: str
    start_s: float
    """From a fresh process's first line to its first step of the second task, compilation included."""
    ms_per_step: float
    """Of one seed: the wall time divided by the steps of all seeds."""
    images_per_s: float
    """Current images, of all seeds together."""
    planning_share: float
    """Host time spent in planning epochs, in percent of the wall time; a GPU is at work meanwhile."""
    transfer_share: float
    evaluation_s: float
    """Both answers to 10,000 images."""
    evaluation_share: float
    """Percent of a whole run of this benchmark that evaluation would take."""
    peak_mb: float
    gflop_per_step: float
    tflops_ceiling: float
    """What a large matrix product reaches here, in this precision."""
    times_floor: float
    """The time a step takes, in units of the time that its arithmetic takes at the ceiling."""


def measure(config: RunConfig, seconds: float = 5.0) -> Measurement:
    """Train all seeds of `config` side by side on random images for so many seconds, in their second task."""
    began = time.perf_counter()
    config = replace(config, engine=resolve(config.engine, len(config.seeds)))
    torch.set_num_threads(config.engine.threads)
    tasks = _tasks(config, _images_of_a_task(config))
    learners = [Learner(_lasting(config, 1), seed) for seed in config.seeds]
    for learner in learners:
        learner.learn(tasks[0])
        learner.config = _lasting(learner.config, 10**6)
    pace = _Pace(learners, tasks[1])
    pace.go(WARM_UP + 1, 0)
    start = time.perf_counter() - began
    if config.engine.capture == "graph":  # the last, smaller batch of an epoch has a graph of its own
        pace.go((WARM_UP + 1) * pace.steps_of_an_epoch, 0)
    before = pace.spent()
    steps, wall = pace.go(1, seconds)
    planning, transfer = (after - start for after, start in zip(pace.spent(), before, strict=True))
    evaluation = _evaluation(learners[0], config)
    flops, ceiling = _flops(config, tasks), _ceiling(config)
    ms = 1000 * wall / steps
    return Measurement(
        benchmark=config.benchmark,
        method=config.recipe,
        memory=config.memory.size,
        seeds=len(learners),
        device=_device_name(config),
        torch=torch.__version__,
        precision=config.engine.precision,
        capture=config.engine.capture,
        start_s=start,
        ms_per_step=ms,
        images_per_s=config.train.batch * steps / wall,
        planning_share=100 * planning / wall,
        transfer_share=100 * transfer / wall,
        evaluation_s=evaluation,
        evaluation_share=_evaluation_share(config, evaluation, ms / 1000),
        peak_mb=_peak_mb(config),
        gflop_per_step=flops / 1e9,
        tflops_ceiling=ceiling / 1e12,
        times_floor=ms / 1000 * ceiling / flops,
    )


class _Pace:
    """Learners that go on and on, side by side, and are timed over a stretch of their way."""

    def __init__(self, learners: list[Learner], task: Task) -> None:
        self.learners = learners
        engine, train = learners[0].config.engine, learners[0].config.train
        self.cuda = engine.device == "cuda"
        self.steps_of_an_epoch = -(-len(task) // train.batch)
        runs: list[Iterator[Progress]] = [learner.learning(task) for learner in learners]
        self.turns = take_turns(runs, len(learners), engine.device)

    def go(self, rounds: int, seconds: float) -> tuple[int, float]:
        """So many steps of every learner and for so long at least: the number of all steps, and the wall time."""
        start, steps = self._now(), 0
        while steps < rounds or time.perf_counter() - start < seconds:
            for _ in self.learners:
                next(self.turns)
            steps += 1
        return steps * len(self.learners), self._now() - start

    def spent(self) -> tuple[float, float]:
        """The host's seconds in planning and in transfer, of all learners."""
        return sum(one.planning_s for one in self.learners), sum(one.transfer_s for one in self.learners)

    def _now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


def _images_of_a_task(config: RunConfig) -> int:
    known = PUBLISHED.get(config.stream.data)
    return (known.images[0] if known else 1258) // config.stream.tasks


def _tasks(config: RunConfig, count: int) -> list[Task]:
    """Two tasks of random images, of the benchmark's shape, with as many classes as its tasks have."""
    side = config.stream.image_size or SIDES.get(config.stream.data, 32)
    classes, rng = _classes(config) // config.stream.tasks, np.random.default_rng(0)
    shape = (count, len(config.images.mean) or 3, side, side)
    return [
        Task(rng.integers(0, 256, shape, np.uint8), np.arange(count) % classes + number * classes)
        for number in range(2)
    ]


def _classes(config: RunConfig) -> int:
    return {"cifar100": 100, "tiny-imagenet": 200}.get(config.stream.data, 10)


def _lasting(config, epochs: int):  # type: ignore[no-untyped-def]
    """The configuration with so many epochs a task, at the rate of the first."""
    train = replace(config.train, epochs=epochs, milestones=())
    net = (
        config.net
        if config.net.classes or not isinstance(config, RunConfig)
        else replace(config.net, classes=_classes(config))
    )
    return replace(config, train=train, net=net)


def _evaluation(learner: Learner, config: RunConfig) -> float:
    images = _tasks(config, EVALUATED)[0].images
    learner.answers(images[:1000])  # libraries choose their kernels
    start = time.perf_counter()
    learner.answers(images)
    return time.perf_counter() - start


def _evaluation_share(config: RunConfig, evaluation: float, step: float) -> float:
    """Every task's test set is answered after each task from its own on, once just before it, and at both ends."""
    known, tasks = PUBLISHED.get(config.stream.data), config.stream.tasks
    tests = (known.images[1] if known else 539) / tasks
    answered = tests * (tasks * (tasks + 1) / 2 + (tasks - 1) + 2 * tasks)
    training = step * config.train.epochs * tasks * -(-_images_of_a_task(config) // config.train.batch)
    spent = evaluation * answered / EVALUATED
    return 100 * spent / (spent + training)


def _flops(config: RunConfig, tasks: list[Task]) -> int:
    """The floating-point operations of one step of the second task, as PyTorch counts them."""
    plain = replace(config.engine, capture="off")
    learner = Learner(
        replace(_lasting(config, 1), engine=plain, memory=replace(config.memory, size=max(config.memory.size, 1)))
    )
    batch = max(config.train.batch, config.train.replay_batch)
    first, second = (Task(task.images[:batch], task.labels[:batch]) for task in tasks)
    learner.learn(first)
    with FlopCounterMode(display=False) as counter:
        learner.learn(Task(second.images[: config.train.batch], second.labels[: config.train.batch]))
    return int(counter.get_total_flops())


def _ceiling(config: RunConfig) -> float:
    """Operations a second in a large matrix product of random numbers."""
    cuda = config.engine.device == "cuda"
    side = 8192 if cuda else 2048
    dtype = torch.bfloat16 if config.engine.precision == "bf16" else torch.float32
    left, right = (torch.randn(side, side, device=config.engine.device).to(dtype) for _ in range(2))
    return 2 * side**3 / min(_seconds(lambda: left @ right, cuda) for _ in range(8))


def _seconds(work: Callable[[], object], cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _peak_mb(config: RunConfig) -> float:
    if config.engine.device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if platform.system() == "Darwin" else peak / 1e3


def _device_name(config: RunConfig) -> str:
    if config.engine.device == "cuda":
        return torch.cuda.get_device_name()
    return f"cpu ({config.engine.threads} threads)"
