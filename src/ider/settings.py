"""Ways in and out of a tree of frozen dataclasses: nested dicts, TOML text and `path=value`, typed and checked."""

import dataclasses
import json
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from ider.errors import UserError, unknown
from ider.options import hints_of

D = TypeVar("D")
Choices = Mapping[str, Any]
"""Dataclass instances by name: a section of such a kind carries its `name` and starts from the named one."""

_KINDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


_TOO_LARGE = 2**63


class _Text(str):
    """A value from the command line, still to be read as its setting's type."""


def settings(config: object, choices: Choices, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every setting that a path reaches, as (path, value, help)."""
    name = name_of(config, choices)
    if name:
        yield prefix + "name", name, f"one of {', '.join(choices)}; the settings below are its own"
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value, path = getattr(config, item.name), prefix + item.name
        if dataclasses.is_dataclass(value):
            yield from settings(value, choices_of(item, choices), path + ".")
        else:
            yield path, value, item.metadata.get("help", "")


def to_dict(config: object, choices: Choices) -> dict[str, Any]:
    """Plain values that TOML and JSON can hold; what was chosen by name says its name."""
    name = name_of(config, choices)
    found: dict[str, Any] = {"name": name} if name else {}
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            value = to_dict(value, choices_of(item, choices))
        found[item.name] = list(value) if isinstance(value, tuple) else value
    return found


def choices_of(item: dataclasses.Field[Any], choices: Choices) -> Choices:
    """What the section in a field is chosen from by its `name`: its own choices, if the field has any."""
    own: Choices = item.metadata.get("choices", choices)
    return own


def name_of(config: object, choices: Choices) -> str | None:
    """The name under which something of the same make (its type, and that of what it is built on) can be chosen."""
    return next((name for name, choice in choices.items() if _make(choice) == _make(config)), None)


def _make(config: object) -> list[type]:
    """The type, and those of the sections below that are choices themselves."""
    base = getattr(config, "base", None)
    return [type(config), *(_make(base) if base is not None else [])]


def overlay(config: D, content: object, choices: Choices, path: str = "") -> D:
    """`config` with the settings in `content` (nested dicts) in place of its own."""
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is {content!r}; it must be a section")
    if name_of(config, choices) and "name" in content:
        name = _convert(str, content["name"], _join(path, "name"))
        try:
            config = choices[name]  # which may find what iterating does not show
        except KeyError:
            raise unknown(_join(path, "name"), name, choices) from None
        content = {key: value for key, value in content.items() if key != "name"}
    hints, new = hints_of(config), {}
    items = {item.name: item for item in dataclasses.fields(config)}  # type: ignore[arg-type]
    for name, value in content.items():
        if name not in items:
            raise unknown("setting", _join(path, name), [_join(path, known) for known in items])
        old, place = getattr(config, name), _join(path, name)
        if dataclasses.is_dataclass(old):
            new[name] = _of_kind(hints[name], overlay(old, value, choices_of(items[name], choices), place), place)
        else:
            new[name] = _convert(hints[name], value, place)
    return dataclasses.replace(config, **new)  # type: ignore[type-var]


def override(config: D, assignment: str, choices: Choices) -> D:
    """`config` with one `path=value` of the command line applied."""
    return override_all(config, [assignment], choices)


def override_all(config: D, assignments: Iterable[str], choices: Choices) -> D:
    """`config` with several `path=value` applied at once: some make sense only together. The last of a path counts."""
    content: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise UserError(f"--set takes path=value, not {assignment!r}")
        *sections, name = path.strip().split(".")
        inner = content
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise UserError(f"{section} is {inner!r}; it must be a section")
        inner[name] = _Text(text.strip())
    return overlay(config, content, choices)


def _of_kind(kind: Any, section: object, path: str) -> object:
    """The section, if what was chosen for it by name can stand in its place."""
    if isinstance(kind, type) and not getattr(kind, "_is_protocol", False) and not isinstance(section, kind):
        raise UserError(f"{path} cannot be a {type(section).__name__}; it must be a {kind.__name__} method")
    return section


def to_toml(content: Mapping[str, Any], section: str = "") -> str:
    """TOML text of nested dicts of numbers, strings, booleans and lists."""
    plain = [(name, value) for name, value in content.items() if not isinstance(value, Mapping)]
    lines = "".join(f"{name} = {_toml_value(value)}\n" for name, value in plain)
    text = f"\n[{section}]\n{lines}" if section else lines
    for name, value in content.items():
        if isinstance(value, Mapping):
            text += to_toml(value, _join(section, name))
    return text


def _toml_value(value: Any) -> str:
    """JSON writes TOML's values, but for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _convert(kind: Any, value: Any, path: str) -> Any:
    """`value` as the type of the setting at `path`; a wrong type is an error, never a guess."""
    if isinstance(value, _Text):
        value = _read(kind, value)
    if typing.get_origin(kind) is Literal:
        if value not in typing.get_args(kind):
            raise unknown(path, value, typing.get_args(kind))
        return value
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{path} is {value!r}; it must be a list, such as [1, 2]")
        return tuple(_convert(typing.get_args(kind)[0], item, path) for item in value)
    if type(value) is int and abs(value) >= _TOO_LARGE:
        raise UserError(f"{path} is a number of {value.bit_length()} bits; at most 63 make sense")
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise UserError(f"{path} is {value!r}; it must be {_KINDS[kind]}")
    return value


def _read(kind: Any, text: str) -> Any:
    """A word of the command line as TOML would read it; a string needs no quotes there."""
    if (kind is str or typing.get_origin(kind) is Literal) and text[:1] not in ("'", '"'):
        return str(text)
    try:
        content = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return str(text)
    return content["value"] if len(content) == 1 and "\n" not in text else str(text)
