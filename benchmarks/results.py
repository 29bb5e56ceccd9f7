"""The tables and the figure of docs/results.md, from the records of Split CIFAR-100 at full size in results/.

    python benchmarks/results.py

prints the tables and draws docs/images/quality_against_time.png. The records are the comparison.json files of the
commands that the first table names; a test holds the page to what is printed here.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ider.analysis import style
from ider.analysis.columns import column

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "images" / "quality_against_time.png"
METRICS = ("faa", "ff", "task_il", "ece", "ece_pooled", "overconfidence")
ANSWERS = {"first": "first", "second": "second", "mean": "mean of both"}
CURVE = ("faa", "ece")
# FAA, FF, task-IL, ECE of a memory of 500 and 2000. [P] the paper; [L] the runs that its authors published.
PUBLISHED = {
    500: {"er": ("23.41 ± 1.15 [P], 21.29 ± 1.07 [L]", "71.92 [P], 73.81 [L]", "73.98 [L]", "64.59 [P]"),
          "er+id": ("44.82 ± 0.85 [P], 45.21 ± 1.19 [L]", "29.98 [P], 32.27 [L]", "83.30 [L]", "13.65 [P]")},
    2000: {"er": ("40.47 ± 0.95 [P], 37.93 ± 0.76 [L]", "51.82 [P]", "", "45.64 [P]"),
           "er+id": ("56.59 ± 0.35 [P], 56.30 ± 0.50 [L]", "17.46 [P], 18.77 [L]", "86.55 [L]", "12.87 [P]")},
}  # fmt: skip

Summary = dict[str, Any]


def summaries() -> list[Summary]:
    """By memory, then method, then epochs."""
    found = [
        {**summary, "file": path.name}
        for path in sorted((ROOT / "results").glob("cifar100-h200-*.json"))
        for summary in json.loads(path.read_text())["summaries"]
    ]
    return sorted(found, key=lambda one: (one["memory"], one["method"], -one["config"]["train"]["epochs"]))


def spread(summary: Summary, name: str, answer: str = "first") -> str:
    """Mean and standard deviation of a metric."""
    value = summary["answers"][answer][name]
    return column(name).spread(value["mean"], value["std"])


def command(summary: Summary) -> str:
    """What repeats a run."""
    config = summary["config"]
    seeds = ",".join(map(str, summary["seeds"]))
    return (
        f"ider run --benchmark {summary['benchmark']} --method {summary['method']} --memory {summary['memory']} "
        f"--epochs {config['train']['epochs']} --seeds {seeds}"
    )


def results(found: Sequence[Summary]) -> Iterator[str]:
    """The headline metrics of every configuration."""
    yield "| memory | method | epochs a task | seeds | " + " | ".join(column(name).heading for name in METRICS) + " |"
    yield "|---:|---|---:|---:|" + "---:|" * len(METRICS)
    for one in found:
        cells = [spread(one, name) for name in METRICS]
        epochs = one["config"]["train"]["epochs"]
        yield f"| {one['memory']} | {one['method']} | {epochs} | {len(one['seeds'])} | {' | '.join(cells)} |"


def published(found: Sequence[Summary]) -> Iterator[str]:
    """What the paper and its authors' runs have, with 50 epochs a task."""
    yield "| memory | method | FAA (%) | FF (%) | Task-IL (%) | ECE (%) |"
    yield "|---:|---|---|---|---|---|"
    for memory in sorted({one["memory"] for one in found}):
        for method, cells in PUBLISHED[memory].items():
            yield f"| {memory} | {method} | {' | '.join(cells)} |"


def answers(found: Sequence[Summary]) -> Iterator[str]:
    """Accuracy and calibration of the first answer, the second and their mean."""
    names = ("faa", "ece", "ece_pooled", "overconfidence", "nll")
    yield "| memory | method | epochs a task | answer | " + " | ".join(column(name).heading for name in names) + " |"
    yield "|---:|---|---:|---|" + "---:|" * len(names)
    for one in (one for one in found if one["method"].endswith("+id")):
        for answer, text in ANSWERS.items():
            cells = [spread(one, name, answer) for name in names]
            yield (
                f"| {one['memory']} | {one['method']} | {one['config']['train']['epochs']} | {text} | "
                f"{' | '.join(cells)} |"
            )


def commands(found: Sequence[Summary]) -> Iterator[str]:
    """What repeats each row."""
    yield from (command(one) for one in found)


def draw(found: Sequence[Summary], memory: int = 500) -> None:
    """Quality against epochs, one line a method."""
    mine = [one for one in found if one["memory"] == memory]
    names = sorted({one["method"] for one in mine})
    figure = style.new_figure(style.WIDE, 2.9, f"Split CIFAR-100, memory {memory}: what shorter schedules cost")
    looks = style.looks({name: [{"accuracy": [0, 0], "tasks": [0, 0]}] for name in names})
    handles: dict[str, Any] = {}
    for place, metric in enumerate(CURVE, 1):
        axes = style.tidy(figure.add_subplot(1, len(CURVE), place))
        for name in names:
            rows = sorted(
                (one["config"]["train"]["epochs"], one["metrics"][metric]) for one in mine if one["method"] == name
            )
            epochs, values = zip(*rows, strict=True)
            look = looks[name]
            handles[name] = axes.errorbar(
                epochs,
                [value["mean"] for value in values],
                [value["std"] or 0 for value in values],
                color=look.colour, marker=look.marker, linestyle=look.dash, markersize=4, linewidth=1.2, capsize=2,
            )  # fmt: skip
        ticks = sorted({one["config"]["train"]["epochs"] for one in mine})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        style.label(axes, "Epochs a task", column(metric).heading)
    style.legend_below(figure, list(handles.values()), list(handles))
    figure.savefig(FIGURE, dpi=200, metadata={"Software": None})


def tables() -> Iterator[str]:
    """All lines of all tables."""
    found = summaries()
    for make in (results, published, answers, commands):
        yield from make(found)
        yield ""


if __name__ == "__main__":
    print("\n".join(tables()))
    draw(summaries())
