"""From settings to a stream: which data, cut into tasks how."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ider.data import datasets
from ider.errors import UserError
from ider.options import option, validate
from ider.streams.gcil import Sampler, gcil
from ider.streams.split import NATURAL, split
from ider.streams.stream import Stream


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """The data, and how it becomes a stream of tasks."""

    data: str = option("digits", f"{', '.join(datasets.DATASETS)}, folder:PATH or npz:PATH")
    image_size: int = option(0, "side to which images are resized; 0: as they are (a folder's: 32)", least=0)
    kind: Literal["split", "gcil"] = option(
        "split", "split: classes dealt out to tasks; gcil: phases of random classes"
    )
    tasks: int = option(5, "number of tasks (of phases, for gcil)", least=1)
    sizes: tuple[int, ...] = option((), "classes of each task, for tasks of unequal size; empty: equal tasks", least=1)
    order_seed: int = option(NATURAL, "seed of a random class order; -1: the natural order", least=NATURAL)
    hold_out: float = option(
        0.0,
        "images kept from training, to choose settings or to calibrate on: a share, or from 1 on so many of each task "
        "(at most a fifth of a class)",
        least=0,
    )
    gcil: Sampler = field(default_factory=Sampler)

    def __post_init__(self) -> None:
        validate(self, "stream.")
        validate(self.gcil, "stream.gcil.")
        if 0.9 < self.hold_out < 1 or (self.hold_out > 1 and self.hold_out % 1):
            raise UserError(
                f"stream.hold_out is {self.hold_out}; it must be a share of at most 0.9, or a whole number of images"
            )


def build(config: StreamConfig, data_dir: str = "") -> Stream:
    """The stream; its data is looked for in `data_dir` first."""
    folder = Path(data_dir) if data_dir else None
    dataset = datasets.load(config.data, folder, config.image_size or None)
    if config.kind == "gcil":
        stream = gcil(dataset, config.gcil, config.tasks)
    else:
        stream = split(dataset, config.sizes or config.tasks, config.order_seed)
    return stream.holding_out(config.hold_out) if config.hold_out else stream
