"""Which class came with which task, and what the steps know of that, as device tensors."""

from collections.abc import Sequence

import torch

from ider.errors import UserError
from ider.types import Classes


class ClassBook:
    """`task_of` gives the task (from 0) that brought each class."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.task_of: dict[int, int] = {}
        self._classes: Classes | None = None

    @property
    def seen(self) -> tuple[int, ...]:
        """The classes that have come, in order."""
        return tuple(sorted(self.task_of))

    @property
    def current(self) -> list[int]:
        """The classes of the present task, or of the last one."""
        found: list[int] = [] if self._classes is None else self._classes.current.nonzero().flatten().tolist()
        return found

    @property
    def classes(self) -> Classes:
        """Past and current classes, for the steps."""
        assert self._classes is not None
        return self._classes

    def meet(self, classes: Sequence[int], task: int, disjoint: bool) -> None:
        """Take note of the classes of a task; one that was given up before its first step is forgotten."""
        known = {label: number for label, number in self.task_of.items() if number < task}
        again = sorted(known.keys() & set(classes))
        if again and disjoint:
            raise UserError(f"classes {again} come again, and this method is not defined for that; choose another one")
        self.task_of = known | {label: task for label in classes if label not in known}

    def find_room(self, slots: int, width: int) -> None:
        """Refuse a memory without a slot for each class that has come or is known to come."""
        classes = max(len(self.task_of), width)
        if slots < classes:
            raise UserError(
                f"memory.size is {slots}, but this method needs a sample of each of {classes} classes; "
                f"it must be at least {classes}"
            )

    def open(self, current: Sequence[int], task: int, width: int) -> None:
        """Say which classes are past and which are current, in place where the head has kept its width."""
        block = sum(number == 0 for number in self.task_of.values())
        if self._classes is None or len(self._classes.past) != width or self._classes.block != block:
            none = torch.zeros(width, dtype=torch.bool, device=self.device)
            task_of = torch.full((width,), -1, device=self.device)
            self._classes = Classes(none, none.clone(), torch.zeros((), device=self.device), block, task_of)
        past = [label for label, number in self.task_of.items() if number < task]
        for mask, labels in ((self._classes.past, past), (self._classes.current, current)):
            mask.zero_()
            mask[list(labels)] = True
        self._classes.finished.fill_(task)
        self._classes.task_of.fill_(-1)
        for label, number in self.task_of.items():
            self._classes.task_of[label] = number
