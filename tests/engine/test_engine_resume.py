"""A run that is killed again and again ends as if nothing had happened: same record, same weights, bit for bit."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ider import METHODS, recipe
from ider.calibration import CALIBRATORS
from ider.config import RunConfig, as_dict
from ider.engine.run import CHECKPOINT, MODEL, run
from ider.settings import override_all

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the test kills forked children")


def short(name: str, momentum: float = 0.0) -> RunConfig:
    """A run of about 100 steps, whose memory takes several steps to fill and which often saves."""
    config = recipe("digits", name, memory=150)
    return replace(
        config,
        train=replace(config.train, epochs=2, batch=24, momentum=momentum),
        net=replace(config.net, width=4),
        images=replace(config.images, pad=1, flip=True),
        engine=replace(config.engine, device="cpu", precision="fp32", threads=1, checkpoint_every=2),
    )


def drive(folder: Path, config: RunConfig, moments: list[str]) -> int:
    """Run the driver; the number of deaths."""
    folder.mkdir(parents=True)
    file = folder / "config.json"
    file.write_text(json.dumps(as_dict(config)))
    command = [
        sys.executable,
        str(Path(__file__).with_name("resume_driver.py")),
        str(folder / "run"),
        str(file),
        *moments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def uninterrupted(folder: Path, config: RunConfig) -> None:
    """The same run in this process and in one go."""
    run(config, config.seeds[0], folder / "run")


def outcome(folder: Path) -> tuple[dict[str, object], bytes]:
    """The record without its times, and the saved learner."""
    record = json.loads((folder / "run" / "record.json").read_text())
    del record["provenance"]
    return record, (folder / "run" / MODEL).read_bytes()


def test_killed_at_random_steps_and_in_the_middle_of_writing(tmp_path: Path) -> None:
    config = short("er+id", momentum=0.5)
    dice = random.Random(0)
    steps = [f"steps {dice.randint(1, 7)}" for _ in range(24)]
    writes = ["half 1", "replace 1", "half 2", "replace 3", "half 4"]
    moments = ["steps 1", "steps 3", *writes, *steps]  # few steps each, so that most of them come to pass
    uninterrupted(tmp_path / "whole", config)
    assert drive(tmp_path / "killed", config, moments) >= 2 + len(writes) + 20
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    assert not (tmp_path / "killed" / "run" / CHECKPOINT).exists()


@pytest.mark.parametrize("name", ["er", "joint"])
def test_killed_while_the_final_record_is_written(tmp_path: Path, name: str) -> None:
    config = short(name)
    config = replace(config, engine=replace(config.engine, checkpoint_every=0))
    tasks = 1 if name == "joint" else config.stream.tasks
    uninterrupted(tmp_path / "whole", config)
    moments = [f"half {tasks + 1}", "replace 1", "half 2", "replace 2"]
    assert drive(tmp_path / "killed", config, moments) == len(moments)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    config = short("er+id")
    assert drive(tmp_path / "one", config, []) == 0
    uninterrupted(tmp_path / "two", config)
    uninterrupted(tmp_path / "other", replace(config, seeds=(1,)))
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")
    assert outcome(tmp_path / "one")[1] != outcome(tmp_path / "other")[1]


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != "none"])
def test_killed_while_it_is_calibrated_after_every_task(tmp_path: Path, name: str) -> None:
    config = override_all(short("er+id"), [f"calibration.name={name}", "stream.hold_out=0.1"], METHODS)
    uninterrupted(tmp_path / "whole", config)
    moments = ["steps 9", "half 3", "replace 2", "steps 14", "half 5", "steps 11", "replace 4", "steps 8"]
    assert drive(tmp_path / "killed", config, moments) == len(moments)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    record, _ = outcome(tmp_path / "whole")
    assert len(record["calibrated"][name]["history"]) == 5
