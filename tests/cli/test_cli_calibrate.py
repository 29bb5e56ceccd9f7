"""`--calibrate` and `ider calibrate` as a user meets them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ider import Learner
from ider.cli import app

QUICK = ["--epochs", "1", "--set", "net.width=4", "--device", "cpu", "--set", "engine.threads=1"]


def ider(*arguments: str | Path) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "compared"
    result = ider("compare", "--methods", "er,er+id", "--calibrate", "rc", "--out", folder, *QUICK)
    assert result.exit_code == 0, result.output
    folder.with_name("printed").write_text(result.output)
    return folder


def test_a_comparison_is_calibrated_after_every_task(compared: Path) -> None:
    printed = compared.with_name("printed").read_text()
    assert "er+id, rc" in printed
    assert "rc: at the end fitted with 128 images from outside the memory; 248 of the training images" in printed
    for name in ("er", "er+id"):
        record = json.loads((compared / name / "seed-0" / "record.json").read_text())
        assert record["config"]["stream"]["hold_out"] == 0.2
        assert len(record["calibrated"]["rc"]["history"]) == 5
    text = (compared / "er" / "config.toml").read_text()
    assert '[calibration]\nname = "rc"' in text


def test_a_finished_comparison_is_calibrated_in_place(compared: Path) -> None:
    before = json.loads((compared / "comparison.json").read_text())
    result = ider("calibrate", compared, "--with", "t-cil", "--set", "calibration.images=10")
    assert result.exit_code == 0, result.output
    after = json.loads((compared / "comparison.json").read_text())
    assert after["methods"] == before["methods"]
    for old, new, name in zip(before["summaries"], after["summaries"], ("er", "er+id"), strict=True):
        assert list(new["calibrated"]) == ["rc", "t-cil"]
        assert new["calibrated"]["t-cil"]["calibrator"]["images"] == 10
        new["calibrated"].pop("t-cil")
        assert new == old
        record = json.loads((compared / name / "seed-0" / "record.json").read_text())
        learner = Learner.load(compared / name / "seed-0" / "model.safetensors")
        assert learner.model.temperatures == record["calibrated"]["t-cil"]["temperatures"]
        summary = json.loads((compared / name / "summary.json").read_text())
        assert list(summary["calibrated"]) == ["rc", "t-cil"]
    shown = ider("show", compared, "--format", "markdown").output
    assert "| er, rc | first \\* |" in shown
    assert "| er+id, t-cil | first \\* |" in shown
    assert ider("resume", compared).exit_code == 0  # nothing is left to do, and nothing is lost
    assert list(json.loads((compared / "er" / "summary.json").read_text())["calibrated"]) == ["rc", "t-cil"]


def test_a_run_can_be_repeated_with_its_calibration_from_its_record(compared: Path, tmp_path: Path) -> None:
    source = compared / "er" / "seed-0" / "record.json"
    assert ider("run", "--config", source, "--out", tmp_path / "again").exit_code == 0
    one, other = (json.loads(path.read_text()) for path in (source, tmp_path / "again" / "seed-0" / "record.json"))
    assert one["calibrated"]["rc"] == other["calibrated"]["rc"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["calibrate", "nowhere", "--with", "rc"], "nowhere is not a folder"),
        (["calibrate", "{compared}", "--with", "t-sil"], "did you mean 't-cil'"),
        (["calibrate", "{compared}", "--with", "none"], "unknown calibrator 'none'"),
        (["calibrate", "{compared}", "--with", "rc", "--set", "train.lr=1"], "only settings of the calibrator"),
        (["calibrate", "{compared}", "--with", "rc", "--set", "calibration.images=1"], "unknown setting 'images'"),
        (["calibrate", "{compared}", "--with", "rc", "--device", "tpu"], "engine.device 'tpu'"),
        (["run", "--calibrate", "tcil"], "did you mean 't-cil'"),
        (["run", "--calibrate", "temperature", "--memory", "0"], "memory.size is 0, but temperature calibrates on"),
        (["run", "--calibrate", "rc", "--set", "evaluation.on=held-out"], "evaluation.on is held-out, but rc"),
    ],
)
def test_mistakes_end_with_2_and_one_clear_line(arguments: list[str], words: str, compared: Path) -> None:
    result = ider(*(argument.replace("{compared}", str(compared)) for argument in arguments))
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert words in lines[0]


def test_calibrators_are_listed() -> None:
    rows = json.loads(ider("list", "calibrators", "--json").output)
    assert [row["calibrator"] for row in rows] == ["none", "temperature", "rc", "t-cil"]
    assert all(row["what it is"].endswith(".") for row in rows)
    assert rows[2]["settings"] == "later=0.4 capacity=0"
    assert "Example: ider calibrate" in " ".join(ider("calibrate", "--help").output.split())


def test_what_needs_held_out_images_is_refused_with_the_setting_that_keeps_some(tmp_path: Path) -> None:
    assert ider("run", "--method", "er", *QUICK, "--out", tmp_path / "run").exit_code == 0
    result = ider("calibrate", tmp_path / "run", "--with", "temperature", "--set", "calibration.on=newest")
    assert result.exit_code == 2
    assert "and temperature (calibration.on=newest) calibrates on such: run it again with --set" in result.stderr
    assert ider("calibrate", tmp_path / "run", "--with", "temperature").exit_code == 0
