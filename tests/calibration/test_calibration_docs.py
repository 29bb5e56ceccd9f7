"""The page on calibration: its code runs, and its table is that of the record."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "calibration.md").read_text()
RECORD = json.loads((ROOT / "results" / "digits-calibration.json").read_text())["runs"]
CALIBRATORS = {"raw": "raw", "`temperature`": "temperature", "`rc`": "rc", "`t-cil`": "t-cil"}


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "calibration.md", "exec"), {"__name__": "calibration"})
    assert capsys.readouterr().out.split() == ["True", "True"]


def shown(metrics: dict[str, dict[str, float]], name: str, sign: str = "") -> str:
    spread = metrics[name]
    return f"{spread['mean']:{sign}.2f} ± {spread['std']:.2f}"


@pytest.mark.parametrize("memory", [30, 150])
@pytest.mark.parametrize("method", ["er", "er+id"])
def test_the_table_is_that_of_the_record(method: str, memory: int) -> None:
    run = RECORD[f"{method}, memory {memory}, held out 0.2"]
    for label, name in CALIBRATORS.items():
        metrics = (run["raw"] if name == "raw" else run["calibrated"][name])["first"]
        temperature = "" if name == "raw" else shown(metrics, "temperature")
        cells = [method, str(memory), label, shown(metrics, "faa"), shown(metrics, "ece")]
        cells += [shown(metrics, "overconfidence", "+"), shown(metrics, "nll"), temperature]
        assert f"| {' | '.join(cells).strip()} |".replace("  ", " ") in PAGE.replace("  ", " ")


def test_no_calibrator_of_the_record_changed_the_accuracy() -> None:
    for run in RECORD.values():
        for answer, raw in run["raw"].items():
            assert all(entry[answer]["faa"] == raw["faa"] for entry in run["calibrated"].values())
