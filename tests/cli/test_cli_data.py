"""The user's own data and the named datasets, from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from ider.cli import app

SMALL = ["--epochs", "1", "--memory", "8", "--set", "net.width=2", "--device", "cpu", "--set", "engine.threads=1"]


def ider(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(autouse=True)
def _no_data_but_the_tests_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("IDER_DATA", raising=False)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four classes of twelve photos of various sizes, with names that say what they are."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(["ant", "bee", "crab", "dünn"]):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for photo in range(12):
            pixels = rng.integers(0, 60, (20 + photo, 24, 3)) + 50 * number
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{photo}.png")
    return tmp_path / "photos"


def test_a_folder_of_photos_is_learnt_in_one_line(photos: Path, tmp_path: Path) -> None:
    arguments = ["--data", f"folder:{photos}", "--tasks", "2", "--out", tmp_path / "out", "--data-dir", tmp_path / "d"]
    result = ider("run", "--method", "er", *arguments, *SMALL)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "seed-0" / "record.json").read_text())
    assert record["classes"] == ["ant", "bee", "crab", "dünn"]
    assert "crab, dünn" in result.output
    assert record["tasks"] == [[0, 1], [2, 3]]
    assert record["benchmark"] == f"folder:{photos}"
    again = ider("run", "--config", tmp_path / "out" / "config.toml", "--out", tmp_path / "again")
    assert again.exit_code == 0, again.output
    assert json.loads((tmp_path / "again" / "seed-0" / "record.json").read_text())["accuracy"] == record["accuracy"]


def test_arrays_in_tasks_of_unequal_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 9, 9, 3), dtype=np.uint8), np.arange(60) % 5
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])
    arguments = ["--data", f"npz:{tmp_path / 'mine.npz'}", "--set", "stream.sizes=[2, 1, 2]", "--out", tmp_path / "out"]
    result = ider("run", "--method", "er", *arguments, *SMALL)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "seed-0" / "record.json").read_text())
    assert record["tasks"] == [[0, 1], [2], [3, 4]]


def test_data_that_is_not_here_is_named_with_the_command_that_gets_it(tmp_path: Path) -> None:
    result = ider("run", "--benchmark", "cifar100", "--method", "er", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "ider data fetch cifar100" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()  # so that the folder is free for the next attempt


@pytest.mark.parametrize("command", ["run", "compare"])
def test_data_that_does_not_fit_leaves_no_folder(command: str, photos: Path, tmp_path: Path) -> None:
    result = ider(command, "--data", f"folder:{photos}", "--tasks", "3", "--out", tmp_path / "out")
    assert (result.exit_code, "possible: [1, 2, 4]" in result.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_benchmarks_are_listed_with_whether_their_data_is_here(tmp_path: Path) -> None:
    folder = tmp_path / "d" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (folder / name).touch()
    assert _where("cifar10", folder.parent) == "ider data fetch cifar10"  # batches.meta is missing
    (folder / "batches.meta").touch()
    assert _where("cifar10", folder.parent) == "here"
    assert _where("cifar100", folder.parent) == "ider data fetch cifar100"
    assert _where("digits", folder.parent) == "here"


def _where(benchmark: str, data_dir: Path) -> str:
    rows = json.loads(ider("list", "benchmarks", "--json", "--data-dir", data_dir).output)
    return next(row["data"] for row in rows if row["benchmark"] == benchmark)


def test_the_datasets_are_listed_and_checked() -> None:
    assert "ider data fetch" in ider("data", "list").output
    checked = ider("data", "check", "digits")
    assert "1,258 + 539 images of 10 classes" in checked.output
    missing = ider("data", "check", "cifar10")
    assert (missing.exit_code, "ider data fetch cifar10" in missing.stderr) == (2, True)
    unknown = ider("data", "fetch", "cifar-10")
    assert (unknown.exit_code, "did you mean 'cifar10'" in unknown.stderr) == (2, True)
    assert ider("data", "fetch", "digits").exit_code == 0


MISTAKES = {
    "no such folder": (["--data", "folder:nowhere"], "nowhere"),
    "no path": (["--data", "folder:"], "needs a path"),
    "both": (["--data", "folder:x", "--benchmark", "digits"], "leave out --benchmark"),
    "kind": (["--data", "zip:x"], "zip:x"),
    "no kind": (["--data", "photos"], "such as folder:photos"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_clear_line(mistake: str, tmp_path: Path) -> None:
    arguments, words = MISTAKES[mistake]
    result = ider("run", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
