"""The learner: net, method, memory and optimiser; it learns task after task and answers at any time.

A learner keeps nothing of a task but what its memory holds. All its state fits into one file, also in the middle of an
epoch: `save` it there, `load` it and call `learn` with the same task, and it goes on as if nothing had happened.
"""

import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ider import randomness
from ider.config import EngineConfig, LearnerConfig, as_dict, from_dict
from ider.data.augment import normalise
from ider.engine import checkpoint
from ider.engine.answers import Answer, Answers, Probabilities
from ider.engine.capture import Step, capture
from ider.engine.device import casting, compute_dtype, resolve
from ider.engine.ledger import Ledger
from ider.engine.optim import learning_rate, momentum_of, restore_momentum, set_learning_rate, sgd
from ider.engine.step import Phase, Workbench
from ider.errors import UserError
from ider.memory.plan import Schedule, Segment, plan_epoch
from ider.memory.policy import POLICIES, Slots
from ider.memory.store import MemoryStore
from ider.nets import NETS, Shape, TwoInputNet
from ider.streams.stream import Images, Task

EVALUATION_ROWS = 512


@dataclass(frozen=True)
class Progress:
    """Where training stands: `step` of `steps` done in `epoch` (from 0) of `epochs`, in `task` (from 0)."""

    task: int
    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float | None
    """The mean loss of the epoch before; reading the running one would hold the device up."""


Listener = Callable[[Progress], None]
Phases = dict[tuple[tuple[str, int], ...], tuple[Phase, Step]]
"""By the sizes of the parts: the phase, and its step as captured."""


class Learner:
    """A class-incremental learner. Labels are whole numbers from 0, and new ones may come with any task."""

    def __init__(self, config: LearnerConfig, seed: int = 0) -> None:
        self.config = replace(config, engine=resolve(config.engine))
        self.seed = seed
        self.device = torch.device(self.config.engine.device)
        self.slots = Slots.empty(config.memory.size)
        self.seen: tuple[int, ...] = ()
        self.tasks_learned = self.epoch = self.step = 0
        self.planning_s = self.transfer_s = 0.0
        """The host's time in planning epochs, and in bringing the plans to the device."""
        self._ledger = Ledger()
        self.teacher: TwoInputNet | None = None
        self._net: TwoInputNet | None = None
        self._memory: MemoryStore | None = None
        self._image_shape: tuple[int, ...] = ()
        self._bench: Workbench | None = None
        self._phases: Phases = {}
        self._pool: Any = None  # of the memory that all graphs of the phases share, since they run in turn
        self._loaded: int | None = None  # the mark of the task whose images are on the device
        self._unfinished: checkpoint.Tensors = {}
        self._task_mark = 0
        self._generators = randomness.generators(seed)
        self._generator_states = randomness.states(self._generators)

    @property
    def net(self) -> TwoInputNet:
        """The net; it exists once the first task has shown the shape of the images."""
        if self._net is None:
            raise UserError("this learner has seen no images yet: call learn first")
        return self._net

    @property
    def memory(self) -> MemoryStore:
        """The memory, which exists as soon as the net does."""
        if self._memory is None:
            raise UserError("this learner has seen no images yet: call learn first")
        return self._memory

    @property
    def history(self) -> list[dict[str, float]]:
        """The mean of each loss in each epoch so far."""
        return self._ledger.settle()

    def prepare(self, images: Images, classes: int = 0) -> None:
        """Build the net for images of this kind; `learn` does so by itself with its first task."""
        if self._net is None:
            width = max(classes, self.config.net.classes)
            if not width:
                raise UserError(
                    "this learner has learnt no class yet, and net.classes does not say how many there will be"
                )
            config = self.config.images
            if not config.mean:
                known = replace(config, mean=_per_channel(images, np.mean), std=_per_channel(images, _spread))
                self.config = replace(self.config, images=known)
            self._build(images.shape[1:], width)
        elif images.shape[1:] != self._image_shape:
            raise UserError(f"images are of shape {images.shape[1:]}; this learner was built for {self._image_shape}")

    def learn(self, task: Task, listener: Listener | None = None) -> "Learner":
        """Learn one task; `listener` is told of every step. After `load` in mid-task, go on with that task."""
        for progress in self.learning(task):
            if listener is not None:
                listener(progress)
        return self

    def learning(self, task: Task) -> Iterator[Progress]:
        """The same step by step, as the iterator is advanced; a GPU may still be at work on the step that is told."""
        mark = zlib.crc32(task.labels.tobytes(), zlib.crc32(task.images.tobytes()))
        if self.epoch == self.step == 0:
            self._task_mark, self._loaded = mark, None
            self.prepare(task.images, task.classes[-1] + 1)
            self._meet(task)
        elif mark != self._task_mark:
            raise UserError("this learner is in the middle of another task; give it that task to go on with")
        # An interrupted call has planned its epoch already, and its task may still be in place.
        randomness.restore(self._generators, self._generator_states)
        if self._loaded != mark:
            self._load(task)
            self._loaded = mark
        while self.epoch < self.config.train.epochs:
            yield from self._learn_epoch(task)
        self._finish_task()

    def answers(self, images: Images) -> Answers:
        """The logits of the first and the second answer over all classes of the head."""
        images = np.asarray(images)
        if images.dtype != np.uint8 or images.ndim != 4:
            raise UserError(
                f"images are uint8 of shape (N, channels, height, width), not {images.dtype} of {images.shape}"
            )
        self.prepare(images)
        was_training = self.net.training
        self.net.eval()
        with torch.inference_mode(), casting(self.config.engine):
            chunks = [
                self._answer(images[start : start + EVALUATION_ROWS])
                for start in range(0, max(len(images), 1), EVALUATION_ROWS)
            ]
        self.net.train(was_training)
        first, second = (torch.cat(part).float().cpu().numpy() for part in zip(*chunks, strict=True))
        return Answers(first, second)

    def predict_proba(self, images: Images, answer: Answer = "first") -> Probabilities:
        """The probability of each class, one column a class of the head; zero for classes not seen yet."""
        return self.answers(images).probabilities(answer, self.seen)

    def predict(self, images: Images, answer: Answer = "first") -> NDArray[np.int64]:
        """The likeliest of the classes seen."""
        likeliest: NDArray[np.int64] = self.predict_proba(images, answer).argmax(1)
        return likeliest

    def uncertainty(self, images: Images) -> NDArray[np.float64]:
        """How far the second answer is from the first (L2 distance of probabilities); 0: the net agrees with itself."""
        answers = self.answers(images)
        gap = answers.probabilities("first", self.seen) - answers.probabilities("second", self.seen)
        distance: NDArray[np.float64] = np.linalg.norm(gap, axis=1)
        return distance

    def save(self, path: Path | str, **extra: Any) -> None:
        """Write everything, memory included, into one file; `extra` (JSON) travels along."""
        tensors = checkpoint.prefixed("net", self.net.state_dict()) | checkpoint.prefixed(
            "memory", self.memory.tensors()
        )
        tensors["slots"] = torch.from_numpy(self.slots.labels)
        if self.teacher is not None:
            tensors |= checkpoint.prefixed("teacher", self.teacher.state_dict())
        tensors |= self._unfinished
        if self._bench is not None and self._loaded is not None:
            tensors |= checkpoint.prefixed("totals", self._bench.totals)
            tensors |= checkpoint.prefixed("momentum", momentum_of(self._bench.optimiser))
        checkpoint.write(Path(path), tensors, self._state() | {"extra": extra})

    @classmethod
    def load(cls, path: Path | str, engine: EngineConfig | None = None) -> "Learner":
        """The learner that `save` wrote, on its own device or on that of another `engine`."""
        return cls.load_with_extra(path, engine)[0]

    @classmethod
    def load_with_extra(cls, path: Path | str, engine: EngineConfig | None = None) -> tuple["Learner", dict[str, Any]]:
        """The learner, and the `extra` that was saved with it."""
        tensors, state = checkpoint.read(Path(path))
        config: LearnerConfig = from_dict(state["config"])
        learner = cls(replace(config, engine=engine or config.engine), state["seed"])
        learner._restore(tensors, state)
        return learner, state["extra"]

    def _state(self) -> dict[str, Any]:
        return {
            "config": as_dict(self.config),
            "seed": self.seed,
            "image_shape": self._image_shape,
            "classes": self.net.classes,
            "seen": self.seen,
            "offered": self.slots.offered,
            "tasks_learned": self.tasks_learned,
            "epoch": self.epoch,
            "step": self.step,
            "history": self.history,
            "task_mark": self._task_mark,
            "generators": self._generator_states,
        }

    def _restore(self, tensors: checkpoint.Tensors, state: dict[str, Any]) -> None:
        self._build(tuple(state["image_shape"]), state["classes"])
        self.net.load_state_dict(checkpoint.under("net", tensors))
        self.memory.restore(checkpoint.under("memory", tensors))
        teacher = checkpoint.under("teacher", tensors)
        if teacher:
            self._renew_teacher()
            assert self.teacher is not None
            self.teacher.load_state_dict(teacher)
        self.slots = Slots(tensors["slots"].numpy(), state["offered"])
        self.seen = tuple(state["seen"])
        self.tasks_learned, self.epoch, self.step = state["tasks_learned"], state["epoch"], state["step"]
        self._ledger, self._task_mark = Ledger(state["history"]), state["task_mark"]
        self._generator_states = state["generators"]
        randomness.restore(self._generators, self._generator_states)
        self._unfinished = {
            name: tensor for name, tensor in tensors.items() if name.startswith(("totals/", "momentum/"))
        }

    def _build(self, image_shape: tuple[int, ...], classes: int) -> None:
        """The net, its weights drawn from the run's seed, and the memory, both on the device."""
        net, channels = self.config.net, image_shape[0]
        if len(self.config.images.mean) != channels:
            raise UserError(
                f"images.mean has {len(self.config.images.mean)} values, but the images have {channels} channels"
            )
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(randomness.torch_generator(self.seed, "weights").get_state())
            built = NETS[net.name](Shape(image_shape, classes, net.width, net.split, net.label_input))
        self._net = built.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._memory = MemoryStore(self.config.memory.size, image_shape, self.device)
        self._image_shape = tuple(image_shape)

    def _meet(self, task: Task) -> None:
        """Take note of the task's classes; the head of net and teacher grows alike if it is too narrow for them."""
        self.seen = tuple(sorted({*self.seen, *task.classes}))
        needed = self.seen[-1] + 1
        for net in (self.net, self.teacher):
            if net is not None and net.classes < needed:
                net.grow(needed, randomness.torch_generator(self.seed, f"classes {needed}"))

    def _load(self, task: Task) -> None:
        """Bring the task to the device; where it fits into the place of the one before, what is captured stays so."""
        if self._bench is None or not self._bench.fits(self.net, self.teacher, len(task)):
            self._bench, self._phases = self._make_bench(task), {}
            self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        else:
            self._bench.load(*_tensors(task))

    def _make_bench(self, task: Task) -> Workbench:
        optimiser = sgd(self.net, self.config.train, self.device)
        restore_momentum(optimiser, checkpoint.under("momentum", self._unfinished))
        totals = {name: total.to(self.device) for name, total in checkpoint.under("totals", self._unfinished).items()}
        self._unfinished = {}
        images, labels = (part.to(self.device, copy=True) for part in _tensors(task))
        mean, std = self._mean_std()
        return Workbench(
            self.config, self.net.train(), self.teacher, self.memory, optimiser, images, labels, mean, std, totals
        )

    def _mean_std(self) -> tuple[Tensor, Tensor]:
        images = self.config.images
        return torch.tensor(images.mean, device=self.device), torch.tensor(images.std, device=self.device)

    def _schedule(self) -> Schedule:
        train, needs, images = self.config.train, self.config.method.needs(), self.config.images
        draws = tuple(draw for draw in needs.draws if self.teacher is not None or not draw.only_with_teacher)
        return Schedule(train.batch, train.replay_batch, train.drop_last, draws, needs.coins, images.pad, images.flip)

    def _learn_epoch(self, task: Task) -> Iterator[Progress]:
        assert self._bench is not None
        policy = POLICIES[self.config.memory.policy]
        began = time.perf_counter()
        segments, after = plan_epoch(task.labels, self.slots, self._schedule(), (policy, self._generators))
        self.planning_s += time.perf_counter() - began
        set_learning_rate(self._bench.optimiser, learning_rate(self.config.train, self.epoch))
        steps, start = sum(segment.steps for segment in segments), 0
        for segment in segments:
            end = start + segment.steps
            if self.step < end:
                phase, step = self._phase(segment)
                began = time.perf_counter()
                phase.load(segment, self.step - start)
                self.transfer_s += time.perf_counter() - began
                yield from self._run(step, end, steps)
            start = end
        self._finish_epoch(steps, after)

    def _phase(self, segment: Segment) -> tuple[Phase, Step]:
        """The phase of this shape. A shape that takes one step of the epoch is not worth the time to compile it."""
        assert self._bench is not None
        key = tuple(segment.sizes.items())
        if key not in self._phases:
            mode = self.config.engine.capture
            assert mode != "auto"
            phase = Phase(self._bench, segment.sizes, mode == "compile" and segment.steps > 1)
            self._phases[key] = phase, capture(phase.step, mode, self._pool)
        return self._phases[key]

    def _run(self, step: Step, until: int, steps: int) -> Iterator[Progress]:
        loss = self._ledger.latest
        while self.step < until:
            step()
            self.step += 1
            yield Progress(self.tasks_learned, self.epoch, self.config.train.epochs, self.step, steps, loss)

    def _finish_epoch(self, steps: int, slots: Slots) -> None:
        """Note the losses, without waiting for them."""
        assert self._bench is not None
        if steps:
            place = {"task": self.tasks_learned, "epoch": self.epoch}
            self._ledger.note(place, self._bench.totals, steps)
        elif self.epoch == 0:
            warnings.warn(
                f"task {self.tasks_learned + 1} has fewer images than train.batch ({self.config.train.batch}), and "
                "train.drop_last leaves them out: nothing is learnt from it",
                stacklevel=4,
            )
        self.slots, self.epoch, self.step = slots, self.epoch + 1, 0
        self._generator_states = randomness.states(self._generators)

    def _finish_task(self) -> None:
        """What the method declared for a task's end; the task's images leave the device."""
        self._ledger.settle()
        if self.config.method.needs().teacher is not None:
            self._renew_teacher()
        self.tasks_learned, self.epoch, self.step = self.tasks_learned + 1, 0, 0
        self.memory.forget_discarded()
        if self._bench is not None:
            self._bench.forget_images()
        self._loaded = None

    def _renew_teacher(self) -> None:
        need = self.config.method.needs().teacher
        assert need is not None
        if self.teacher is None or self.teacher.classes != self.net.classes:
            self.teacher = self.net.frozen(need.statistics, compute_dtype(self.config.engine))
            return
        with torch.no_grad():  # in place: what is captured reads these very tensors
            for mine, new in zip(self.teacher.state_dict().values(), self.net.state_dict().values(), strict=True):
                mine.copy_(new)

    def _answer(self, images: Images) -> tuple[Tensor, Tensor]:
        x = normalise(torch.from_numpy(np.ascontiguousarray(images)).to(self.device), *self._mean_std())
        z = self.net.encode(x)
        first = self.net.decode(z)
        return first, first if self.net.label is None else self.net.decode(z, first.softmax(-1))


def _tensors(task: Task) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(task.images), torch.from_numpy(task.labels)


def _per_channel(images: Images, statistic: Callable[..., NDArray[np.float64]]) -> tuple[float, ...]:
    return tuple(statistic(images.astype(np.float64) / 255, axis=(0, 2, 3)).tolist())


def _spread(values: NDArray[np.float64], axis: tuple[int, ...]) -> NDArray[np.float64]:
    """The standard deviation; 1 for a channel that never changes."""
    found = np.std(values, axis=axis)
    return np.where(found > 0, found, 1.0)
