"""Checks of a method as it stands, without a step: its fields, what it asks for, and its way through a file."""

import contextlib
import copy
import dataclasses
import json
import typing
from collections.abc import Iterator
from typing import Any

from ider.config import RunConfig, as_dict, from_dict
from ider.contract.words import Wrong, demand, listed
from ider.errors import UserError
from ider.protocols import Method
from ider.types import CURRENT


def fields(method: Method) -> None:
    """It is a frozen, keyword-only dataclass whose fields have defaults and a line of help."""
    kind: Any = type(method)
    demand(dataclasses.is_dataclass(kind), "it is no dataclass: put @dataclass(frozen=True, kw_only=True) above it")
    demand(kind.__dataclass_params__.frozen, "it is not frozen: write @dataclass(frozen=True, kw_only=True)")
    for item in dataclasses.fields(kind):
        demand(item.kw_only, f"the field {item.name} is positional: write @dataclass(frozen=True, kw_only=True)")
        told = str(item.metadata.get("help", "")).strip()
        demand(told, f"the field {item.name} has no help: write {item.name}: ... = option(default, 'what it is')")
        demand("\n" not in told, f"the help of the field {item.name} has several lines; it must be one")
        with_default = item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
        demand(with_default, f"the field {item.name} has no default")
    demand(vars(kind).get("__doc__", "").partition("(")[0] != kind.__name__, "its class has no docstring")
    try:
        alike = hash(method) == hash(copy.deepcopy(method)) and kind() == kind()
    except TypeError as error:
        raise Wrong(f"it cannot be hashed ({error}): a field holds something that can change, such as a list") from None
    demand(alike, "two of them with the same fields are not equal: leave __eq__ and __hash__ to the dataclass")


def needs(method: Method) -> None:
    """What it asks for is well-formed and does not change."""
    found = method.needs()
    demand(found == method.needs(), "needs() does not return the same twice")
    names = [draw.name for draw in found.draws]
    demand(len({CURRENT, *names}) == 1 + len(names), f"needs().draws are {names}: each needs a name of its own")
    fields = [item.name for item in found.stores]
    demand(len(set(fields)) == len(fields), f"needs().stores are {fields}: each needs a name of its own")
    for what, asked, there in (("coins", found.coins, {CURRENT, *names}), ("dice", found.dice, set(names))):
        demand(set(asked) <= there, f"needs().{what} asks for {listed(set(asked) - there)}; there is {listed(there)}")
        demand(len(set(asked)) == len(asked), f"needs().{what} names a part twice: {list(asked)}")
    means = [item.name for item in found.averages]
    demand(
        not found.predicts or found.predicts in means, f"needs().predicts is {found.predicts!r}; it averages {means}"
    )
    stays = found.memory == "tasks"
    demand(
        stays or found.learns_from == "task",
        f"needs().learns_from is {found.learns_from!r}, but the memory changes with every step: set memory='tasks'",
    )
    reads = found.draws or (found.views is not None and found.views.memory)
    demand(
        not found.hold_out or (stays and not reads),
        "needs().hold_out keeps samples of the memory from training, but steps draw from it or write to it: it goes "
        "with memory='tasks' and without draws",
    )
    if found.side is not None:
        demand(method.side(5, 8, 1) is not None, "needs() asks for a side, but side() returns None")


def settings(method: Method) -> None:
    """Every setting survives the configuration file."""
    for some in (method, *variations(method)):
        config = RunConfig(method=some, benchmark="digits")
        try:
            again = from_dict(json.loads(json.dumps(as_dict(config))))
        except (TypeError, KeyError, UserError) as error:
            raise Wrong(
                f"{some} cannot be written to a file and read again ({type(error).__name__}: {error}); fields are int, "
                "float, str, bool, Literal[...] of strings, or tuples of one of these"
            ) from None
        demand(again == config, f"{some} comes back from a file as {again.method}")


def variations(method: Method) -> Iterator[Method]:
    """The method with one of its settings, or of those underneath, changed; but for those that it refuses."""
    some: Any = method
    kinds = typing.get_type_hints(type(method))
    for item in dataclasses.fields(some):
        value: Any = getattr(method, item.name)
        others = (
            variations(typing.cast(Method, value))
            if dataclasses.is_dataclass(value)
            else _others(kinds[item.name], value)
        )
        for other in others:
            with contextlib.suppress(UserError):
                yield dataclasses.replace(some, **{item.name: other})


def _others(kind: Any, value: Any) -> list[Any]:
    """Another value that a field of this kind can take, if one can be told."""
    if typing.get_origin(kind) is typing.Literal:
        return [choice for choice in typing.get_args(kind) if choice != value][:1]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, float):
        return [0.3125 + value / 2]
    if isinstance(value, int):
        return [value + 1]
    return [value[:-1]] if isinstance(value, tuple) else []
