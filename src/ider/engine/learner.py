"""The learner: net, method, memory and optimiser; it learns task after task and answers at any time.

A learner keeps nothing of a task but what its memory holds. All its state fits into one file, also in the middle of an
epoch: `save` it there, `load` it and call `learn` with the same task, and it goes on as if nothing had happened.
"""

import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ider import randomness
from ider.calibration import Calibration, Calibrator
from ider.config import EngineConfig, LearnerConfig, as_dict, from_dict
from ider.data.augment import channel_statistics
from ider.engine import checkpoint
from ider.engine.answers import Answer, Answers, Probabilities
from ider.engine.capture import Step, capture
from ider.engine.classbook import ClassBook
from ider.engine.desk import Desk, Notes
from ider.engine.device import resolve
from ider.engine.ledger import Ledger, Progress
from ider.engine.material import Material, schedule_of, tensors_of, with_room
from ider.engine.model import Model
from ider.engine.optim import learning_rate, momentum_of, restore_momentum, set_learning_rate, sgd, warmed
from ider.engine.sight import Sight, calibrate
from ider.engine.step import Phase, Workbench
from ider.errors import UserError
from ider.memory.plan import Segment, plan_epoch
from ider.memory.policy import POLICIES, Slots, reservoir
from ider.memory.store import MemoryStore
from ider.nets import TwoInputNet
from ider.protocols import Desk as DeskProtocol
from ider.protocols import Method, Predict
from ider.streams.stream import Images, Labels, Task
from ider.types import Samples

Listener = Callable[[Progress], None]
Phases = dict[tuple[tuple[str, tuple[int, ...]], ...], tuple[Phase, Step]]
"""By the shapes of a row of the plan: the phase, and its step as captured."""


class Learner:
    """A class-incremental learner. Labels are whole numbers from 0, and new ones may come with any task."""

    def __init__(self, config: LearnerConfig, seed: int = 0) -> None:
        self.config = replace(config, engine=resolve(config.engine))
        self.seed = seed
        self.device = torch.device(self.config.engine.device)
        self.slots = Slots.empty(config.memory.size)
        self.book = ClassBook(self.device)
        self.tasks_learned = self.epoch = self.step = 0
        self.planning_s = self.transfer_s = 0.0
        """The host's time in planning epochs, and in bringing the plans to the device."""
        self._ledger = Ledger()
        self._begun = False
        self._is_hook_due = False
        """Whether an epoch is over, but not what the method does after it, which may have been interrupted."""
        self._model: Model | None = None
        self._bench: Workbench | None = None
        self._phases: Phases = {}
        self._pool: Any = None  # of the memory that all graphs of the phases share, since they run in turn
        self._loaded: int | None = None  # the mark of the task whose images are on the device
        self._unfinished: checkpoint.Tensors = {}
        self._task_mark = 0
        self._generators = randomness.generators(seed)
        self._generator_states = randomness.states(self._generators)

    @property
    def seen(self) -> tuple[int, ...]:
        """The classes that have come, in order."""
        return self.book.seen

    @property
    def model(self) -> Model:
        """What is learnt; it exists once the first task has shown the shape of the images."""
        if self._model is None:
            raise UserError("this learner has seen no images yet: call learn first")
        return self._model

    @property
    def net(self) -> TwoInputNet:
        """The net."""
        return self.model.net

    @property
    def teacher(self) -> TwoInputNet | None:
        """The net as it was at the end of the previous task, if the method asks for that."""
        return self.model.teacher

    @property
    def memory(self) -> MemoryStore:
        """The samples that are kept."""
        return self.model.memory

    @property
    def history(self) -> list[dict[str, float]]:
        """The mean of each loss in each epoch so far."""
        return self._ledger.settle()

    def prepare(self, images: Images, classes: int = 0) -> None:
        """Build the net for images of this kind; `learn` does so by itself with its first task."""
        if self._model is None:
            width = max(classes, self.config.net.classes)
            if not width:
                raise UserError(
                    "this learner has learnt no class yet, and net.classes does not say how many there will be"
                )
            config = self.config.images
            if not config.mean:
                mean, std = channel_statistics(images)
                self.config = replace(self.config, images=replace(config, mean=mean, std=std))
            self._model = Model(self.config, self.seed, images.shape[1:], width)
        elif images.shape[1:] != self.model.image_shape:
            shape = self.model.image_shape
            raise UserError(f"images are of shape {images.shape[1:]}; this learner was built for {shape}")

    def learn(self, task: Task, listener: Listener | None = None) -> "Learner":
        """Learn one task; `listener` is told of every step. After `load` in mid-task, go on with that task."""
        for progress in self.learning(task):
            if listener is not None:
                listener(progress)
        return self

    def learning(self, task: Task) -> Iterator[Progress]:
        """The same step by step, as the iterator is advanced; a GPU may still be at work on the step that is told."""
        mark = zlib.crc32(task.labels.tobytes(), zlib.crc32(task.images.tobytes()))
        if self.epoch == self.step == 0 and not (self._begun and mark == self._task_mark):
            self._begin(task, mark)
        elif mark != self._task_mark:
            raise UserError("this learner is in the middle of another task; give it that task to go on with")
        # An interrupted call has planned its epoch already, and its task may still be in place.
        randomness.restore(self._generators, self._generator_states)
        material = Material(task, self.memory, self.slots.filled, self.method.needs(), self._rng("hold out"))
        if self._loaded != mark:
            self._load(material.learnt)
            self._loaded = mark
        while self._is_hook_due or self.epoch < self.config.train.epochs:
            if not self._is_hook_due:
                yield from self._learn_epoch(material.learnt.labels)
            if self.method.needs().after_epochs:
                after = partial(self.method.after_epoch, epoch=self.epoch - 1)
                self._call(after, f"epoch {self.epoch}", task, material.held_out)
            self._is_hook_due = False
        self._finish_task(task, material)

    def answers(self, images: Images) -> Answers:
        """The logits of the first and the second answer over all classes of the head."""
        images = np.asarray(images)
        if images.dtype != np.uint8 or images.ndim != 4:
            raise UserError(
                f"images are uint8 of shape (N, channels, height, width), not {images.dtype} of {images.shape}"
            )
        self.prepare(images)
        return self.model.answers(images, self._predict())

    def predict_proba(self, images: Images, answer: Answer = "first") -> Probabilities:
        """The probability (calibrated, if the learner is) of each class of the head; zero for those not seen yet."""
        return self.answers(images).probabilities(answer, self.seen, self.model.temperatures)

    def predict(self, images: Images, answer: Answer = "first") -> NDArray[np.int64]:
        """The likeliest of the classes seen."""
        likeliest: NDArray[np.int64] = self.predict_proba(images, answer).argmax(1)
        return likeliest

    def uncertainty(self, images: Images) -> NDArray[np.float64]:
        """How far the second answer is from the first (L2 distance of probabilities); 0: the net agrees with itself."""
        answers = self.answers(images)
        first, second = (
            answers.probabilities(name, self.seen, self.model.temperatures) for name in ("first", "second")
        )
        distance: NDArray[np.float64] = np.linalg.norm(first - second, axis=1)
        return distance

    def calibrate(self, calibrator: Calibrator | str, held_out: Sequence[Task] = ()) -> Calibration:
        """Choose the temperatures of the answers, which hold until the next task is learnt.

        `held_out` are images that were kept from training, one `Task` for each task so far.
        """
        sight = Sight(self.model, self._predict(), self.book, self.slots.filled, held_out, self.seed)
        return calibrate(calibrator, sight, self.tasks_learned)

    def save(self, path: Path | str, **extra: Any) -> None:
        """Write everything, memory included, into one file; `extra` (JSON) travels along."""
        tensors = self.model.tensors() | {"slots": torch.from_numpy(self.slots.labels)}
        tensors |= self._unfinished
        if self._bench is not None and self._loaded is not None:
            tensors |= checkpoint.prefixed("totals", self._bench.totals)
            for name, optimiser in self._bench.optimisers.items():
                tensors |= checkpoint.prefixed(f"momentum/{name}", momentum_of(optimiser))
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

    @property
    def method(self) -> Method:
        """What the learner learns by."""
        return self.config.method

    def _state(self) -> dict[str, Any]:
        return {
            "config": as_dict(self.config),
            "seed": self.seed,
            "image_shape": self.model.image_shape,
            "classes": self.net.classes,
            "task_of": list(self.book.task_of.items()),
            "current": self.book.current,
            "offered": self.slots.offered,
            "tasks_learned": self.tasks_learned,
            "epoch": self.epoch,
            "step": self.step,
            "is_hook_due": self._is_hook_due,
            "history": self.history,
            "task_mark": self._task_mark,
            "generators": self._generator_states,
        }

    def _restore(self, tensors: checkpoint.Tensors, state: dict[str, Any]) -> None:
        self._model = Model(self.config, self.seed, state["image_shape"], state["classes"])
        self._model.restore(tensors)
        self.slots = Slots(tensors["slots"].numpy(), state["offered"])
        self.tasks_learned, self.epoch, self.step = state["tasks_learned"], state["epoch"], state["step"]
        self._is_hook_due = state.get("is_hook_due", False)
        self.book.task_of = dict(state["task_of"])
        self.book.open(state["current"], self.tasks_learned, self.net.classes)
        self._ledger, self._task_mark = Ledger(state["history"]), state["task_mark"]
        self._generator_states = state["generators"]
        randomness.restore(self._generators, self._generator_states)
        self._unfinished = {
            name: tensor for name, tensor in tensors.items() if name.startswith(("totals/", "momentum/"))
        }

    def _begin(self, task: Task, mark: int) -> None:
        """Take note of the task, and let the method prepare for it."""
        self._begun, self._task_mark, self._loaded = False, mark, None
        self.prepare(task.images, task.classes[-1] + 1)
        self._meet(task)
        if self.method.needs().side is not None:
            self.model.renew_side(self.tasks_learned)
        self._call(self.method.before_task, "before", task)
        self._begun = True

    def _meet(self, task: Task) -> None:
        """Take note of the task's classes; the head of net and teacher grows alike if it is too narrow for them."""
        self.book.meet(task.classes, self.tasks_learned, self.method.needs().disjoint)
        if self.method.needs().exemplars:
            self.book.find_room(self.config.memory.size, self.config.net.classes)
        needed = self.seen[-1] + 1
        if self.net.classes < needed:
            self.model.grow(needed)
        self.book.open(task.classes, self.tasks_learned, self.net.classes)

    def _rng(self, purpose: str) -> np.random.Generator:
        """The generator of one purpose in the present task: asked for again, it begins again."""
        return randomness.generator(self.seed, f"{purpose} {self.tasks_learned}")

    def _call(self, hook: Callable[[DeskProtocol], None], when: str, task: Task, out: Samples | None = None) -> None:
        """Call a hook of the method, and take over the slots as it leaves them."""
        desk = self._desk(when, task, out)
        try:
            hook(desk)
        finally:  # if it is interrupted the books still agree with the memory
            self.slots = desk.slots

    def _predict(self) -> Predict:
        """How the method makes predictions of what the net says."""
        if self.method.needs().recalls and self.slots.filled:
            return self.method.predictor(replace(self._desk("prediction"), whole=self.model.answering))
        return partial(self.method.predict, state=self.model.state)

    def _desk(self, when: str, task: Task | None = None, held_out: Samples | None = None) -> Desk:
        """What a method works with outside of steps."""
        fresh = partial(self.model.fresh_net, f"weights {self.tasks_learned}")
        notes = Notes(self.model.state, self.model.side, self.book.classes, self.book.task_of)
        given = task, held_out or Samples(self.memory.images[:0], self.memory.labels[:0])
        return Desk(self.config, self.net, self.memory, self.slots, notes, given, self._rng(when), fresh)

    def _load(self, task: Task) -> None:
        """Bring the task to the device; where it fits into the place of the one before, what is captured stays so."""
        if self._bench is None or not self._bench.fits(self.book.classes, len(task)):
            self._bench, self._phases = self._make_bench(task), {}
            self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        else:
            self._bench.load(*tensors_of(task))

    def _make_bench(self, task: Task) -> Workbench:
        train, side = self.config.train, self.method.needs().side
        lasting = self.model.side.parameters() if side and side.lasting and self.model.side else ()
        optimisers = {"net": sgd([*self.net.parameters(), *lasting], train.lr, train.momentum, train.weight_decay)}
        if side is not None and self.model.side is not None and not side.lasting:
            optimisers["side"] = sgd(self.model.side.parameters(), side.lr, side.momentum)
        for name, optimiser in optimisers.items():
            restore_momentum(optimiser, checkpoint.under(f"momentum/{name}", self._unfinished))
        totals = {name: total.to(self.device) for name, total in checkpoint.under("totals", self._unfinished).items()}
        self._unfinished = {}
        more = self.memory.capacity if self.method.needs().learns_from == "task and memory" else 0
        images, labels = (with_room(part.to(self.device, copy=True), more) for part in tensors_of(task))
        mean, std = self.model.mean_std()
        self.net.train()
        return Workbench(self.config, self.model, self.book.classes, optimisers, images, labels, mean, std, totals)

    def _learn_epoch(self, labels: Labels) -> Iterator[Progress]:
        assert self._bench is not None
        policy = POLICIES.get(self.config.memory.policy, reservoir)  # which is not asked if nothing is offered
        schedule = schedule_of(self.config, self.net, self.tasks_learned)
        began = time.perf_counter()
        segments, after = plan_epoch(labels, self.slots, schedule, (policy, self._generators))
        self.planning_s += time.perf_counter() - began
        steps, start = sum(segment.steps for segment in segments), 0
        self._set_rate(steps)
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
        key = tuple((name, array.shape[1:]) for name, array in segment.arrays.items())
        if key not in self._phases:
            mode = self.config.engine.capture
            assert mode != "auto"
            phase = Phase(self._bench, segment.sizes, mode == "compile" and segment.steps > 1)
            self._phases[key] = phase, capture(phase.step, mode, self._pool)
        return self._phases[key]

    def _set_rate(self, steps: int) -> None:
        """The learning rate as the schedule says, or on its way there."""
        assert self._bench is not None
        train, step = self.config.train, self.epoch * steps + self.step
        rate = warmed(learning_rate(train, self.epoch), self.method.needs().warm_up, step, train.epochs * steps)
        set_learning_rate(self._bench.optimisers["net"], rate)

    def _run(self, step: Step, until: int, steps: int) -> Iterator[Progress]:
        loss, warms = self._ledger.latest, self.method.needs().warm_up
        while self.step < until:
            if warms:
                self._set_rate(steps)
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
        self.slots, self.epoch, self.step, self._is_hook_due = slots, self.epoch + 1, 0, True
        self._generator_states = randomness.states(self._generators)

    def _finish_task(self, task: Task, material: Material) -> None:
        """What the method does after a task; the task's images leave the device."""
        self._ledger.settle()
        if self.method.needs().teacher is not None:
            self.model.renew_teacher()
        self._call(self.method.after_task, "after", task, material.held_out)
        self.tasks_learned, self.epoch, self.step, self._begun = self.tasks_learned + 1, 0, 0, False
        self.model.temperatures = {}  # were those of the net as it was
        self.memory.forget_discarded()
        if self._bench is not None:
            self._bench.forget_images()
        self._loaded = None
