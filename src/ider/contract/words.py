"""How a check says what is wrong."""

import inspect
import linecache
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ider.contract.stage import PHASES, Case
from ider.protocols import Method

Check = Callable[[Method], None]


class Wrong(Exception):  # noqa: N818 - it is the method that is wrong
    """What is wrong with a method, and what to do."""


def demand(right: object, wrong: str) -> None:
    """Say what is wrong unless it is right."""
    if not right:
        raise Wrong(wrong)


def in_each_phase(look: Callable[[Method, Case], None]) -> Check:
    """A check of one phase as a check of them all, which names the phase in which something is wrong."""

    def check(method: Method) -> None:
        for name, case in PHASES.items():
            try:
                look(method, case)
            except Wrong as wrong:
                raise Wrong(f"{wrong} [{_described(name, case)}]") from None
            except Exception as error:
                raise Wrong(f"{raised(method, error)} [{_described(name, case)}]") from error

    return check


def raised(method: Method, error: Exception) -> str:
    """An exception in one line, with the line of the method that it came from."""
    text = (str(error).strip() or "no more is said").partition("\n")[0]
    return f"it raises {type(error).__name__}: {text}{at(method, error)}"


def at(method: Method, error: Exception) -> str:
    """The line of the method's file that an exception came from, if it came from there."""
    files = {inspect.getsourcefile(type(part)) for part in (method, getattr(method, "base", None)) if part is not None}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return place(frames[-1].filename, frames[-1].lineno) if frames else ""


def place(file: str, line: int | None) -> str:
    """A line of a file, with what is there."""
    return f" (line {line}: {linecache.getline(file, line or 0).strip()})"


def listed(names: Any) -> str:
    """Names as one reads them."""
    return ", ".join(map(repr, names)) or "nothing"


def same_names(found: Mapping[str, object], asked: Any, what: str) -> None:
    """Two sets of names must be one."""
    more, less = sorted(set(found) - set(asked)), sorted(set(asked) - set(found))
    demand(not more, f"{what}: {listed(more)} is not declared")
    demand(not less, f"{what}: {listed(less)} is declared, but missing")


def _described(name: str, case: Case) -> str:
    task = "a later task" if case.later else "the first task"
    return f"phase {name!r}: {task}, {case.current} current rows, {case.drawn} rows of each draw"
