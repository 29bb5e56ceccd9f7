"""The table of tasks: class names, and each method's final accuracy on each task."""

from collections.abc import Callable

from ider.analysis.by_task import by_task_table
from ider.records import Record


def test_tasks_are_shown_by_the_names_of_their_classes(make_record: Callable[..., Record]) -> None:
    er = [make_record("er", seed) for seed in (0, 2)]
    joint = [make_record("joint", at_once=True)]
    for record in (*er, *joint):
        record["classes"] = ["ant", "bee", "crab", "dog", "eel", "fox"]
        record["tasks"] = [[0], [], [5, 1, 2, 3, 4]]  # in a nested stream a task may bring nothing new
    table = by_task_table({"er": er, "joint": joint})
    assert table.title == "digits: accuracy on each task's test set at the end (%)"
    assert [heading.text for heading in table.header] == ["Task", "New classes", "er", "joint"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["1", "ant", "52.00 ± 2.83", "50.00"],
        ["2", "–", "72.00 ± 2.83", "70.00"],
        ["3", "fox, bee, crab, ... (5)", "92.00 ± 2.83", "90.00"],
    ]
