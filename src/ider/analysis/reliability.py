"""Reliability diagrams: how often the answers given with some confidence are right."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ider.analysis import style
from ider.analysis.aggregate import Array, Bins, Runs, metric_mean, reliability_bins, task_count, with_calibrated
from ider.analysis.columns import MISSING
from ider.records import Record

_OVER: dict[str, Any] = {"facecolor": style.VERMILLION, "hatch": "//////"}
_UNDER: dict[str, Any] = {"facecolor": style.BLUE, "hatch": ""}
_DIAGONAL: dict[str, Any] = {"color": "black", "linestyle": (0, (3, 2)), "linewidth": 0.8}
MOST_PANELS = 16  # four rows of four
_EDGE: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4}


def reliability_diagram(runs: Runs) -> Figure:
    """Accuracy against confidence in bins pooled over the seeds' final test images, one panel a method.

    The gap between a bin's accuracy and its mean confidence is coloured; below is how many images each bin holds.
    The numbers in the title are the headline metrics (so ECE is the mean over tasks, as in the tables, whereas the
    bins are pooled over tasks). Calibrated answers have panels of their own, as long as there are not too many.
    """
    task_count(runs)
    runs = with_calibrated(runs, MOST_PANELS)
    columns = style.panel_columns(len(runs))
    rows, width = -(-len(runs) // columns), style.NARROW if columns <= 2 else style.WIDE
    height = rows * ((width - 0.7) / columns * 1.25 + 0.45) + 1.1
    figure = style.new_figure(width, height, style.title("Accuracy against confidence", runs, "test images of"))
    grid = figure.subplots(2 * rows, columns, sharex=True, squeeze=False, height_ratios=(4, 1) * rows)
    bins = {name: reliability_bins(records) for name, records in runs.items()}
    tallest = max(float(each.share_B.max()) for each in bins.values())
    for index, (name, records) in enumerate(runs.items()):
        row, place = divmod(index, columns)
        upper, lower = (style.tidy(axes) for axes in grid[2 * row : 2 * row + 2, place])
        _draw_bins(upper, bins[name])
        _draw_histogram(lower, bins[name].share_B, tallest)
        upper.set_title(_panel_title(name, records), fontsize=style.FONT)
        _label(upper, lower, *style.is_edge(index, len(runs), columns))
    for axes in grid.reshape(rows, 2, columns).swapaxes(1, 2).reshape(-1, 2)[len(runs) :].flat:
        axes.remove()
    _legend(figure)
    return figure


def _label(upper: Axes, lower: Axes, left: bool, bottom: bool) -> None:
    """Tick labels and names on the left and on the bottom of the grid only."""
    style.label(upper, y="Accuracy (%)" if left else "")
    style.label(lower, x="Confidence (%)" if bottom else "", y="Images\n(%)" if left else "")
    upper.tick_params(labelleft=left, labelbottom=False)
    lower.tick_params(labelleft=left, labelbottom=bottom)


def _draw_bins(axes: Axes, bins: Bins) -> None:
    left, width = _bin_edges(bins.share_B)
    axes.bar(left, bins.accuracy_B, width, align="edge", color=style.LIGHT, **_EDGE)
    gap = bins.confidence_B - bins.accuracy_B
    for sign, look in ((1, _OVER), (-1, _UNDER)):
        shown = np.where(sign * gap > 0, gap, np.nan)
        axes.bar(left, shown, width, bottom=bins.accuracy_B, align="edge", alpha=0.85, **look, **_EDGE)
    axes.plot((0, 100), (0, 100), **_DIAGONAL)
    axes.set(xlim=(0, 100), ylim=(0, 100), xticks=(0, 50, 100), yticks=(0, 50, 100))


def _draw_histogram(axes: Axes, share_B: Array, tallest: float) -> None:
    left, width = _bin_edges(share_B)
    axes.bar(left, share_B, width, align="edge", color=style.GREY, **_EDGE)
    top = 10 * np.ceil(tallest / 10)
    axes.set(ylim=(0, top), yticks=(0, top))


def _bin_edges(share_B: Array) -> tuple[Array, float]:
    return 100 * np.arange(len(share_B)) / len(share_B), 100 / len(share_B)


def _panel_title(name: str, records: Sequence[Record]) -> str:
    ece, over = (metric_mean(records, metric) for metric in ("ece", "overconfidence"))
    if ece is None or over is None:
        return f"{name}\nECE {MISSING}"
    over = round(over, 1)
    word, sign = ("under", "\N{MINUS SIGN}") if over < 0 else ("over", "+")
    return f"{name}\nECE {ece:.1f} %, {word} {sign}{abs(over):.1f}"


def _legend(figure: Figure) -> None:
    handles = [Patch(**_OVER, **_EDGE), Patch(**_UNDER, **_EDGE), Line2D([], [], **_DIAGONAL)]
    style.legend_below(figure, handles, ["over-confident", "under-confident", "calibrated"])
