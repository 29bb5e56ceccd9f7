"""Tables of finished runs, from their summaries: methods compared, answers compared, one run in full.

print(to_markdown(comparison_table(summaries)))
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ider.analysis.columns import ANSWER_COLUMNS, CALIBRATION_COLUMNS, COLUMNS, METRICS, MISSING, Column, column
from ider.analysis.render import Cell, Heading, Table, to_csv, to_latex, to_markdown, to_rich
from ider.errors import UserError
from ider.records import ANSWERS, Summary, side_by_side

__all__ = [
    "ANSWER_COLUMNS",
    "COLUMNS",
    "METRICS",
    "Cell",
    "Column",
    "Heading",
    "Table",
    "answers_table",
    "calibration_notes",
    "calibration_table",
    "column",
    "comparison_table",
    "run_table",
    "to_csv",
    "to_latex",
    "to_markdown",
    "to_rich",
]


def comparison_table(
    summaries: Sequence[Summary],
    columns: Sequence[Column] = COLUMNS,
    *,
    ceilings: Collection[str] = ("joint",),
) -> Table:
    """One row a method, mean ± std over its seeds, the best of each column marked.

    `ceilings` are methods that break the rules of the game (joint sees every task at once): they come last, under a
    rule, and are never the best. Methods that print the same share the mark; a single contestant gets none. Calibrated
    answers have rows of their own below the raw one.
    """
    benchmark, summaries = _benchmark(summaries), side_by_side(summaries)
    ranked = [summary for summary in summaries if summary["method"] not in ceilings]
    above = [summary for summary in summaries if summary["method"] in ceilings]
    ordered = [*ranked, *above]
    extras = _extras(ordered)
    measured = [_column_cells(each, [summary["metrics"] for summary in ordered], len(ranked)) for each in columns]
    rows = tuple(
        (Cell(_label(summary, ceilings)), *_extra_cells(summary, extras), *(cells[row] for cells in measured))
        for row, summary in enumerate(ordered)
    )
    header = (Heading("Method"), *_extra_headings(extras), *_measured_headings(columns))
    return Table(_title(benchmark, ordered, extras), header, rows, (len(ranked),) if ranked and above else ())


def answers_table(summaries: Sequence[Summary], columns: Sequence[Column] = ANSWER_COLUMNS) -> Table:
    """Three rows a method, one an answer, so that calibration is seen with its sign for each of them.

    A star marks the answer whose metrics the run reports as its headline. A net without a second input has one answer.
    """
    benchmark = _benchmark(summaries)
    extras = [name for name in _extras(summaries) if name != "Answer"]
    answers = [_distinct_answers(summary) for summary in summaries]
    rows = tuple(
        (Cell(_name(summary) if place == 0 else ""), *_extra_cells(summary, extras), *cells)
        for summary, distinct in zip(summaries, answers, strict=True)
        for place, answer in enumerate(distinct)
        for cells in [_answer_cells(summary, answer, columns)]
    )
    header = (Heading("Method"), *_extra_headings(extras), Heading("Answer"), *_measured_headings(columns))
    title = f"{_title(benchmark, summaries, [*extras, 'Answer'])}; * is the headline"
    ends = itertools.accumulate(len(distinct) for distinct in answers)
    return Table(title, header, rows, tuple(end for end in ends if end < len(rows)))


def calibration_table(summaries: Sequence[Summary]) -> Table:
    """The answers of calibrated runs, as they are and as each calibrator makes them; T is the temperature."""
    found = side_by_side([summary for summary in summaries if summary.get("calibrated")])
    return answers_table(found, CALIBRATION_COLUMNS)


def calibration_notes(summaries: Sequence[Summary]) -> list[str]:
    """What each calibrator cost: how many images it saw outside training, and how many are not trained on for it."""
    found: dict[str, dict[str, list[str]]] = {}
    for summary in summaries:
        for name, entry in summary.get("calibrated", {}).items():
            found.setdefault(name, {}).setdefault(_fitted_on(entry), []).append(summary["method"])
    return [
        f"{name}{_of(methods) if len(costs) > 1 else ''}: at the end fitted {cost}"
        for name, costs in found.items()
        for cost, methods in costs.items()
    ]


def _of(methods: Sequence[str]) -> str:
    return " of " + ", ".join(methods)


def _fitted_on(entry: Mapping[str, Any]) -> str:
    outside, withheld = entry["held_out"]["mean"], entry["withheld"]
    images = f"with {outside:,.0f} images from outside the memory" if outside else "on the memory alone"
    return f"{images}; {f'{withheld:,}' if withheld else 'none'} of the training images were held out"


def run_table(summary: Summary) -> Table:
    """Every metric of one run, with what it means; a metric this version does not know is listed by its name."""
    metrics = summary["metrics"]
    known = [each.name for each in METRICS if each.name in metrics]
    names = [*known, *(name for name in metrics if name not in known)]
    header = (Heading("Metric"), *(Heading(text, "number") for text in ("Mean", "Std", "n")), Heading("Meaning"))
    title = f"{summary['method']} on {_title(summary['benchmark'], [summary], _extras([summary]))}"
    return Table(title, header, tuple(_metric_row(name, metrics[name]) for name in names))


def _metric_row(name: str, spread: Mapping[str, Any]) -> tuple[Cell, ...]:
    found = next((each for each in METRICS if each.name == name), None)
    shown = found or Column(name, name, "", "high", "", digits=3)
    mean, std = spread["mean"], spread["std"]
    numbers = (
        Cell(shown.number(mean), mean=mean),
        Cell(MISSING if std is None else f"{std:.{shown.digits}f}", mean=std),
        Cell(str(spread["n"]), mean=spread["n"]),
    )
    return Cell(found.heading if found else name), *numbers, Cell(shown.meaning)


def _column_cells(shown: Column, metrics: Sequence[Mapping[str, Any]], contestants: int) -> list[Cell]:
    """The cells of one column; only the first `contestants` rows can be its best."""
    spreads = [row.get(shown.name, {}) for row in metrics]
    scores = [shown.score(each["mean"]) for each in spreads[:contestants] if each.get("mean") is not None]
    top = max(scores) if len(scores) > 1 else None
    return [
        _cell(shown, each, row < contestants and each.get("mean") is not None and shown.score(each["mean"]) == top)
        for row, each in enumerate(spreads)
    ]


def _answer_cells(summary: Summary, answer: str, columns: Sequence[Column]) -> tuple[Cell, ...]:
    label = f"{answer} *" if answer == _answer(summary) else answer
    return Cell(label), *(_cell(each, summary["answers"][answer].get(each.name, {})) for each in columns)


def _distinct_answers(summary: Summary) -> Sequence[str]:
    found = summary["answers"]
    alike = all(found[answer] == found[ANSWERS[0]] for answer in ANSWERS)
    return (_answer(summary),) if alike else ANSWERS


def _cell(shown: Column, spread: Mapping[str, Any], best: bool = False) -> Cell:
    mean, std = spread.get("mean"), spread.get("std")
    return Cell(shown.spread(mean, std), best, mean, std)


def _benchmark(summaries: Sequence[Summary]) -> str:
    """The one benchmark of all summaries: numbers of different ones do not belong in one column."""
    if not summaries:
        raise UserError("a table needs at least one summary, got none")
    names = sorted({str(summary["benchmark"]) for summary in summaries})
    if len(names) > 1:
        raise UserError(f"a table compares runs on one benchmark, got {', '.join(names)}")
    return names[0]


def _label(summary: Summary, ceilings: Collection[str]) -> str:
    return f"{_name(summary)} (ceiling)" if summary["method"] in ceilings else _name(summary)


def _name(summary: Summary) -> str:
    """The method, and by what it is calibrated."""
    return ", ".join([summary["method"], *([summary["calibration"]] if "calibration" in summary else [])])


def _answer(summary: Summary) -> str:
    return str(summary["config"]["evaluation"]["answer"])


_EXTRAS = {"Memory": lambda summary: str(summary["memory"]), "Answer": _answer}


def _extras(summaries: Sequence[Summary]) -> list[str]:
    """What the runs do not have in common, besides the method: a column each, instead of a word in the title."""
    return [name for name, read in _EXTRAS.items() if len({read(summary) for summary in summaries}) > 1]


def _extra_headings(extras: Sequence[str]) -> tuple[Heading, ...]:
    return tuple(Heading(name) for name in extras)


def _extra_cells(summary: Summary, extras: Sequence[str]) -> tuple[Cell, ...]:
    return tuple(Cell(_EXTRAS[name](summary)) for name in extras)


def _measured_headings(columns: Sequence[Column]) -> tuple[Heading, ...]:
    return tuple(Heading(each.heading, "spread") for each in columns)


def _title(benchmark: str, summaries: Sequence[Summary], extras: Sequence[str]) -> str:
    """What is in the table; what all runs have in common is said here, unless it is the default."""
    answer = _answer(summaries[0])
    memory = "" if "Memory" in extras else f", memory {summaries[0]['memory']}"
    scored = "" if "Answer" in extras or answer == ANSWERS[0] else f", {answer} answer"
    counts = sorted({len(summary["seeds"]) for summary in summaries})
    if counts == [1]:
        return f"{benchmark}{memory}{scored}: one seed"
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{benchmark}{memory}{scored}: mean ± standard deviation over {seeds} seeds"
