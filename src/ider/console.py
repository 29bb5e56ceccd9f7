"""What all commands share: the two consoles, listings, and errors as one clear line with the right exit code."""

import json
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from ider.errors import RunError, UserError
from ider.version import __version__

out, err = Console(), Console(stderr=True)
UNBOUNDED = 10_000


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A user's mistake ends with exit code 2, a failure with 1, Ctrl-C with 130; each says one clear line."""

    @wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except UserError as error:
            raise _failed(str(error), 2) from None
        except BrokenPipeError:
            raise  # whoever read the output has seen enough; typer ends quietly
        except (RunError, OSError, MemoryError) as error:
            raise _failed(str(error) or "out of memory", 1) from None
        except KeyboardInterrupt:
            raise _failed(
                "stopped; what is done is kept (go on with: ider resume DIR, or the same command)", 130
            ) from None

    return wrapper


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ider {__version__}")
        raise typer.Exit


def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Reliable class-incremental learning with idempotent experience replay."""


def say(text: object) -> None:
    """Print a line as it is, without markup, colours or line breaks of our own."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def listing(rows: Sequence[dict[str, Any]]) -> Table:
    """A table in which nothing is cut short: names are there to be copied."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, overflow="fold", no_wrap=all(" " not in str(row[name]) for row in rows))
    for row in rows:
        table.add_row(*(_as_typed(value) for value in row.values()))
    return table


def show_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print a listing; one that no folding makes narrow enough is wider than the terminal rather than cut short."""
    table = listing(rows)
    least = Measurement.get(out, out.options.update(width=UNBOUNDED), table).minimum
    table.width = least if least > out.width else None
    out.print(table, crop=False)


def _failed(message: str, code: int) -> typer.Exit:
    err.print(f"ider: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(code)


def _as_typed(value: Any) -> str:
    """A value as `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value)
