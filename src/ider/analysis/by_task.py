"""A table of what became of each task: its classes by name, and how much of it each method still knows at the end."""

from collections.abc import Mapping, Sequence

from ider.analysis.columns import MISSING, column
from ider.analysis.render import Cell, Heading, Table
from ider.records import Record, mean_std

SHOWN = 3  # names of a task's classes; the records hold all


def by_task_table(records: Mapping[str, Sequence[Record]]) -> Table:
    """One row a task, one column a method: the accuracy on the task's test set after the last task."""
    some = next(iter(records.values()))[0]
    names = [[some["classes"][label] for label in task] for task in some["tasks"]]
    rows = tuple(
        (Cell(str(task + 1)), Cell(_shortened(classes)), *(_final(found, task) for found in records.values()))
        for task, classes in enumerate(names)
    )
    header = (Heading("Task"), Heading("New classes"), *(Heading(method, "spread") for method in records))
    return Table(f"{some['benchmark']}: accuracy on each task's test set at the end (%)", header, rows)


def _final(records: Sequence[Record], task: int) -> Cell:
    spread = mean_std([record["accuracy"][-1][task] for record in records])
    mean, std = spread["mean"], spread["std"]
    return Cell(column("faa").spread(mean, std), mean=mean, std=std)


def _shortened(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown}, ... ({len(names)})" if len(names) > SHOWN else shown or MISSING
