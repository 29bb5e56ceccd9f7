"""Fields of configuration dataclasses: a default, one line of help, and what a value may be, checked in one place."""

import dataclasses
import math
import typing
from functools import cache
from typing import Any, Literal, TypeVar

from ider.errors import UserError, unknown

T = TypeVar("T")


def option(default: T, help: str, *, least: float | None = None, most: float | None = None) -> T:
    """A dataclass field with its help (shown by `ider list settings`) and, for numbers, its bounds."""
    return dataclasses.field(default=default, metadata={"help": help, "least": least, "most": most})


def hints_of(config: object) -> dict[str, Any]:
    """The types of a dataclass's fields, looked up once a class."""
    kind: Any = type(config)
    return _hints(kind)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def validate(config: Any, section: str = "") -> None:
    """Refuse a choice that is none, and a number that is not finite or out of bounds, naming field and value."""
    hints = hints_of(config)
    for item in dataclasses.fields(config):
        value, path = getattr(config, item.name), section + item.name
        if typing.get_origin(hints[item.name]) is Literal and value not in typing.get_args(hints[item.name]):
            raise unknown(path, value, typing.get_args(hints[item.name]))
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float):
                _check_number(path, number, item.metadata.get("least"), item.metadata.get("most"))


def _check_number(path: str, value: float, least: float | None, most: float | None) -> None:
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    if low <= value <= high and abs(value) != math.inf:
        return
    allowed = (
        f"lie in {least}..{most}" if most is not None else f"be at least {least}" if least is not None else "be finite"
    )
    finite = "" if math.isfinite(value) or allowed == "be finite" else " and be finite"
    raise UserError(f"{path} is {value}; it must {allowed}{finite}")
