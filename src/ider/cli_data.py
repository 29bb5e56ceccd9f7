"""`ider data`: get, list and check the datasets."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ider.console import err, guarded, say, show_rows
from ider.data import datasets

app = typer.Typer(help="Get, list and check the datasets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A dataset (see: ider data list).")]
DataDir = Annotated[Path | None, typer.Option(help=r"Folder of the datasets \[$IDER_DATA, then the user's cache].")]


@app.command(epilog="Example: ider data fetch cifar100")
@guarded
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Download a dataset's official files, or what is missing of them; an interrupted download goes on."""
    from ider.data.download import fetch as download

    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bars:
        lines: dict[str, TaskID] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in lines:
                lines[file] = bars.add_task(file, total=total)
            bars.update(lines[file], completed=done, total=total)

        files = download(name, data_dir, show)
    for file in files:
        say(file)


@app.command("list", epilog="Example: ider data list")
@guarded
def list_(data_dir: DataDir = None) -> None:
    """The datasets that ider knows by name, and where they lie."""
    rows = []
    for name in datasets.DATASETS:
        found = datasets.status(name, data_dir)
        where = str(found.path) if found.path else f"get it: ider data fetch {name}"
        rows.append({"dataset": name, "what it is": found.description, "where it is": where})
    show_rows(rows)


@app.command(epilog="Example: ider data check cifar100")
@guarded
def check(name: Name, data_dir: DataDir = None) -> None:
    """Read a dataset from beginning to end, and say whether it is whole."""
    found = datasets.check(name, data_dir)
    sums = "all files have the publisher's checksums" if found.verified else "unpacked, so there are no checksums"
    say(f"{found.name}: {found.train:,} + {found.test:,} images of {found.classes} classes in {found.path}; {sums}")
