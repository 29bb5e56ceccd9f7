"""Figures of finished runs, for print. Every function takes the records by method and returns a matplotlib figure.

accuracy_matrix(load_records(folder)).savefig("matrix.pdf")
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from ider.analysis import style
from ider.analysis.aggregate import (
    Array,
    Runs,
    Spread,
    balanced_share,
    is_ceiling,
    mean_matrix,
    seen_accuracy,
    task_count,
    task_mass,
)
from ider.analysis.reliability import reliability_diagram
from ider.errors import unknown
from ider.records import Record, load_records, write_bytes

__all__ = [
    "FIGURES",
    "accuracy_after_each_task",
    "accuracy_matrix",
    "draw_all",
    "recency_bias",
    "reliability_diagram",
]

_NO_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


def accuracy_after_each_task(runs: Runs) -> Figure:
    """Class-IL accuracy over the tasks seen so far, one line a method, with a band of one std over the seeds."""
    tasks = task_count(runs)
    labels = [style.legend_name(runs, name) for name in runs]
    figure = _narrow_figure("Accuracy as tasks arrive", runs, labels)
    axes = style.tidy(figure.add_subplot())
    looks = style.looks(runs)
    shifts = _side_by_side(len(runs)) if tasks == 1 else np.zeros(len(runs))
    handles = [
        _accuracy_line(axes, looks[name], records, shift)
        for (name, records), shift in zip(runs.items(), shifts, strict=True)
    ]
    style.fix_ticks(axes, tasks)
    _clip_percent(axes)
    style.label(axes, "Tasks learnt", "Accuracy, mean of tasks seen (%)")
    style.legend_below(figure, handles, labels)
    return figure


def accuracy_matrix(runs: Runs) -> Figure:
    """Class-IL accuracy on every task after every task, one heat map a method, mean over the seeds."""
    tasks = task_count(runs)
    shown = {name: records for name, records in runs.items() if not is_ceiling(records)} or runs
    columns = style.panel_columns(len(shown))
    size = _panel_size(columns, tasks)
    figure = _matrix_figure(shown, columns, size)
    grid = figure.subplots(-(-len(shown) // columns), columns, squeeze=False)
    for index, (axes, (name, records)) in enumerate(zip(grid.flat, shown.items(), strict=False)):
        mesh = _heat_map(axes, mean_matrix(records), size)
        axes.set_title(name, fontsize=style.FONT)
        _name_tasks(axes, is_ceiling(records), *style.is_edge(index, len(shown), columns))
    for axes in grid.flat[len(shown) :]:
        axes.remove()
    bar = figure.colorbar(mesh, ax=figure.axes, aspect=30, fraction=0.05, pad=0.02)
    bar.set_label("Accuracy (%)", fontsize=style.FONT)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=style.FONT, length=2.5, width=0.6)
    return figure


def recency_bias(runs: Runs) -> Figure:
    """The probability mass the final model gives to each task's classes, against the balanced share."""
    tasks = task_count(runs)
    labels = [*(style.legend_name(runs, name) for name in runs), "balanced"]
    figure = _narrow_figure("Recency bias after the last task", runs, labels)
    axes = style.tidy(figure.add_subplot())
    looks = style.looks(runs)
    handles = [
        _whiskers(axes, looks[name], np.arange(1, tasks + 1) + shift, task_mass(records))
        for (name, records), shift in zip(runs.items(), _side_by_side(len(runs)), strict=True)
    ]
    edges = np.arange(tasks + 1) + 0.5
    handles.append(axes.stairs(balanced_share(runs), edges, baseline=None, color=style.GREY, linewidth=1.0, zorder=1))
    style.fix_ticks(axes, tasks)
    axes.set_ylim(bottom=-0.03 * axes.get_ylim()[1])  # room for the markers of what gets nothing
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= axes.get_ylim()[1]])
    style.label(axes, "Task", "Probability mass received (%)")
    style.legend_below(figure, handles, labels)
    return figure


FIGURES: dict[str, Callable[[Runs], Figure]] = {
    "accuracy_after_each_task": accuracy_after_each_task,
    "accuracy_matrix": accuracy_matrix,
    "reliability_diagram": reliability_diagram,
    "recency_bias": recency_bias,
}


def draw_all(folder: Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Draw every figure of a run's or a comparison's folder into ``folder/figures``; same records, same bytes."""
    for name in formats:
        if name not in _NO_METADATA:
            raise unknown("figure format", name, _NO_METADATA)
    runs = load_records(folder)
    written = []
    for name, draw in FIGURES.items():
        figure = draw(runs)
        for kind in formats:
            path = folder / "figures" / f"{name}.{kind}"
            write_bytes(path, _rendered(figure, kind))
            written.append(path)
    return written


def _rendered(figure: Figure, kind: str) -> bytes:
    """The file's content without dates; fonts are embedded as TrueType, because publishers reject Type 3."""
    file = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "ider"}):
        figure.savefig(file, format=kind, dpi=200, metadata=_NO_METADATA[kind])
    return file.getvalue()


def _narrow_figure(text: str, runs: Runs, labels: list[str]) -> Figure:
    height = 2.6 + style.legend_height(labels, style.NARROW)
    return style.new_figure(style.NARROW, height, style.title(text, runs, "mean ± std over"))


def _side_by_side(count: int) -> Array:
    """Shifts along x that keep the whiskers of several methods apart."""
    return 0.4 * ((np.arange(count) + 0.5) / count - 0.5)


def _accuracy_line(axes: Axes, look: style.Look, records: Sequence[Record], shift: float) -> Any:
    curve = seen_accuracy(records)
    if is_ceiling(records):
        return axes.axhline(float(curve.mean[0]), color=look.colour, linestyle=look.dash, linewidth=1.2)
    steps: Array = np.arange(1.0, len(curve.mean) + 1) + shift
    if len(steps) == 1:  # a band needs two points
        return _whiskers(axes, look, steps, curve)
    if curve.std is not None:
        lower, upper = curve.mean - curve.std, curve.mean + curve.std
        axes.fill_between(steps, lower, upper, color=look.colour, alpha=0.15, linewidth=0)
    return axes.plot(steps, curve.mean, **_line(look))[0]


def _whiskers(axes: Axes, look: style.Look, x: Array, values: Spread) -> Any:
    return axes.errorbar(x, values.mean, values.std, capsize=1.5, elinewidth=0.8, **_line(look))[0]


def _line(look: style.Look) -> dict[str, Any]:
    return {
        "color": look.colour,
        "marker": look.marker or "none",
        "linestyle": look.dash,
        "linewidth": 1.2,
        "markersize": 4.0,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }


def _clip_percent(axes: Axes) -> None:
    """Room around the data, but hardly any beyond 0 and 100."""
    low, high = axes.get_ylim()
    low, high = max(low, -2.0), min(high, 102.0)
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= 100])


def _panel_size(columns: int, tasks: int) -> float:
    """Inches of a heat map's side: so wide that numbers fit into its cells, but no cell larger than it needs to be."""
    if columns == 1:
        width = style.NARROW
    elif columns == 2:
        width = style.NARROW if tasks <= 6 else 0.7 * style.WIDE
    else:
        width = style.WIDE
    return min((width - 1.1) / columns, max(1.0, 0.45 * tasks))


def _matrix_figure(shown: Runs, columns: int, size: float) -> Figure:
    lines = -(-len(shown) // columns)
    tall = max(len(records[0]["accuracy"]) / len(records[0]["tasks"]) for records in shown.values())
    text = style.title("Accuracy on each task over time", shown, "mean over")
    return style.new_figure(
        max(style.NARROW, columns * size + 1.1), lines * (0.95 * tall * size + 0.25) + 0.8, text, square=True
    )


def _heat_map(axes: Axes, matrix: Array, size: float) -> QuadMesh:
    """Drawn as vectors; `size` (inches) of the panel decides whether numbers fit into the cells."""
    rows, tasks = matrix.shape
    edges_x, edges_y = np.arange(tasks + 1) + 0.5, np.arange(rows + 1) + 0.5
    cell = 72 * (size - 0.15) / tasks  # points
    mesh = axes.pcolormesh(edges_x, edges_y, matrix, vmin=0, vmax=100, cmap="viridis")
    mesh.set(edgecolor="white" if cell > 8 else "face", linewidth=0.4)
    axes.set(aspect="equal", xlim=(0.5, tasks + 0.5), ylim=(rows + 0.5, 0.5))
    style.tidy(axes).tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xticks=style.task_ticks(tasks), yticks=style.task_ticks(rows))
    _write_numbers(axes, mesh, matrix, cell)
    return mesh


def _name_tasks(axes: Axes, once: bool, left: bool, bottom: bool) -> None:
    """Name the axes at the edges of the grid; a method trained once on everything has no task after which it was."""
    axes.tick_params(labelbottom=bottom, labelleft=left and not once)
    style.label(axes, "Tested on task" if bottom else "", "After task" if left and not once else "")


def _write_numbers(axes: Axes, mesh: QuadMesh, matrix: Array, cell: float) -> None:
    """Whole percents, in black or white, whichever contrasts more; none where they would not be legible."""
    points = min(style.FONT, cell / 2.1)  # "100" is 1.9 times as wide as its font size
    if points < 5:
        return
    for (row, column), value in np.ndenumerate(matrix):
        if not np.isnan(value):
            dark = _luminance(mesh.cmap(float(value) / 100)[:3]) < 0.18  # where both contrast equally
            colour = "white" if dark else "black"
            axes.text(column + 1, row + 1, f"{value:.0f}", ha="center", va="center", fontsize=points, color=colour)


def _luminance(colour: tuple[float, float, float]) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
