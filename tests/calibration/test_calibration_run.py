"""Runs that are calibrated after every task, and runs that are calibrated when they are over."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ider import Learner, RunConfig, Stream, Task, UserError, metrics, recipe
from ider.calibration import CALIBRATORS, RC, Calibration, Calibrator, Sight
from ider.config import as_dict, from_dict
from ider.engine.run import MODEL, run, running
from ider.methods import METHODS
from ider.records import RECORD, SUMMARY, load_run, read_json, summarise, write_json
from ider.settings import override_all
from ider.streams import StreamConfig, build
from ider.sweeps import folders
from ider.sweeps.calibration import calibrate, chosen

ANSWERS = ("first", "second", "mean")
NAMES = [name for name in CALIBRATORS if name != "none"]


def quick(name: str = "er+id", *assignments: str) -> RunConfig:
    config = recipe("digits", name)
    engine = replace(config.engine, device="cpu", precision="fp32", threads=1)
    config = replace(config, train=replace(config.train, epochs=2), net=replace(config.net, width=4), engine=engine)
    return override_all(config, ["stream.hold_out=0.2", *assignments], METHODS)


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("provenance", "config", "id")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    run(quick(), 7, folder / "seed-7")
    return folder


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated")
    run(quick("er+id", "calibration.name=t-cil"), 7, folder)
    return folder


def copied(plain: Path, folder: Path) -> Path:
    """The finished run as a folder of its own."""
    shutil.copytree(plain, folder)
    config = replace(quick(), seeds=(7,))
    (folder / folders.CONFIG).write_text(folders.to_toml(folders.as_dict(config)))
    write_json(folder / SUMMARY, summarise(load_run(folder)))
    return folder


def test_a_run_that_is_calibrated_trains_as_if_it_were_not(plain: Path, calibrated: Path) -> None:
    one, other = (json.loads((folder / RECORD).read_text()) for folder in (plain / "seed-7", calibrated))
    entry = other.pop("calibrated")
    assert without_times(one) == without_times(other)
    assert set(entry) == {"t-cil"}
    tensors = [load_file(folder / MODEL) for folder in (plain / "seed-7", calibrated)]
    temperatures = {name: tensors[1].pop(name) for name in list(tensors[1]) if name.startswith("temperature/")}
    assert {name.removeprefix("temperature/"): float(value) for name, value in temperatures.items()} == entry["t-cil"][
        "temperatures"
    ]
    assert tensors[0].keys() == tensors[1].keys()
    for name in tensors[0]:
        np.testing.assert_array_equal(tensors[0][name], tensors[1][name])


def test_the_entry_says_what_was_calibrated_and_what_it_cost(calibrated: Path) -> None:
    record = json.loads((calibrated / RECORD).read_text())
    entry, stream = record["calibrated"]["t-cil"], build(quick().stream)
    assert entry["calibrator"] == {"name": "t-cil", "images": 100, "solver": "exact"}
    assert record["config"]["calibration"] == entry["calibrator"]
    assert entry["withheld"] == sum(len(task) for task in stream.held_out) == 248
    assert [stage["task"] for stage in entry["history"]] == [0, 1, 2, 3, 4]
    assert [stage["held_out"] for stage in entry["history"]] == [len(task) for task in stream.held_out]
    assert [stage["remembered"] for stage in entry["history"]] == [30] * 5
    assert entry["temperatures"] == entry["history"][-1]["temperatures"]
    for stage in entry["history"]:
        for answer in ANSWERS:
            assert stage["raw"][answer]["accuracy"] == stage["calibrated"][answer]["accuracy"]
            assert stage["raw"][answer]["ece"] != stage["calibrated"][answer]["ece"]


def test_accuracy_does_not_change_and_confidence_does(calibrated: Path) -> None:
    record = json.loads((calibrated / RECORD).read_text())
    entry = record["calibrated"]["t-cil"]
    assert entry["metrics"] == entry["answers"]["first"]
    for answer in ANSWERS:
        raw, found = record["answers"][answer], entry["answers"][answer]
        assert set(found) == set(raw) | {"temperature"}
        for name in ("faa", "ff", "ff_paper", "bwt", "fwt", "task_il", "accuracy"):
            assert found[name] == raw[name]
        for name in ("ece", "nll", "brier", "overconfidence"):
            assert found[name] != raw[name]


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_saved_learner_answers_with_the_confidence_of_the_record(calibrated: Path, answer: str) -> None:
    record = json.loads((calibrated / RECORD).read_text())
    learner, stream = Learner.load(calibrated / MODEL), build(StreamConfig())
    scored = [learner.predict_proba(test.images, answer) for test in stream.tests]
    labels = [test.labels for test in stream.tests]
    found = record["calibrated"]["t-cil"]["answers"][answer]
    assert found["ece"] == pytest.approx(metrics.ece_per_task(scored, labels))
    assert found["nll"] == pytest.approx(metrics.nll(np.concatenate(scored), np.concatenate(labels)))
    assert found["temperature"] == learner.model.temperatures[answer]
    last = record["calibrated"]["t-cil"]["history"][-1]["calibrated"][answer]
    assert last["ece"] == pytest.approx(found["ece"])


@pytest.mark.parametrize("name", NAMES)
def test_calibrating_afterwards_gives_what_the_run_would_have_given(name: str, plain: Path, tmp_path: Path) -> None:
    during = run(quick("er+id", f"calibration.name={name}"), 7, tmp_path / "during")["calibrated"][name]
    folder = copied(plain, tmp_path / "run")
    (summary,) = calibrate(folder, chosen(name))
    after = read_json(folder / "seed-7" / RECORD)["calibrated"][name]
    assert after.pop("history") == during.pop("history")[-1:]
    assert after == during
    assert Learner.load(folder / "seed-7" / MODEL).model.temperatures == after["temperatures"]
    assert read_json(folder / SUMMARY) == summary
    assert summary["calibrated"][name]["answers"]["mean"]["ece"]["mean"] == after["answers"]["mean"]["ece"]
    assert summary["metrics"] == summarise(load_run(plain))["metrics"]


def test_calibrators_stand_beside_each_other_and_the_last_is_in_the_learner(plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "run")
    before = load_file(folder / "seed-7" / MODEL)
    calibrate(folder, chosen("rc"))
    calibrate(folder, chosen("temperature"))
    calibrate(folder, chosen("rc", ["calibration.later=1"]))
    found = read_json(folder / "seed-7" / RECORD)["calibrated"]
    assert list(found) == ["rc", "temperature"]
    assert found["rc"]["calibrator"]["later"] == 1.0
    assert found["rc"]["history"][-1]["held_out"] == 248
    after = load_file(folder / "seed-7" / MODEL)
    assert after["temperature/first"] == found["rc"]["temperatures"]["first"]
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])
    assert Learner.load(folder / "seed-7" / MODEL).tasks_learned == 5


@pytest.mark.parametrize("name", NAMES)
def test_test_images_have_no_part_in_it(name: str, tmp_path: Path) -> None:
    config = quick("er", f"calibration.name={name}")
    stream = build(config.stream)
    rng = np.random.default_rng(0)
    noise = [
        Task(rng.integers(0, 256, test.images.shape, dtype=np.uint8), rng.permutation(test.labels))
        for test in stream.tests
    ]
    found = []
    for number, tests in enumerate((stream.tests, tuple(noise))):
        for _ in running(config, 1, tmp_path / str(number), replace(stream, tests=tests)):
            pass
        record = read_json(tmp_path / str(number) / RECORD)
        found.append(record)
    stages = [[(s["temperatures"], s["details"]) for s in each["calibrated"][name]["history"]] for each in found]
    assert stages[0] == stages[1]
    assert found[0]["metrics"]["faa"] > found[1]["metrics"]["faa"] + 20


def test_tasks_that_are_learnt_as_one_are_calibrated_as_one(tmp_path: Path) -> None:
    for name in ("rc", "t-cil"):
        record = run(quick("joint", f"calibration.name={name}"), 0, tmp_path / name)
        (stage,) = record["calibrated"][name]["history"]
        assert (stage["task"], stage["held_out"]) == (4, 248 if name == "rc" else 100)
        assert record["calibrated"][name]["metrics"]["faa"] == record["metrics"]["faa"]


@pytest.mark.parametrize("name", NAMES)
def test_nested_streams_whose_classes_come_again(name: str, tmp_path: Path) -> None:
    gcil = ["stream.kind=gcil", "stream.tasks=4", "stream.gcil.samples=100", "stream.gcil.most_classes=4"]
    config = quick("er+id", *gcil, f"calibration.name={name}")
    record = run(config, 0, tmp_path)
    entry = record["calibrated"][name]
    assert len(entry["history"]) == 4
    learner, stream = Learner.load(tmp_path / MODEL), build(config.stream)
    scored = [learner.predict_proba(test.images) for test in stream.tests]
    labels = [test.labels for test in stream.tests]
    assert entry["metrics"]["ece"] == pytest.approx(metrics.ece_per_task(scored, labels))
    assert entry["metrics"]["ece_pooled"] == pytest.approx(metrics.ece(scored[-1], labels[-1]))
    assert entry["metrics"]["faa"] == pytest.approx(record["metrics"]["faa"])


def test_all_classes_as_domain(tmp_path: Path) -> None:
    record = run(quick("er", "calibration.name=rc", "evaluation.classes=all"), 0, tmp_path)
    for stage in record["calibrated"]["rc"]["history"]:
        assert stage["raw"]["first"]["accuracy"] == stage["calibrated"]["first"]["accuracy"]
    assert record["calibrated"]["rc"]["metrics"]["accuracy"] == record["metrics"]["accuracy"]


def test_a_calibrator_brings_the_held_out_images_it_was_published_with() -> None:
    base = recipe("digits", "er")
    for name, share in (("none", 0.0), ("temperature", 0.0), ("rc", 0.2), ("t-cil", 100.0)):
        assert override_all(base, [f"calibration.name={name}"], METHODS).stream.hold_out == share
        kept = override_all(base, [f"calibration.name={name}", "stream.hold_out=0.3"], METHODS)
        assert kept.stream.hold_out == 0.3
    all_ = override_all(base, ["calibration.name=temperature", "calibration.on=all"], METHODS)
    assert all_.stream.hold_out == 0.2
    assert override_all(base, ["calibration.name=rc", "calibration.later=0.5"], METHODS).calibration == RC(later=0.5)


def test_a_calibrator_of_ones_own_needs_a_name_to_be_found_again() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(Calibrator):
        """Half as sure."""

        def calibrate(self, sight: Sight) -> Calibration:
            return Calibration(dict.fromkeys(ANSWERS, 2.0))

    config = replace(quick("er"), calibration=Mine())
    with pytest.raises(UserError, match=r"Mine has no name yet.*CALIBRATORS\['my-name'\] = Mine"):
        as_dict(config)
    CALIBRATORS["mine"] = Mine()
    try:
        assert as_dict(config)["calibration"] == {"name": "mine"}
        assert from_dict(as_dict(config)) == config
    finally:
        del CALIBRATORS["mine"]


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["calibration.name=rcc"], r"unknown calibration\.name 'rcc'; did you mean 'rc'"),
        (["calibration.name=er"], r"unknown calibration\.name 'er'"),
        (["method.name=rc"], r"unknown method\.name 'rc'"),
        (["calibration.later=0.5"], r"unknown setting 'calibration\.later'"),
        (["calibration.name=temperature", "memory.size=0"], r"memory\.size is 0, but temperature calibrates on"),
        (["calibration.name=rc", "evaluation.on=held-out"], r"evaluation\.on is held-out, but rc calibrates on these"),
        (["stream.hold_out=0.95"], r"stream\.hold_out is 0\.95"),
        (["stream.hold_out=100.5"], r"stream\.hold_out is 100\.5"),
    ],
)
def test_what_makes_no_sense_is_refused(assignments: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        override_all(recipe("digits", "er"), assignments, METHODS)


def test_a_run_that_held_nothing_out_says_how_to_run_again(tmp_path: Path) -> None:
    config = quick("er", "stream.hold_out=0", "stream.tasks=1")
    folders.start_run(config, tmp_path / "run", lambda job, step: None)
    for name, share in (("rc", "0.2"), ("t-cil", "100")):
        words = rf"{name} calibrates on such: run it again with --set stream\.hold_out={share};"
        with pytest.raises(UserError, match=words):
            calibrate(tmp_path / "run", chosen(name))
    (summary,) = calibrate(tmp_path / "run", chosen("temperature"))
    assert summary["calibrated"]["temperature"]["withheld"] == 0


def test_data_that_has_changed_is_noticed(plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "run")
    record = read_json(folder / "seed-7" / RECORD)
    record["answers"]["first"]["accuracy"] += 3
    write_json(folder / "seed-7" / RECORD, record)
    before = (folder / "seed-7" / MODEL).read_bytes()
    with pytest.raises(UserError, match="is the data the same"):
        calibrate(folder, chosen("temperature"))
    assert (folder / "seed-7" / MODEL).read_bytes() == before


def test_records_without_the_new_entries_are_read_as_they_are(plain: Path) -> None:
    record = read_json(plain / "seed-7" / RECORD)
    assert "calibrated" not in record
    assert "calibrated" not in summarise([record])


def test_a_stream_can_hold_out_so_many_images_of_each_task() -> None:
    stream: Stream = build(StreamConfig())
    held = build(StreamConfig(hold_out=20)).held_out
    for whole, out in zip(stream.tasks, held, strict=True):
        assert np.bincount(out.labels)[list(whole.classes)].tolist() == [10, 10]
    most = build(StreamConfig(hold_out=100)).held_out  # at most a fifth of a class
    for whole, out in zip(stream.tasks, most, strict=True):
        counts = np.bincount(whole.labels)
        np.testing.assert_array_equal(np.bincount(out.labels, minlength=len(counts)), counts // 5)
