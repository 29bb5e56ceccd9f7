"""How the figures look: sizes for print, one colour, marker and dash per method, axes without chart junk.

Colours are Okabe and Ito's (2008), legible with any colour vision; markers and dashes carry the same information in
grey. Figures are made with matplotlib's objects, never pyplot, so nothing outside them changes.
"""

import itertools
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator

from ider.analysis.aggregate import Runs, is_ceiling

_HANDLE, _SPACING = 2.6, 1.2  # of a legend, in font sizes
NARROW, WIDE = 3.5, 7.0  # inches: one column of a two-column page, and both
FONT, TITLE = 8.0, 9.0  # points, in print
GREY, LIGHT = "#6E6E6E", "#D0D0D0"
BLUE, VERMILLION = "#0072B2", "#D55E00"
_COLOURS = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # black is for ceilings; yellow is too pale
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "p", ">", "h", "*")
_Dash = tuple[float, tuple[float, ...]] | str
_DASHES: tuple[_Dash, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
_CEILING_DASHES: tuple[_Dash, ...] = ((0, (6, 2)), (0, (2, 2)), (0, (6, 2, 1, 2)))


@dataclass(frozen=True)
class Look:
    """One method's appearance, the same in every figure of the same runs."""

    colour: str
    marker: str
    dash: _Dash


def looks(runs: Runs) -> dict[str, Look]:
    """Appearances in the order of the methods; a ceiling is black, dashed and has no marker."""
    methods = [name for name, records in runs.items() if not is_ceiling(records)]
    ceilings = [name for name in runs if name not in methods]
    found = {
        name: Look(
            _COLOURS[index % len(_COLOURS)],
            _MARKERS[(index + index // (len(_COLOURS) * len(_DASHES))) % len(_MARKERS)],  # no two are all alike
            _DASHES[index // len(_COLOURS) % len(_DASHES)],
        )
        for index, name in enumerate(methods)
    }
    dashes = {name: _CEILING_DASHES[index % len(_CEILING_DASHES)] for index, name in enumerate(ceilings)}
    return found | {name: Look("black", "", dash) for name, dash in dashes.items()}


def new_figure(width: float, height: float, title: str, *, square: bool = False) -> Figure:
    """An empty figure with its title; the layout is solved when it is drawn, so that no text overlaps.

    `square` is for panels of equal aspect: they are drawn together instead of each alone in its share of the page.
    """
    figure = Figure(figsize=(width, height), layout="compressed" if square else "constrained")
    figure.suptitle(title, fontsize=TITLE)
    return figure


def panel_columns(count: int) -> int:
    """How many panels stand side by side: rows of equal length first, four at most."""
    return count if count <= 3 else 2 if count == 4 else 3 if count <= 6 else 4


def is_edge(index: int, count: int, columns: int) -> tuple[bool, bool]:
    """Whether a panel is the leftmost of its row, and whether none is below it: only there the axes are named."""
    return index % columns == 0, index + columns >= count


def tidy(axes: Axes) -> Axes:
    """Small ticks and labels, no frame on top and right."""
    axes.tick_params(labelsize=FONT, length=2.5, width=0.6)
    for side, spine in axes.spines.items():
        spine.set_linewidth(0.6)
        spine.set_visible(side in ("left", "bottom"))
    return axes


def label(axes: Axes, x: str = "", y: str = "") -> None:
    """Name the axes; the unit belongs in the name."""
    axes.set_xlabel(x, fontsize=FONT)
    axes.set_ylabel(y, fontsize=FONT)


def task_ticks(tasks: int) -> list[int]:
    """Task numbers to print: all of them, or 1 and every fifth (tenth, ...) where they would run into each other."""
    if tasks <= 12:
        return list(range(1, tasks + 1))
    step = next(step for step in itertools.chain((5, 10, 20, 50), itertools.count(100, 100)) if tasks // step <= 5)
    return [1, *range(step, tasks + 1, step)]


def fix_ticks(axes: Axes, tasks: int) -> None:
    """Number the tasks along x from 1."""
    axes.xaxis.set_major_locator(FixedLocator(task_ticks(tasks)))
    axes.set_xlim(0.6, tasks + 0.4)


def legend_below(figure: Figure, handles: list[Any], labels: list[str]) -> None:
    """A legend under everything, where it covers no data."""
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=_legend_columns(labels, figure.get_figwidth()),
        fontsize=FONT,
        frameon=False,
        handlelength=_HANDLE,
        columnspacing=_SPACING,
    )


def legend_height(labels: list[str], width: float) -> float:
    """Inches that `legend_below` takes."""
    return 0.17 * -(-len(labels) // _legend_columns(labels, width)) + 0.1


def _legend_columns(labels: list[str], width: float) -> int:
    """As many columns as fit into `width` inches; a legend's first columns are the full ones."""
    font = FontProperties(size=FONT)
    points = [text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] for text in labels]
    for columns in range(min(4, len(labels)), 1, -1):
        size = -(-len(labels) // columns)
        texts = sum(max(points[start : start + size]) for start in range(0, len(labels), size))
        others = columns * (_HANDLE + 0.8) + (columns - 1) * _SPACING + 1.0
        if texts + FONT * others <= 72 * width:
            return columns
    return 1


def legend_name(runs: Runs, name: str) -> str:
    """What the legend calls a method."""
    return f"{name} (ceiling)" if is_ceiling(runs[name]) else name


def title(text: str, runs: Runs, statistic: str) -> str:
    """What is seen, and over how many seeds."""
    counts = sorted({len(records) for records in runs.values()})
    if counts == [1]:
        return f"{text}\none seed"
    return f"{text}\n{statistic} {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} seeds"
