"""What the command line knows of methods: names that may be files of the user's own, the list, and `check-method`."""

import warnings
from typing import Annotated, Any

import typer

from ider.console import err, guarded, out, say
from ider.errors import RunError, UserError
from ider.methods import METHODS
from ider.methods.files import parse
from ider.protocols import Method
from ider.settings import settings

Files = Annotated[
    list[str] | None,
    typer.Option(
        "--method", "-m", help="The file of a method of your own, FILE.py:CLASS, if that is in it; repeatable."
    ),
]


def in_a_file(name: str) -> bool:
    """Whether a name is that of a file and a class in it."""
    return parse(name) is not None


def typed(name: str) -> str:
    """A name from the command line as the library knows it; of a file, once that has been run."""
    return METHODS.load(name) if in_a_file(name) else name


def run_files(names: list[str]) -> None:
    """Run the files of methods that a folder names: that it names them is not enough."""
    for name in names:
        if not in_a_file(name):
            raise UserError(f"--method is {name!r}; here it takes the file of a method of your own, FILE.py:CLASS")
        typed(name)


def listed() -> list[dict[str, Any]]:
    """All methods, those of installed packages included; a package that is broken is told of in one line."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        methods = METHODS.everything()
    for warning in told:
        err.print(f"ider: {warning.message}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    return [
        {"method": name, "what it is": first_line(method).replace("`base`", name.removesuffix("+id"))}
        for name, method in methods.items()
    ]


def first_line(thing: object) -> str:
    """What a method or a calibrator is: the first line of its class's docstring."""
    return (type(thing).__doc__ or "").partition("\n")[0]


def described(method: Method) -> str:
    """A method's name, and the settings in which it differs from the one of that name."""
    (_, name, _), *own = settings(method, METHODS)
    usual = {path: value for path, value, _ in settings(METHODS[name], METHODS)}
    return " ".join([name, *(f"{path}={value}" for path, value, _ in own if value != usual[path])])


@guarded
def check_method(
    method: Annotated[str, typer.Argument(help="A method (see: ider list methods), or your own: FILE.py:CLASS.")],
) -> None:
    """Look whether a method keeps the contract that the engine relies on, and say what is wrong with it."""
    from ider.contract import check  # which builds nets

    name, wrong, count = METHODS.load(method), 0, 0
    for finding in check(METHODS[name]):
        count, wrong = count + 1, wrong + bool(finding.wrong)
        out.print("[red]wrong[/red]" if finding.wrong else "[green]right[/green]", end="  ")
        say(finding.title)
        if finding.wrong:
            say(f"       {finding.wrong}")
    if wrong:
        raise RunError(f"{name}: {wrong} of {count} checks say that something is wrong")
    say(f"{name}: all {count} checks passed")
