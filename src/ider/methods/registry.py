"""All methods that can be named: ider's own, those of installed packages, and those in files that the user named."""

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ider.errors import UserError, unknown
from ider.methods.files import made, method_in, parse
from ider.methods.idempotence import idempotent
from ider.protocols import Method

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "ider.methods"
PLUS = "+id"


class Registry(dict[str, Method]):
    """A dict of what is known already, which looks for any other name at the moment when it is asked for.

    `registry[name]` finds the entry point of that name (group `ider.methods`) of an installed package, and puts `+id`
    on any method that takes it. It never runs a file: `load` does, which is called with names that the user typed,
    never with those of a configuration or a record, which a stranger may have written.
    """

    def __init__(self, own: Mapping[str, Method]) -> None:
        super().__init__(own)
        self.own = frozenset(own)
        self.origins: dict[str, str] = {}
        """Of what is not ider's own: the name by which another process can `load` it."""

    def __missing__(self, name: str) -> Method:
        method, origin = self._found(name)
        self[name], self.origins[name] = method, origin
        return method

    def load(self, name: str) -> str:
        """Make a method known that the user named, and say by which name; one in a file is run for that."""
        file = parse(name)
        if file is None:
            self._get(name)
            return name
        file = file.located()
        origin = self.origins.get(file.known_as, file.in_full)
        if origin != file.in_full:
            raise UserError(f"{file.in_full} and {origin} have the same name, {file.known_as}; rename one of the files")
        self[file.known_as], self.origins[file.known_as] = method_in(file), origin
        self.pop(file.known_as + PLUS, None)  # it would be of the class as it was
        self._get(file.known_as + file.plus)
        return file.known_as + file.plus

    def everything(self) -> "Registry":
        """Itself, once all installed packages have been asked; one that is broken costs a warning."""
        for point in _entry_points():
            try:
                if point.name in self.own:
                    raise UserError(f"the package {_package(point)} names a method {point.name!r}, as ider does")
                self._get(point.name)
            except UserError as error:
                warnings.warn(f"{error} (left out)", stacklevel=2)
        return self

    def names(self) -> list[str]:
        """All names that can be asked for, without asking; `+id` goes on most."""
        return list(dict.fromkeys([*self, *(point.name for point in _entry_points())]))

    def others(self) -> tuple[str, ...]:
        """What another process must `load` to know what is known here."""
        return tuple(dict.fromkeys(self.origins.values()))

    def _get(self, name: str) -> Method:
        try:
            return self[name]
        except KeyError:
            raise unknown("method", name, self.names()) from None

    def _found(self, name: str) -> tuple[Method, str]:
        for point in _entry_points():
            if point.name == name:
                return _loaded(point), name
        stem = name.removesuffix(PLUS)
        if stem != name:
            return idempotent(self[stem]), self.origins.get(stem, stem) + PLUS
        if parse(name) is not None:
            raise UserError(
                f"the method {name!r} is code in a file, and ider runs only a file that you name yourself: "
                f"add --method FOLDER/{name} (from Python: ider.methods.load_method)"
            )
        raise KeyError(name)


def short(name: str) -> str:
    """What results are shown under, and folders named after: of a method in a file its class."""
    return name.rpartition(":")[2]


def _entry_points() -> Iterator["EntryPoint"]:
    from importlib.metadata import entry_points  # which takes a while to import

    yield from entry_points(group=GROUP)


def _loaded(point: "EntryPoint") -> Method:
    where = f"the method {point.name!r} of the package {_package(point)}"
    if not all(character.isalnum() or character in "_-.+" for character in point.name):
        raise UserError(f"{where} is not named as a method can be: by letters, digits, and any of _-.+")
    try:
        return made(point.load(), point.name)
    except (Exception, SystemExit) as error:
        text = str(error).partition("\n")[0]
        raise UserError(f"{where} cannot be loaded: {type(error).__name__}: {text}") from error


def _package(point: "EntryPoint") -> str:
    return point.dist.name if point.dist is not None else point.value
