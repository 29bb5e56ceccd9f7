"""Named files in a folder or in an archive, read where they lie: nothing is ever extracted.

So a member name cannot lead anywhere; an archive that tries is refused all the same, and links count as absent.
"""

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from ider.errors import UserError

READ_ERRORS = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, UnicodeDecodeError)


class Files(Protocol):
    """Files by their name with forward slashes, relative to the folder that datasets are unpacked in."""

    def names(self, folder: str) -> list[str]:
        """The files below a folder, in order."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """A file's bytes, or a UserError if there is no such file."""
        ...

    def where(self, name: str) -> str:
        """How to name the file to a person."""
        ...


class FolderFiles:
    """Files that lie unpacked below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self, folder: str) -> list[str]:
        """The files below a folder, in order."""
        found = []
        for parent, _, files in os.walk(self.root / folder):
            inside = Path(parent).relative_to(self.root).as_posix()
            found += [f"{inside}/{name}" for name in files]
        return sorted(found)

    def open(self, name: str) -> IO[bytes]:
        """A file's bytes, or a UserError if there is no such file."""
        with reading(self.where(name)):
            return open(self.root / name, "rb")

    def where(self, name: str) -> str:
        """How to name the file to a person."""
        return str(self.root / name)


class ArchiveFiles:
    """The regular files of a tar or zip archive, each with the function that opens it."""

    def __init__(self, path: Path, members: Mapping[str, Callable[[], IO[bytes]]]) -> None:
        self.path = path
        self.members = members

    def names(self, folder: str) -> list[str]:
        """The files below a folder, in order."""
        return sorted(name for name in self.members if name.startswith(f"{folder}/"))

    def open(self, name: str) -> IO[bytes]:
        """A file's bytes, or a UserError if there is no such file."""
        if name not in self.members:
            raise UserError(f"{self.where(name)} is missing")
        with reading(self.where(name)):
            return self.members[name]()

    def where(self, name: str) -> str:
        """How to name the file to a person."""
        return f"{self.path} ({name})"


@contextmanager
def open_files(path: Path, root: Path) -> Iterator[Files]:
    """The files of an archive, or of a folder below `root`; both are named relative to `root`."""
    if path.is_dir():
        yield FolderFiles(root)
    elif path.suffix == ".zip":
        with reading(str(path)):
            archive = zipfile.ZipFile(path)
        with archive:
            yield ArchiveFiles(path, _zip_members(path, archive))
    else:
        with reading(str(path)):
            packed = tarfile.open(path, "r:*")  # noqa: SIM115 - closed below, where errors are not the opening's
        with packed:
            yield ArchiveFiles(path, _tar_members(path, packed))


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn what goes wrong while a file is read into one line that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{where} is missing") from None
    except READ_ERRORS as error:
        raise UserError(f"{where} is damaged or unreadable ({_short(error)})") from None


def _short(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__


def _zip_members(path: Path, archive: zipfile.ZipFile) -> dict[str, Callable[[], IO[bytes]]]:
    def opener(info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
        return lambda: archive.open(info)

    infos = archive.infolist()
    _refuse_outside(path, (info.filename for info in infos))
    regular = (info for info in infos if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16))
    return {_plain(info.filename): opener(info) for info in regular}


def _tar_members(path: Path, archive: tarfile.TarFile) -> dict[str, Callable[[], IO[bytes]]]:
    def opener(member: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
        def open_member() -> IO[bytes]:
            file = archive.extractfile(member)
            assert file is not None  # only links and folders have no content
            return file

        return open_member

    with reading(str(path)):
        members = archive.getmembers()
    _refuse_outside(path, (member.name for member in members))
    return {_plain(member.name): opener(member) for member in members if member.isfile()}


def _plain(name: str) -> str:
    return PurePosixPath(name).as_posix()  # "./a//b" is "a/b"


def _refuse_outside(path: Path, names: Iterable[str]) -> None:
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise UserError(f"{path} is not trustworthy: its member {name!r} points outside the archive")
