"""The pages that show code or numbers: the code runs and does what the page says, the numbers are those on record."""

import dataclasses
import itertools
import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest
from support import methods_as_before
from typer.testing import CliRunner

from ider.analysis.render import to_markdown
from ider.analysis.tables import comparison_table
from ider.cli import app
from ider.methods import METHODS
from ider.methods.base import Supervised
from ider.recipes import BENCHMARKS, recipe, recipes
from ider.types import Batch, Needs

ROOT = Path(__file__).parents[2]


def code_of(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_guide_to_a_method_works(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch) -> None:
    """The file, every command, the code from Python, and the mistake that is shown; figures are others' business."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ider.analysis.figures.draw_all", lambda folder: [])
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # runs in turn: processes side by side are tested elsewhere
    method, in_python = code_of("docs/add-a-method.md")
    assert len(method.splitlines()) < 40
    file = tmp_path / "my_method.py"
    file.write_text(method)
    commands = [line for block in code_of("docs/add-a-method.md", "sh") for line in block.splitlines()]
    assert {line.split()[1] for line in commands} == {"check-method", "run", "resume", "compare", "list"}
    with methods_as_before():
        said = {line: CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False) for line in commands}
        failed = [f"{line}: {result.output}" for line, result in said.items() if result.exit_code]
        assert not failed, "\n".join(failed)
        for kind in ("", "+id"):
            assert "14 checks passed" in said[f"ider check-method my_method.py:ERDistill{kind}"].output
        exec(compile(in_python, "add-a-method.md", "exec"), {"__name__": "guide"})
        assert capsys.readouterr().out.strip() == "['all', 'distill']"
        _the_mistake_of_the_guide(file, method)
    first, again = (json.loads(Path(f"runs/{name}/seed-0/record.json").read_text()) for name in ("mine", "again"))
    assert {**again, "provenance": 0} == {**first, "provenance": 0}
    assert first["config"]["method"]["name"] == "my_method.py:ERDistill"
    assert first["config"]["method"]["distill_weight"] == 0.05
    compared = json.loads(Path("runs/compared/comparison.json").read_text())
    assert compared["methods"] == ["er", "ERDistill", "ERDistill+id"]
    configs = [summary["config"] for summary in compared["summaries"]]
    assert [config["method"]["name"] for config in configs[1:]] == [
        f"my_method.py:ERDistill{end}" for end in ("", "+id")
    ]
    assert configs[0]["train"] == configs[1]["train"]


def _the_mistake_of_the_guide(file: Path, method: str) -> None:
    shown = " ".join(code_of("docs/add-a-method.md", "text")[0].split())
    line = "        if old.logits.rows.mean().item() > 0:\n"
    old, last = method.rsplit("        return", 1)
    file.write_text(f"{old}{line}            return{last}        return {{}}\n")
    result = CliRunner().invoke(app, ["check-method", "my_method.py:ERDistill"], catch_exceptions=False)
    assert result.exit_code == 1
    assert shown.removesuffix("[...]") in " ".join(result.output.split())


def test_the_guide_names_all_that_a_method_can_ask_for_and_define() -> None:
    page = (ROOT / "docs" / "add-a-method.md").read_text()
    offered = page[page.index("## What else the engine offers") :]
    for item in dataclasses.fields(Needs):
        assert re.search(rf"\b{item.name}=", offered), item.name
    hooks = {name for name in vars(Supervised) if not name.startswith("_")} - {"needs", "supervised", "further", "step"}
    for name in hooks - {"side", "keep"}:
        assert f"`{name}" in offered, name
    for given in dataclasses.fields(Batch):
        assert given.name in ("images", "labels") or f"batch.{given.name}" in offered, given.name


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
        seconds = summary["provenance"]["seconds"] / len(summary["seeds"])
        assert f"{row} {seconds:.1f} |" in page
        assert summary["config"]["train"]["lr"] == recipe("digits", summary["method"]).train.lr
    for name, config in recipes("digits").items():
        (line,) = re.findall(rf"^\| {re.escape(name)} \| ([\d.]+) \| ([^|]*)\| ([^|]*)\|[^|]*\|$", page, re.MULTILINE)
        assert float(line[0]) == config.train.lr
        assert line[1].strip() in ("", config.memory.policy)
        assert line[2].strip() == str(getattr(config.method, "memory_weight", ""))
