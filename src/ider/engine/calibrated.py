"""A learner of a run is calibrated and measured: what a record says of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ider.calibration import CALIBRATORS, Calibrator
from ider.config import RunConfig
from ider.engine import checkpoint, evaluate
from ider.engine.learner import Learner
from ider.engine.model import TEMPERATURE, temperature_tensors
from ider.settings import name_of, to_dict
from ider.streams.stream import Stream, Task, concatenate

Stage = dict[str, Any]
"""After one task: the temperatures, how many images they come from, and what they do on the test images so far."""


def stage(learner: Learner, calibrator: Calibrator, stream: Stream, config: RunConfig) -> Stage:
    """Calibrate the learner as it is now, and see what came of it."""
    learnt = len(stream.tests) if config.method.needs().joined else learner.tasks_learned
    found = learner.calibrate(calibrator, _held_out(stream, config, learner.tasks_learned))
    return {
        "task": learnt - 1,
        "temperatures": dict(found.temperatures),
        "remembered": found.remembered,
        "held_out": found.held_out,
        "details": dict(found.details),
        **evaluate.confidence(learner, stream, learnt, config.evaluation),
    }


def entry(
    learner: Learner,
    calibrator: Calibrator,
    stream: Stream,
    stages: Sequence[Stage],
    known: Mapping[str, evaluate.Metrics],
    config: RunConfig,
) -> dict[str, Any]:
    """What a record says of one calibrator under `calibrated`; `known` are the raw metrics by answer."""
    return {
        name_of(calibrator, CALIBRATORS) or type(calibrator).__name__: {
            "calibrator": to_dict(calibrator, CALIBRATORS),
            "temperatures": stages[-1]["temperatures"],
            "withheld": sum(len(task) for task in stream.held_out),
            "history": list(stages),
            **evaluate.calibrated(learner, stream, known, config.evaluation),
        }
    }


def write_temperatures(path: Path, temperatures: Mapping[str, float]) -> None:
    """Replace the temperatures of a saved learner, and nothing else (it may be of another device than this)."""
    tensors, state = checkpoint.read(path)
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{TEMPERATURE}/")}
    checkpoint.write(path, others | temperature_tensors(temperatures), state)


def _held_out(stream: Stream, config: RunConfig, learnt: int) -> Sequence[Task]:
    """For each task learnt what was held out of it; tasks that are learnt as one have one such set."""
    if config.method.needs().joined and stream.held_out:
        return (concatenate(stream.held_out),)
    return stream.held_out[:learnt]
