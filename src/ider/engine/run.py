"""One run: a learner taken through a stream with one seed, resumable at any moment, ending in a record."""

import dataclasses
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ider.calibration import CALIBRATORS
from ider.config import RunConfig, as_dict, run_id
from ider.engine import calibrated, evaluate
from ider.engine.classbook import ClassBook
from ider.engine.device import device_name, settle
from ider.engine.learner import Learner
from ider.engine.ledger import Progress
from ider.errors import RunError, UserError
from ider.methods.files import digest_of
from ider.records import RECORD, SCHEMA, Record, read_json, write_json
from ider.streams import Stream, Task, build
from ider.version import __version__

CHECKPOINT, MODEL = "checkpoint.safetensors", "model.safetensors"
Listener = Callable[[Progress], None]


def run(config: RunConfig, seed: int, folder: Path, listener: Listener | None = None) -> Record:
    """The record of one seed: read if it is there, else computed, from the last checkpoint if there is one."""
    for progress in running(config, seed, folder):
        if listener is not None:
            listener(progress)
    return read_json(folder / RECORD)


def running(config: RunConfig, seed: int, folder: Path, stream: Stream | None = None) -> Iterator[Progress]:
    """The same step by step, as the iterator is advanced; runs may share a `stream`, else each builds its own."""
    if (folder / RECORD).exists():
        return
    torch.set_num_threads(config.engine.threads or torch.get_num_threads())
    stream = stream or build(config.stream, config.engine.data_dir)
    stream = stream.validating() if config.evaluation.on == "held-out" else stream
    taught = stream.joined() if config.method.needs().joined else stream
    _check(config, taught)
    journey = _Journey(config, seed, folder, stream)
    try:
        journey.set_out()
        for task in taught.tasks[journey.learner.tasks_learned :]:
            yield from journey.learning(task)
            journey.arrive()
    except BaseException as error:
        settle()  # the runs beside this one must not get memory at which it is at work still
        if isinstance(error, torch.OutOfMemoryError) or isinstance(error.__context__, torch.OutOfMemoryError):
            raise RunError(
                f"the device's memory is too small for {config.engine.at_once} such runs at once; go on with fewer "
                "(--set engine.at_once=1), a smaller train.batch or a smaller net.width"
            ) from None
        raise
    record = journey.record()
    journey.learner.save(folder / MODEL)
    write_json(folder / RECORD, record)
    (folder / CHECKPOINT).unlink(missing_ok=True)


def _check(config: RunConfig, stream: Stream) -> None:
    """Refuse before the first step a stream that the method cannot go through to its end."""
    needs, book = config.method.needs(), ClassBook(torch.device("cpu"))
    for number, task in enumerate(stream.tasks):
        book.meet(task.classes, number, needs.disjoint)
    if needs.exemplars:
        book.find_room(config.memory.size, stream.classes)


class _Journey:
    """A learner on its way, with what has been measured so far; all of it is in the checkpoint."""

    def __init__(self, config: RunConfig, seed: int, folder: Path, stream: Stream) -> None:
        self.config, self.seed, self.folder, self.stream = config, seed, folder, stream
        self.clock = time.monotonic()
        self.code = digest_of(config.method)

    def set_out(self) -> None:
        """Start anew, or where the checkpoint stands."""
        checkpoint = self.folder / CHECKPOINT
        if checkpoint.exists():
            self.learner, self.log = Learner.load_with_extra(checkpoint)
            if self.code != self.log.get("code"):
                raise UserError(
                    f"{self.folder} was begun with another state of the file that its method is in; "
                    "go on with that one, or start anew in another --out"
                )
        else:
            known = dataclasses.replace(self.config.net, classes=self.config.net.classes or self.stream.classes)
            self.learner = Learner(dataclasses.replace(self.config, net=known), self.seed)
            start = evaluate.untrained(self.learner, self.stream)
            self.log = {
                "rows": [],
                "stages": [],
                "start": start,
                "seconds": 0.0,
                "began": datetime.now(UTC).isoformat(timespec="seconds"),
                "code": self.code,
            }

    def learning(self, task: Task) -> Iterator[Progress]:
        """Learn a task, with a checkpoint every so many steps."""
        every = self.config.engine.checkpoint_every
        for progress in self.learner.learning(task):
            if every and progress.step % every == 0:
                self.save()
            yield progress

    def arrive(self) -> None:
        """Calibrate and measure after a task, and write that down."""
        learnt = len(self.stream.tests) if self.config.method.needs().joined else self.learner.tasks_learned
        self.log["rows"].append(evaluate.after_task(self.learner, self.stream, learnt, self.config.evaluation))
        if self.config.calibration != CALIBRATORS["none"]:
            stage = calibrated.stage(self.learner, self.config.calibration, self.stream, self.config)
            self.log["stages"].append(stage)
        self.save()

    def save(self) -> None:
        """Write the checkpoint."""
        now = time.monotonic()
        self.log["seconds"] += now - self.clock
        self.clock = now
        self.learner.save(self.folder / CHECKPOINT, **self.log)

    def record(self) -> Record:
        """Everything known about the finished run."""
        measured = evaluate.final(
            self.learner, self.stream, self.log["rows"], self.log["start"], self.config.evaluation
        )
        stages, config = self.log["stages"], self.config
        known = measured["answers"]
        entry = stages and calibrated.entry(self.learner, config.calibration, self.stream, stages, known, config)
        return {
            "schema": SCHEMA,
            "id": run_id(self.config, self.seed),
            "benchmark": self.config.benchmark,
            "method": self.config.recipe,
            "memory": self.config.memory.size,
            "seed": self.seed,
            "config": as_dict(self.config),
            "provenance": self._provenance(),
            "classes": list(self.stream.class_names),
            "tasks": [list(group) for group in self.stream.groups()],
            **measured,
            **({"calibrated": entry} if entry else {}),
            "history": self.learner.history,
        }

    def _provenance(self) -> dict[str, Any]:
        engine = self.learner.config.engine
        return {
            "version": __version__,
            "revision": _revision(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": device_name(engine),
            "precision": engine.precision,
            **({} if self.code is None else {"method_sha256": self.code}),
            "start": self.log["began"],
            "seconds": round(self.log["seconds"] + time.monotonic() - self.clock, 3),
        }


def _revision() -> str | None:
    """The git revision of the source tree that this package runs from (marked if changed), if it runs from one."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
