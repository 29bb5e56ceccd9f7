"""Runs of methods that fill the memory between tasks: from one epoch a task to a record, or a word before the first."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ider import RunConfig, UserError, recipe
from ider.config import MemoryConfig
from ider.engine.run import run
from ider.methods import METHODS
from ider.streams import StreamConfig
from ider.streams.gcil import Sampler

GCIL = StreamConfig(data="digits", kind="gcil", tasks=4, gcil=Sampler(samples=100, most_classes=4))


def config(name: str, size: int = 30, stream: StreamConfig | None = None) -> RunConfig:
    base, method = recipe("digits", "er"), METHODS[name]
    return replace(
        base,
        method=method,
        memory=MemoryConfig(size=size),
        train=replace(base.train, epochs=1),
        net=replace(base.net, width=4, label_input=method.needs().second_input),
        engine=replace(base.engine, device="cpu", precision="fp32", threads=1),
        stream=stream or base.stream,
    )


@pytest.mark.parametrize("name", ["xder", "xder+id", "icarl", "bic", "lucir"])
def test_one_epoch_a_task_gives_a_record_without_gaps(name: str, tmp_path: Path) -> None:
    record = run(config(name), 0, tmp_path)
    assert [len(row) for row in record["accuracy"]] == [1, 2, 3, 4, 5]
    for answer in ("first", "second", "mean"):
        found = record["answers"][answer]
        assert all(value is not None and np.isfinite(value) for value in found.values()), found
    assert record["metrics"]["task_il"] > 55  # chance is 50


@pytest.mark.parametrize(
    ("name", "size", "stream", "message"),
    [
        ("icarl", 9, None, "memory.size is 9, but this method needs a sample of each of 10 classes"),
        ("icarl", 0, None, "memory.size is 0"),
        ("xder", 30, GCIL, "come again, and this method is not defined for that"),
        ("bic", 30, GCIL, "come again"),
        ("lucir", 30, GCIL, "come again"),
    ],
)
def test_what_a_method_cannot_go_through_is_refused_before_the_first_step(
    name: str, size: int, stream: StreamConfig | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        run(config(name, size, stream), 0, tmp_path, lambda progress: pytest.fail("it trained"))
    assert list(tmp_path.iterdir()) == []
