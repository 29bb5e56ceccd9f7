"""The command line as a user meets it: results, files, exit codes and words."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from ider import METHODS, __version__, recipe
from ider.cli import app
from ider.records import load_records
from ider.settings import override_all

QUICK = ["--epochs", "1", "--set", "net.width=4", "--device", "cpu", "--set", "engine.threads=1"]


def ider(*arguments: str | Path) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def process(*arguments: str | Path) -> "subprocess.Popen[str]":
    """Start a command in a process of its own that minds Ctrl-C, even where these tests run in the background."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from ider.cli import app; app()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    result = ider("run", "--method", "er+id", "--out", folder, *QUICK)
    assert result.exit_code == 0, result.output
    folder.with_name("printed").write_text(result.output)
    return folder


def test_run_writes_records_summary_configuration_and_figures(finished: Path) -> None:
    names = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
    assert {"config.toml", "summary.json", "seed-0/record.json", "seed-0/model.safetensors"} <= names
    assert {f"figures/{name}.png" for name in ("accuracy_matrix", "reliability_diagram")} <= names
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["metrics"]["faa"]["n"] == 1
    assert summary["config"]["train"]["epochs"] == 1


def test_a_run_can_be_repeated_from_its_record_or_its_configuration(finished: Path, tmp_path: Path) -> None:
    original = json.loads((finished / "seed-0" / "record.json").read_text())
    for number, source in enumerate(["seed-0/record.json", "summary.json", "config.toml"]):
        folder = tmp_path / str(number)
        assert ider("run", "--config", finished / source, "--out", folder).exit_code == 0
        again = json.loads((folder / "seed-0" / "record.json").read_text())
        assert {**again, "provenance": 0} == {**original, "provenance": 0}


def test_compare_sets_methods_side_by_side(tmp_path: Path) -> None:
    result = ider("compare", "--methods", "finetune,er-matched", "--num-seeds", "2", "--out", tmp_path / "c", *QUICK)
    assert result.exit_code == 0, result.output
    comparison = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert comparison["methods"] == ["finetune", "er-matched"]
    assert [summary["metrics"]["faa"]["n"] for summary in comparison["summaries"]] == [2, 2]
    assert {name: len(records) for name, records in load_records(tmp_path / "c").items()} == {
        "finetune": 2,
        "er-matched": 2,
    }
    assert "er-matched" in result.output
    assert re.search(r"Task +New classes +finetune +er-matched\n.*\n1 +0, 1 +\d", result.output)
    again = ider("compare", "--methods", "finetune,er-matched", "--num-seeds", "2", "--out", tmp_path / "c", *QUICK)
    assert again.exit_code == 0
    shown = ider("show", tmp_path / "c", "--format", "latex")
    assert "\\toprule" in shown.output
    assert ider("plot", tmp_path / "c", "--formats", "svg").output.count(".svg") == 4
    assert ider("resume", tmp_path / "c").exit_code == 0


@pytest.mark.parametrize("what", ["methods", "benchmarks", "recipes", "settings"])
def test_listings(what: str) -> None:
    rows = json.loads(ider("list", what, "--json").output)
    assert len(rows) > 0
    assert all(str(value) != "" for row in rows for name, value in row.items() if name != "value"), rows
    shown = ider("list", what).output
    assert list(rows[0])[0] in shown
    assert "…" not in shown  # nothing is cut short, however narrow the terminal
    first = next(iter(rows[0]))
    assert all(str(row[first]) in shown for row in rows)
    assert all(name in shown.splitlines()[0] for name in rows[0])  # and no column left out


def test_version_and_short_help() -> None:
    assert ider("--version").output == f"ider {__version__}\n"
    for command in ([], ["run"], ["data", "fetch"]):
        assert ider(*command, "-h").output == ider(*command, "--help").output


MISTAKES = {
    "method": (["run", "--method", "er+di"], "did you mean 'er+id'"),
    "benchmark": (["run", "--benchmark", "digit"], "did you mean 'digits'"),
    "undefined": (["run", "-b", "gcil-cifar100-uniform", "-m", "xder"], "xder is not defined on gcil-cifar100-uniform"),
    "setting": (["run", "--set", "train.lrr=1"], "did you mean 'train.lr'"),
    "type": (["run", "--set", "train.lr=fast"], "train.lr is 'fast'; it must be a number"),
    "value": (["run", "--epochs", "0"], "train.epochs is 0"),
    "memory": (["run", "--memory", "-1"], "memory.size is -1"),
    "device": (["run", "--device", "tpu"], "engine.device 'tpu'"),
    "seeds": (["run", "--seeds", "1,x"], "--seeds is '1,x'"),
    "both seeds": (["run", "--seeds", "1", "--num-seeds", "2"], "not both"),
    "twice": (["compare", "--methods", "er,er"], "none may be named twice"),
    "none": (["compare", "--methods", ","], "names no method"),
    "listing": (["list", "method"], "did you mean 'methods'"),
    "folder": (["show", "nowhere"], "nowhere does not exist"),
    "resume": (["resume", "nowhere"], "nowhere"),
    "plot": (["plot", "nowhere"], "nowhere"),
    "config": (["run", "--config", "nowhere.toml"], "nowhere.toml"),
    "values": (["run", "--set", "images.mean=[1]", "--set", "images.std=[1, 2]"], "images.mean and images.std"),
    "tasks": (["run", "--set", "stream.tasks=3", "--out", "{tmp}"], "possible: [1, 2, 5, 10]"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_with_2_and_one_clear_line(mistake: str, tmp_path: Path) -> None:
    arguments, words = MISTAKES[mistake]
    result = ider(*(argument.replace("{tmp}", str(tmp_path / "out")) for argument in arguments))
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert words in lines[0]


def test_a_folder_in_use_is_not_overwritten(finished: Path) -> None:
    result = ider("run", "--method", "er+id", "--out", finished, *QUICK, "--set", "train.lr=0.5")
    assert result.exit_code == 2
    assert "train.lr: 0.1 -> 0.5" in result.stderr


def test_more_seeds_can_be_added_to_a_run(finished: Path) -> None:
    before = (finished / "seed-0" / "record.json").read_bytes()
    assert ider("run", "--method", "er+id", "--out", finished, "--seeds", "0,4", *QUICK).exit_code == 0
    assert (finished / "seed-0" / "record.json").read_bytes() == before
    assert json.loads((finished / "summary.json").read_text())["seeds"] == [0, 4]


def test_a_failing_run_does_not_take_the_others_along(tmp_path: Path) -> None:
    arguments = [
        "--methods",
        "finetune,er",
        "--out",
        tmp_path / "c",
        "--set",
        "train.lr=1e30",
        "--set",
        "train.epochs=2",
    ]
    result = ider("compare", *arguments)
    assert result.exit_code == 1
    assert "2 of 2 runs failed" in result.stderr
    assert "smaller train.lr" in result.stderr


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr("ider.cli.recipe", run_out)
    result = ider("run")
    assert (result.exit_code, result.stderr) == (1, "ider: out of memory\n")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_with_130_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    arguments = ["compare", "--methods", "er,er+id", "--out", tmp_path / "c", "--set", "engine.checkpoint_every=1"]
    whole = process(*arguments, "--epochs", "4")
    waited = time.monotonic() + 60
    while not list((tmp_path / "c").rglob("checkpoint.safetensors")) and time.monotonic() < waited:
        time.sleep(0.05)
    whole.send_signal(signal.SIGINT)
    _, words = whole.communicate(timeout=60)
    assert whole.returncode == 130, words
    assert re.search("stopped.*ider resume", words.replace("\n", " "))
    assert not (tmp_path / "c" / "comparison.json").exists()
    assert ider("resume", tmp_path / "c").exit_code == 0
    assert len(load_records(tmp_path / "c")) == 2


def test_the_resolved_configuration_is_printed(finished: Path) -> None:
    printed, _, _ = finished.with_name("printed").read_text().partition("\n[1/1]")
    assert tomllib.loads(printed) == json.loads((finished / "seed-0" / "record.json").read_text())["config"]
    assert "auto" not in printed


def test_what_is_finished_is_not_started_again(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for way in ("_here", "_in_processes"):
        monkeypatch.setattr(f"ider.sweeps.runner.{way}", pytest.fail)
    result = ider("resume", finished)
    assert result.exit_code == 0, result.output
    assert "] er+id seed 0 done\n" in result.output


@pytest.mark.parametrize("engine", ["device=cuda", "capture=graph"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_this_machine_cannot_do_is_said_before_anything_else(engine: str, tmp_path: Path) -> None:
    result = ider("run", "--set", f"engine.{engine}", "--out", tmp_path / "run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert not (tmp_path / "run").exists()


def test_settings_are_listed_as_they_are_typed() -> None:
    rows = json.loads(ider("list", "settings", "--method", "er+id", "--json").output)
    listed = {line.split()[0]: line for line in ider("list", "settings").output.splitlines() if line.strip()}
    words = {row["setting"]: re.split(r"  +", listed[row["setting"]])[1] for row in rows if row["value"] != ""}
    assert words["train.milestones"] == "[]"
    base = recipe("digits", "er+id")
    assert override_all(base, [f"{path}={text}" for path, text in words.items()], METHODS) == base


def test_a_reader_that_stops_reading_is_no_error(finished: Path) -> None:
    code = "from ider.cli import app; app()"
    command = [sys.executable, "-c", code, "show", str(finished)]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert done.stderr == ""


def test_help_says_what_holds_if_an_option_is_left_out() -> None:
    words = " ".join(re.sub("[│\n]", " ", ider("run", "--help").output).split())
    for default in ("[digits]", "[er+id]", "[auto]", "[below runs/]", "[the benchmark's]", "[$IDER_DATA, then"):
        assert default in words


def test_help_has_examples() -> None:
    for command in ("run", "compare", "resume", "show", "plot", "list"):
        assert "Example: ider" in " ".join(ider(command, "--help").output.split())
