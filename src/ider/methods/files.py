"""A method in a file of the user's own, `FILE.py:Class`: naming the file is what lets ider run it."""

import hashlib
import importlib.util
import re
import sys
import traceback
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ider.errors import UserError, unknown
from ider.protocols import Method

_NAME = re.compile(r"(?P<path>.+\.py):(?P<kind>\w+)(?P<plus>(\+id)?)")
_DIGEST = "__sha256__"
_MEMBERS = [name for name, member in vars(Method).items() if callable(member) and not name.startswith("_")]


@dataclass(frozen=True)
class FileName:
    """A method's name taken apart: where its file is, its class, and whether `+id` goes on top."""

    path: Path
    kind: str
    plus: str

    @property
    def known_as(self) -> str:
        """Its name in configurations: without the folder, so that a run means the same wherever the file lies."""
        return f"{self.path.name}:{self.kind}"

    @property
    def in_full(self) -> str:
        """Its name with the folder."""
        return f"{self.path}:{self.kind}"

    def located(self) -> "FileName":
        """The same with the whole path, from the folder in which ider was started."""
        try:
            return replace(self, path=self.path.expanduser().resolve())
        except (ValueError, RuntimeError) as error:
            raise UserError(f"{str(self.path)!r} is no path: {error}") from None


def parse(name: str) -> FileName | None:
    """The parts of a name such as `my_method.py:MyMethod+id`; None if it is not of that kind."""
    if name.endswith((".py", ".py+id")):
        raise UserError(f"{name!r} is a file; a method in it is named by its class too: {name}:MyMethod")
    found = _NAME.fullmatch(name)
    return None if found is None else FileName(Path(found["path"]), found["kind"], found["plus"])


def method_in(name: FileName) -> Method:
    """The method as its class makes it without arguments. This runs the file."""
    module = _run(name.path)
    own = [kind for kind, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    if not isinstance(getattr(module, name.kind, None), type):
        raise unknown(
            f"class in {name.path.name}", name.kind, [kind for kind in own if is_dataclass(vars(module)[kind])]
        )
    return made(getattr(module, name.kind), name.known_as)


def made(thing: Any, name: str) -> Method:
    """A class's instance, or the instance itself, if it can be a method at all."""
    kind = thing if isinstance(thing, type) else type(thing)
    if lacking := [member for member in _MEMBERS if not callable(getattr(kind, member, None))]:
        raise UserError(
            f"{name} lacks {', '.join(lacking)}; derive it from ider.methods.base.Supervised, which has them"
        )
    if not is_dataclass(kind):
        raise UserError(f"{name} must be a dataclass: put @dataclass(frozen=True, kw_only=True) above the class")
    try:
        method: Method = thing() if isinstance(thing, type) else thing
    except TypeError as error:
        raise UserError(f"{name} cannot be made without arguments ({error}); give every field a default") from None
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name} cannot be made with its defaults: {type(error).__name__}: {error}") from error
    return method


def digest_of(method: Method) -> str | None:
    """What tells the file that a method is in, as it was run, from other states of it; None for one in no file."""
    found: str | None = getattr(sys.modules.get(type(method).__module__), _DIGEST, None)
    base = getattr(method, "base", None)
    return found if found or base is None else digest_of(base)


def _run(path: Path) -> ModuleType:
    """The file as a module, under a name that is the same in every process; a file that has changed is run again."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    state = hashlib.sha256(content).hexdigest()
    name = f"_ider_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    known = sys.modules.get(name)
    if known is not None and vars(known).get(_DIGEST) == state:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)[_DIGEST] = state
    sys.modules[name] = module  # dataclasses and pickle look there
    try:
        # Not by its cached bytecode, which two changes within a second can leave behind.
        exec(compile(content, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UserError(f"{path.name} cannot be run: {_where(error, path)}") from error
    return module


def _where(error: BaseException, path: Path) -> str:
    """The error in one line, with the last line of the file that it came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else (lines or [None])[-1]
    text = getattr(error, "msg", None) or str(error)
    return f"{type(error).__name__}: {text}" + (f" (line {line})" if line else "")
