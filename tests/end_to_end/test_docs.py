"""The pages that show code or numbers: the code runs and does what the page says, the numbers are those on record."""

import itertools
import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from ider.analysis.render import to_markdown
from ider.analysis.tables import comparison_table
from ider.methods import METHODS
from ider.recipes import BENCHMARKS, recipe, recipes

ROOT = Path(__file__).parents[2]


def code_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def _same_methods_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("er-distill", "er-distill+id"):
        monkeypatch.delitem(METHODS, name, raising=False)


def test_the_method_of_the_guide_works(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "guide"}
    try:
        for block in code_of("docs/add-a-method.md"):
            exec(compile(block, "add-a-method.md", "exec"), names)
    finally:
        for name in ("er-distill", "er-distill+id"):
            METHODS.pop(name, None)
    assert capsys.readouterr().out.strip() == "['all', 'distill']"


def test_the_example_of_the_users_own_stream_works(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = code_of("docs/benchmarks.md")
    exec(compile(block, "benchmarks.md", "exec"), {"__name__": "benchmarks"})
    assert capsys.readouterr().out.strip() == "(40, 3)"


def test_the_example_of_the_readme_works(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = code_of("README.md")
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    accuracy = float(capsys.readouterr().out.split()[0])
    assert accuracy > 0.8


def test_the_table_of_what_is_defined_where_is_true() -> None:
    lines = (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| methods |"))
    columns = [re.findall(r"`([^`]+)`", cell) for cell in lines[start].split("|")[2:-1]]
    columns = [[name for name in BENCHMARKS if any(fnmatch(name, pattern) for pattern in cell)] for cell in columns]
    assert sorted(name for column in columns for name in column) == sorted(BENCHMARKS)
    named = set()
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :]):
        cells = line.split("|")[1:-1]
        methods = re.findall(r"`([^`]+)`", cells[0])
        named |= set(methods)
        for method, (column, cell) in itertools.product(methods, zip(columns, cells[1:], strict=True)):
            for benchmark, memory in ((name, size) for name in column for size in BENCHMARKS[name].memories):
                row = BENCHMARKS[benchmark].table(memory).get(method)
                source = row.source.removesuffix(", for 5 tasks") if row else "not defined"
                single = source == "inferred" and "released" in cell  # which the page says there are
                assert single or source in cell, (method, benchmark, memory, source, cell)
    assert named == set(METHODS)


def test_the_table_of_the_readme_is_that_of_its_record() -> None:
    summaries = json.loads((ROOT / "results" / "digits-m30.json").read_text())["summaries"]
    rows = [line for line in to_markdown(comparison_table(summaries)).splitlines() if "±" in line and "|" in line]
    assert len(rows) == 5
    readme = (ROOT / "README.md").read_text()
    assert "\n".join(rows) in readme
    by_method = {summary["method"]: summary["answers"] for summary in summaries}
    first, second = (by_method["er+id"][answer] for answer in ("first", "second"))
    under = [-answers["overconfidence"]["mean"] for answers in (first, second)]
    less = first["faa"]["mean"] - second["faa"]["mean"]
    said = f"by {under[0]:.1f} points when read from its first answer, by {under[1]:.1f} when read from its second, at "
    assert f"{said}{less:.1f} points less accuracy" in " ".join(readme.split())


def test_the_pages_tables_of_digits_are_those_of_the_record_and_the_recipes() -> None:
    page = (ROOT / "docs" / "digits.md").read_text()
    summaries = json.loads((ROOT / "results" / "digits-all-methods.json").read_text())["summaries"]
    assert {summary["method"] for summary in summaries} == {*METHODS, "er-matched"} & set(recipes("digits"))
    rows = [line for line in to_markdown(comparison_table(summaries)).splitlines() if "±" in line and "|" in line]
    ordered = sorted(summaries, key=lambda summary: summary["method"] == "joint")  # as the table has it
    for row, summary in zip(rows, ordered, strict=True):
        assert f"{row} {summary['provenance']['cpu_seconds_a_run']:.1f} |" in page
        assert summary["config"]["train"]["lr"] == recipe("digits", summary["method"]).train.lr
    for name, config in recipes("digits").items():
        (line,) = re.findall(rf"^\| {re.escape(name)} \| ([\d.]+) \| ([^|]*)\| ([^|]*)\|[^|]*\|$", page, re.MULTILINE)
        assert float(line[0]) == config.train.lr
        assert line[1].strip() in ("", config.memory.policy)
        assert line[2].strip() == str(getattr(config.method, "memory_weight", ""))
