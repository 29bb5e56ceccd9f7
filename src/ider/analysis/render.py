"""A table as plain data, and the four ways to write it: Markdown, LaTeX (booktabs), CSV and the terminal."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "±": r"$\pm$",
    "–": "--",
}
_DOT = " •"
_MARKDOWN = re.compile(r"([\\`*_|~\[\]])")


@dataclass(frozen=True)
class Heading:
    """The top of a column: `text` columns align left; a `spread` column holds mean and std, two columns in CSV."""

    text: str
    kind: Literal["text", "number", "spread"] = "text"


@dataclass(frozen=True)
class Cell:
    """What is printed, whether it is the best of its column, and the unrounded numbers behind it (None: unknown)."""

    text: str
    best: bool = False
    mean: float | None = None
    std: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header; `rules` are the rows above which a line is drawn."""

    title: str
    header: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rules: tuple[int, ...] = ()


def to_markdown(table: Table) -> str:
    """A title line and a pipe table; the best cells are bold. Pipe tables have no inner rules."""
    aligned = ["---" if heading.kind == "text" else "---:" for heading in table.header]
    lines = [[_escape_markdown(heading.text) for heading in table.header], aligned]
    lines += [[_marked(cell, _escape_markdown, "**{}**") for cell in row] for row in table.rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_escape_markdown(table.title)}\n\n{body}\n"


def to_latex(table: Table) -> str:
    r"""A ``table`` environment for ``\usepackage{booktabs}``; the best cells are bold."""
    columns = "".join("l" if heading.kind == "text" else "r" for heading in table.header)
    top = [r"\begin{table}[t]", r"\centering", rf"\caption{{{_escape_latex(table.title)}}}"]
    top += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    header = _latex_row([_escape_latex(heading.text) for heading in table.header])
    body = [line for index in range(len(table.rows)) for line in _latex_lines(table, index)]
    return "\n".join([*top, header, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def to_csv(table: Table) -> str:
    """For other programs: full precision, mean and std in columns of their own, unknown numbers empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([text for heading in table.header for text in _csv_heading(heading)])
    for row in table.rows:
        cells = zip(table.header, row, strict=True)
        writer.writerow([field for heading, cell in cells for field in _csv_fields(heading, cell)])
    return file.getvalue()


def to_rich(table: Table) -> "RichTable":
    """For the terminal: ``rich.print(to_rich(table))``. The best are bold and, for terminals that are not, dotted."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    texts = [[_dotted(table, row, column) for column in range(len(table.header))] for row in table.rows]
    marked = any(cell.best for row in table.rows for cell in row)
    title = Text(table.title + "; • is the best" * marked, no_wrap=True, overflow="ignore")  # wider than the columns
    rich = RichTable(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )
    for column, heading in enumerate(table.header):
        if heading.kind == "text":
            rich.add_column(Text(heading.text))
        else:  # numbers stay in one piece on a narrow terminal; text gives way
            widest = max(map(len, [*heading.text.split(), *(row[column] for row in texts)]))
            rich.add_column(Text(heading.text), justify="right", min_width=widest)
    for index, row in enumerate(table.rows):
        if index in table.rules and index:
            rich.add_section()
        shown = zip(texts[index], row, strict=True)
        rich.add_row(*(Text(text, "bold" if cell.best else "") for text, cell in shown))
    return rich


def _dotted(table: Table, row: Sequence[Cell], column: int) -> str:
    """A cell's text, and a dot behind the best of a column; the others keep its place free, so that digits align."""
    if not any(other[column].best for other in table.rows):
        return row[column].text
    return row[column].text + (_DOT if row[column].best else " " * len(_DOT))


def _marked(cell: Cell, escape: Callable[[str], str], bold: str) -> str:
    return bold.format(escape(cell.text)) if cell.best else escape(cell.text)


def _escape_markdown(text: str) -> str:
    html = text.replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\1", " ".join(html.splitlines()))


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.splitlines()))


def _latex_lines(table: Table, index: int) -> list[str]:
    rule = [r"\midrule"] if index in table.rules and index else []
    return [*rule, _latex_row([_latex_cell(cell) for cell in table.rows[index]])]


def _latex_cell(cell: Cell) -> str:
    text = _marked(cell, _escape_latex, "\\textbf{{{}}}")
    negative = cell.mean is not None and cell.text.startswith("-")
    return text.replace("-", "$-$", 1) if negative else text


def _latex_row(fields: list[str]) -> str:
    return " & ".join(fields) + r" \\"


def _csv_heading(heading: Heading) -> list[str]:
    plain = re.sub(r" [↑↓→].*$", "", heading.text)
    return [plain, f"{plain} std"] if heading.kind == "spread" else [plain]


def _csv_fields(heading: Heading, cell: Cell) -> list[str | float | None]:
    if heading.kind == "text":
        return [cell.text]
    return [cell.mean, cell.std] if heading.kind == "spread" else [cell.mean]
