"""Tables: the text of the cells, which one is best, and that no character escapes its format."""

import csv
import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from ider.analysis import tables
from ider.errors import UserError
from ider.records import Record, Summary, summarise

Maker = Callable[..., Record]


def _texts(table: tables.Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def _best(table: tables.Table) -> set[tuple[int, int]]:
    return {(row, column) for row, cells in enumerate(table.rows) for column, cell in enumerate(cells) if cell.best}


@pytest.fixture
def summaries(make_record: Maker) -> list[Summary]:
    spec: dict[str, tuple[tuple[float, ...], float | None, float, float]] = {
        "joint": ((96.0, 98.0), 0.0, 1.0, 0.4),
        "er": ((78.0, 84.2), 20.0, 9.0, 8.0),
        "er+id": ((85.0, 86.0), None, 3.0, -4.0),
        "finetune": ((20.0, 20.0), 80.0, 40.0, 41.0),
    }
    return [
        summarise([make_record(m, seed, faa=faa, ff=ff, ece=ece, overconfidence=over) for seed, faa in enumerate(faas)])
        for m, (faas, ff, ece, over) in spec.items()
    ]


def test_comparison_prints_mean_and_spread_and_puts_the_ceiling_last(summaries: list[Summary]) -> None:
    table = tables.comparison_table(summaries)
    assert table.title == "digits, memory 30: mean ± standard deviation over 2 seeds"
    assert [heading.text for heading in table.header] == [
        "Method", "FAA (%) ↑", "FF (%) ↓", "ECE (%) ↓", "Overconfidence (points) →0",
    ]  # fmt: skip
    assert _texts(table) == [
        ["er", "81.10 ± 4.38", "20.00 ± 0.00", "9.00 ± 0.00", "+8.00 ± 0.00"],
        ["er+id", "85.50 ± 0.71", "–", "3.00 ± 0.00", "-4.00 ± 0.00"],
        ["finetune", "20.00 ± 0.00", "80.00 ± 0.00", "40.00 ± 0.00", "+41.00 ± 0.00"],
        ["joint (ceiling)", "97.00 ± 1.41", "0.00 ± 0.00", "1.00 ± 0.00", "+0.40 ± 0.00"],
    ]
    assert table.rules == (3,)


def test_best_follows_each_columns_direction_and_never_the_ceiling(summaries: list[Summary]) -> None:
    assert _best(tables.comparison_table(summaries)) == {(1, 1), (0, 2), (1, 3), (1, 4)}
    without = tables.comparison_table(summaries, [tables.column("faa")], ceilings=())
    assert _best(without) == {(0, 1)}
    assert without.rows[0][0].text == "joint"


def test_what_prints_the_same_is_equally_good_and_one_contestant_wins_nothing(make_record: Maker) -> None:
    runs = [summarise([make_record(method, faa=faa)]) for method, faa in (("a", 80.001), ("b", 80.004), ("c", 80.01))]
    faa = [tables.column("faa")]
    assert _best(tables.comparison_table(runs[:2], faa)) == {(0, 1), (1, 1)}
    assert _best(tables.comparison_table(runs, faa)) == {(2, 1)}
    assert _best(tables.comparison_table(runs[:1], faa)) == set()
    table = tables.comparison_table(runs[:1], faa)
    assert (table.title, table.rows[0][1].text) == ("digits, memory 30: one seed", "80.00")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("faa", 81.104, "81.10"),
        ("overconfidence", -0.001, "0.00"),
        ("overconfidence", 3.206, "+3.21"),
        ("nll", 0.70049, "0.700"),
        ("aurc", 0.01234, "0.0123"),
        ("bwt", -12.5, "-12.50"),
        ("faa", None, "–"),
    ],
)
def test_numbers_are_printed_with_sensible_digits_and_signs(name: str, value: float | None, text: str) -> None:
    assert tables.column(name).number(value) == text


def test_what_differs_between_runs_becomes_a_column(make_record: Maker) -> None:
    small, large = make_record("er"), make_record("er")
    large["memory"] = 200
    large["config"] = {"evaluation": {"answer": "mean"}}
    table = tables.comparison_table([summarise([small]), summarise([large])], [tables.column("faa")])
    assert _texts(table) == [["er", "30", "first", "80.00"], ["er", "200", "mean", "80.00"]]
    assert table.title == "digits: one seed"
    assert tables.comparison_table([summarise([large])]).title == "digits, memory 200, mean answer: one seed"


def test_a_comparison_of_nothing_or_of_two_benchmarks_is_refused(make_record: Maker) -> None:
    other = make_record()
    other["benchmark"] = "cifar100"
    with pytest.raises(UserError, match="at least one summary"):
        tables.comparison_table([])
    with pytest.raises(UserError, match="one benchmark, got cifar100, digits"):
        tables.answers_table([summarise([make_record()]), summarise([other])])
    with pytest.raises(UserError, match="unknown metric 'eec'; did you mean 'ece'"):
        tables.column("eec")


def test_answers_are_compared_with_the_sign_of_their_calibration(make_record: Maker) -> None:
    record = make_record("er+id", overconfidence=-2.5)
    record["answers"]["second"]["overconfidence"] = 6.0
    table = tables.answers_table([summarise([record]), summarise([make_record("er")])])
    assert _texts(table)[:3] == [
        ["er+id", "first *", "70.00", "5.00", "-2.50", "0.700"],
        ["", "second", "71.00", "5.00", "+6.00", "0.700"],
        ["", "mean", "72.00", "5.00", "-2.50", "0.700"],
    ]
    assert (len(table.rows), table.rules) == (6, (3,))
    assert _best(table) == set()


def test_a_run_lists_every_metric_with_its_meaning(make_record: Maker) -> None:
    summary = summarise([make_record(faa=80.0, novelty=1.0), make_record(seed=1, faa=82.0, novelty=2.0)])
    table = tables.run_table(summary)
    rows = {row[0]: row[1:] for row in _texts(table)}
    assert len(rows) == len(tables.METRICS) + 1
    assert rows["FAA (%) ↑"][:3] == ["81.00", "1.41", "2"]
    assert rows["FWT (%) ↑"][:3] == ["–", "–", "0"]
    assert rows["novelty"] == ["1.500", "0.707", "2", ""]
    assert all(meaning for name, (*_, meaning) in rows.items() if name != "novelty")
    assert table.title == "er on digits, memory 30: mean ± standard deviation over 2 seeds"


def test_markdown_aligns_marks_and_escapes(make_record: Maker) -> None:
    runs = [summarise([make_record("a|b_c*", faa=80.0)]), summarise([make_record("<d>", faa=81.0)])]
    lines = tables.to_markdown(tables.comparison_table(runs, [tables.column("faa")])).splitlines()
    assert lines == [
        "digits, memory 30: one seed",
        "",
        "| Method | FAA (%) ↑ |",
        "| --- | ---: |",
        "| a\\|b\\_c\\* | 80.00 |",
        "| &lt;d> | **81.00** |",
    ]


def test_latex_is_booktabs_with_rules_minus_signs_and_escapes(make_record: Maker) -> None:
    names = ("er_1&2", "{er}~^\\#$", "joint")
    runs = [summarise([make_record(name, overconfidence=-float(place + 2))]) for place, name in enumerate(names)]
    latex = tables.to_latex(tables.comparison_table(runs, [tables.column("overconfidence")])).splitlines()
    assert latex[3:] == [
        "\\begin{tabular}{lr}",
        "\\toprule",
        "Method & Overconfidence (points) $\\rightarrow$0 \\\\",
        "\\midrule",
        "er\\_1\\&2 & \\textbf{$-$2.00} \\\\",
        "\\{er\\}\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\#\\$ & $-$3.00 \\\\",
        "\\midrule",
        "joint (ceiling) & $-$4.00 \\\\",
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]


def test_latex_writes_what_it_prints_in_ascii(summaries: list[Summary]) -> None:
    latex = tables.to_latex(tables.comparison_table(summaries))
    assert latex.isascii()
    assert "er+id & \\textbf{85.50 $\\pm$ 0.71} & -- & \\textbf{3.00 $\\pm$ 0.00}" in latex
    assert "FAA (\\%) $\\uparrow$ & FF (\\%) $\\downarrow$" in latex


def test_csv_holds_unrounded_numbers_and_leaves_the_unknown_empty(summaries: list[Summary]) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.to_csv(tables.comparison_table(summaries)))))
    assert float(rows[0]["FAA (%)"]) == pytest.approx(81.1)
    assert float(rows[0]["FAA (%) std"]) == pytest.approx(4.384062, abs=1e-6)
    assert (rows[1]["Method"], rows[1]["FF (%)"], rows[1]["FF (%) std"]) == ("er+id", "", "")
    assert list(rows[0])[-2:] == ["Overconfidence (points)", "Overconfidence (points) std"]
    faa = next(csv.DictReader(io.StringIO(tables.to_csv(tables.run_table(summaries[1])))))
    assert (faa["Metric"], round(float(faa["Mean"]), 9), faa["n"]) == ("FAA (%) ↑", 81.1, "2")


def test_terminal_table_shows_brackets_as_they_are_and_bold_for_the_best(make_record: Maker) -> None:
    runs = [summarise([make_record("[red]er", faa=80.0)]), summarise([make_record("b", faa=81.0)])]
    rich = tables.to_rich(tables.comparison_table(runs, [tables.column("faa")]))
    console = Console(file=io.StringIO(), width=100, record=True, force_terminal=True, color_system="standard")
    console.print(rich)
    styled = console.export_text(styles=True, clear=False)
    assert re.search(r"\x1b\[1m *81\.00 •\x1b\[0m", styled)
    assert not re.search(r"\x1b\[1m *80\.00", styled)
    plain = console.export_text()
    assert "[red]er" in plain
    assert "digits, memory 30: one seed" in plain


def test_terminal_table_keeps_numbers_in_one_piece_on_a_narrow_terminal(summaries: list[Summary]) -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(tables.to_rich(tables.answers_table(summaries)))
    lines = console.export_text().splitlines()
    assert lines[0].rstrip() == "digits, memory 30: mean ± standard deviation over 2 seeds; * is the headline"
    assert sum(re.search(r"\+41\.00 ± 0\.00 +0\.700 ± 0\.000$", line.rstrip()) is not None for line in lines) == 3
    assert max(map(len, lines)) <= 80


def test_tables_load_neither_matplotlib_nor_the_engine(loaded_by: Callable[[str], set[str]]) -> None:
    loaded = loaded_by("ider.analysis.tables")
    assert {name for name in loaded if name.startswith("ider.")} == {
        "ider.analysis", "ider.analysis.columns", "ider.analysis.render", "ider.analysis.tables",
        "ider.errors", "ider.records",
    }  # fmt: skip
    assert not {"matplotlib", "numpy", "torch"} & loaded


def test_a_net_with_one_answer_has_one_row_in_the_answers_table(make_record: Maker) -> None:
    record = make_record("er")
    record["answers"] = dict.fromkeys(record["answers"], record["metrics"])
    table = tables.answers_table([summarise([record]), summarise([make_record("er+id")])])
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        ("er", "first *"),
        ("er+id", "first *"),
        ("", "second"),
        ("", "mean"),
    ]
    assert table.rules == (1,)
