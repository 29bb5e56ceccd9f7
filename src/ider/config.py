"""The complete configuration of a learner and of a run, as frozen dataclasses that check themselves."""

import dataclasses
import hashlib
import json
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ider.calibration import CALIBRATORS, Calibrator
from ider.errors import UserError, unknown
from ider.memory.policy import POLICIES
from ider.memory.selection import SELECTIONS
from ider.methods import METHODS
from ider.nets import NETS
from ider.options import option, validate
from ider.protocols import Method
from ider.settings import Choices, name_of, overlay, to_dict
from ider.streams.build import StreamConfig


@dataclass(frozen=True, kw_only=True)
class NetConfig:
    """Which net, how wide, and where the second input enters."""

    name: str = option("resnet18", f"the net: {', '.join(NETS)}")
    width: int = option(64, "channels of the first layer", least=1)
    split: int = option(0, "blocks below the cut at which the second input enters; 0: the net's own choice", least=0)
    label_input: bool = option(True, "whether the net takes a second input")
    classes: int = option(
        0, "width of the head from the start; 0: the stream's classes, or as many as have come", least=0
    )


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """How much of the past is kept, and what."""

    size: int = option(500, "slots of the memory", least=0)
    policy: str = option(
        "auto",
        f"what is kept: {', '.join(POLICIES)}; where a method fills it between tasks {', '.join(SELECTIONS)}; "
        "auto: as the method does by default",
    )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The optimiser (SGD) and the schedule of one task."""

    epochs: int = option(50, "passes over each task", least=1)
    batch: int = option(32, "current images a step", least=1)
    replay_batch: int = option(32, "images of each draw from the memory", least=1)
    drop_last: bool = option(False, "leave out an epoch's last, smaller batch")
    lr: float = option(0.1, "learning rate at the start of each task", least=0)
    momentum: float = option(0.0, "momentum", least=0)
    weight_decay: float = option(0.0, "weight decay", least=0)
    milestones: tuple[float, ...] = option((), "fractions of a task's epochs after which the learning rate falls")
    decay: float = option(0.1, "factor of the learning rate at each milestone, or at the end of a cosine", least=0)
    schedule: Literal["steps", "cosine"] = option("steps", "how the rate falls: at milestones, or along half a cosine")


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """What every image goes through before the net; cropping and mirroring in training only, afresh at each use."""

    mean: tuple[float, ...] = option((), "per channel, of pixels in 0..1; empty: that of the first task")
    std: tuple[float, ...] = option((), "per channel, of pixels in 0..1; empty: that of the first task")
    pad: int = option(0, "zero padding of the random crop; 0: no crop", least=0)
    flip: bool = option(False, "mirror half of the images")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Where and how the arithmetic runs; what is automatic is resolved and saved before the first step."""

    device: Literal["auto", "cpu", "cuda"] = option("auto", "auto: the GPU if there is one")
    precision: Literal["auto", "fp32", "bf16"] = option("auto", "auto: bf16 on a GPU that has it, else fp32")
    capture: Literal["auto", "off", "compile", "graph"] = option(
        "auto", "compile the step, or record it as a CUDA graph; auto: graph on a GPU, off on the CPU"
    )
    at_once: int = option(0, "runs side by side; 0: one a core on the CPU, five on a GPU", least=0)
    threads: int = option(0, "CPU threads of one run; 0: the cores shared among the runs at work", least=0)
    data_dir: str = option("", "folder of the datasets, before $IDER_DATA and the user's cache")
    checkpoint_every: int = option(0, "steps between checkpoints; 0: one at the end of each task", least=0)


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """How predictions are read and scored."""

    answer: Literal["first", "second", "mean"] = option("first", "the answer that the headline metrics use")
    classes: Literal["seen", "all"] = option("seen", "the classes that a prediction chooses from")
    on: Literal["test", "held-out"] = option(
        "test", "the images that are scored: those of stream.hold_out, or the test's"
    )


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """All that a learner is made of, but for its seed."""

    method: Method
    net: NetConfig = field(default_factory=NetConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    images: ImageConfig = field(default_factory=ImageConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        _check_name("net.name", self.net.name, NETS)
        if isinstance(self.method, str):
            raise UserError(f"method is the name {self.method!r}; give the method itself: METHODS[{self.method!r}]")
        needs = self.method.needs()
        if self.memory.policy == "auto":
            object.__setattr__(self, "memory", replace(self.memory, policy=needs.policy))
        _check_policy(self.memory.policy, filled=needs.memory)
        for section in ("net", "memory", "train", "images", "engine"):
            validate(getattr(self, section), section + ".")
        if any(not 0 < milestone <= 1 for milestone in self.train.milestones):
            raise UserError(f"train.milestones is {list(self.train.milestones)}; each is a fraction in 0..1")
        if len(self.images.mean) != len(self.images.std) or any(std <= 0 for std in self.images.std):
            raise UserError("images.mean and images.std need one value a channel each, the latter positive")
        if needs.learns_from == "memory" and not self.memory.size:
            raise UserError("memory.size is 0, but the method learns from its memory alone; give it at least 1")
        if needs.recalls and not self.memory.size:
            raise UserError("memory.size is 0, but the method predicts by what it remembers; give it at least 1")
        if needs.second_input and not self.net.label_input:
            raise UserError("net.label_input is false, but the method feeds answers back into the net; set it to true")


@dataclass(frozen=True, kw_only=True)
class RunConfig(LearnerConfig):
    """A learner, the stream it goes through, and the seeds to do so with."""

    benchmark: str = option("", "the benchmark that the stream is made from")
    recipe: str = option("", "the name under which the results are shown")
    seeds: tuple[int, ...] = option((0,), "one run each")
    stream: StreamConfig = field(default_factory=StreamConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    calibration: Calibrator = field(default=CALIBRATORS["none"], metadata={"choices": CALIBRATORS})

    def __post_init__(self) -> None:
        super().__post_init__()
        validate(self.evaluation, "evaluation.")
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"seeds is {list(self.seeds)}; at least one, none negative, none twice")
        if self.calibration.hold_out and not self.stream.hold_out:
            object.__setattr__(self, "stream", replace(self.stream, hold_out=self.calibration.hold_out))
        check_calibration(self, self.calibration)
        if self.evaluation.on == "held-out" and not self.stream.hold_out:
            raise UserError("evaluation.on is held-out, but nothing is: set stream.hold_out to a share, such as 0.2")


def check_calibration(config: RunConfig, calibrator: Calibrator) -> None:
    """Refuse a calibrator that would find nothing to calibrate on, or the very images that are scored."""
    name = name_of(calibrator, CALIBRATORS)
    if calibrator.needs_memory and not config.memory.size:
        raise UserError(
            f"memory.size is 0, but {name} calibrates on the memory; give it at least 1, or calibrate with rc"
        )
    if calibrator.hold_out and config.evaluation.on == "held-out":
        raise UserError(f"evaluation.on is held-out, but {name} calibrates on these images; set it to test")


def as_dict(config: LearnerConfig) -> dict[str, Any]:
    """The configuration as plain values that TOML and JSON can hold."""
    chosen: list[tuple[object, Choices, str]] = [(config.method, METHODS, "METHODS")]
    if isinstance(config, RunConfig):
        chosen.append((config.calibration, CALIBRATORS, "CALIBRATORS"))
    for item, choices, where in chosen:
        if name_of(item, choices) is None:
            name = type(item).__name__
            raise UserError(f"{name} has no name yet, so it could not be found again: {where}['my-name'] = {name}(...)")
    return to_dict(config, METHODS)


def from_dict(content: object) -> RunConfig:
    """The configuration that `as_dict` gave; what is left out takes its default."""
    return overlay(RunConfig(method=METHODS["finetune"]), content, METHODS)


def read(path: Path) -> dict[str, Any]:
    """The content of a configuration file: TOML, or the record or summary of a run."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)["config"] if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is not a configuration: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a configuration")
    return content


def run_id(config: RunConfig, seed: int) -> str:
    """A short name of what a run computes: the same for the same configuration and seed, whatever the machine."""
    engine = EngineConfig(precision=config.engine.precision)
    content = as_dict(dataclasses.replace(config, recipe="", seeds=(seed,), engine=engine))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _check_policy(name: str, filled: str) -> None:
    """`filled`: when the method fills its memory, with each step or between tasks."""
    allowed, others = (POLICIES, SELECTIONS) if filled == "steps" else (SELECTIONS, POLICIES)
    if name in others and name not in allowed:
        when = "with each step" if filled == "steps" else "between tasks"
        raise UserError(
            f"memory.policy is {name}, but the method fills its memory {when}; "
            f"allowed: auto, {', '.join(sorted(allowed))}"
        )
    _check_name("memory.policy", name, allowed)


def _check_name(path: str, value: str, allowed: dict[str, Any]) -> None:
    if value not in allowed:
        raise unknown(path, value, allowed)
