"""From a dataset's name to its data on disk: which folders are searched, what is found there, and how it is read."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ider.data import arrays, folders
from ider.data.archives import FolderFiles, open_files
from ider.data.formats import Format
from ider.data.images import resized
from ider.data.published import PUBLISHED, Published
from ider.data.types import Block, Content, Source
from ider.errors import UserError, unknown

DEFAULT_SIZE = 32
TEST_SHARE, SPLIT_SEED = 0.2, 0
ALLOWED = ("digits", *PUBLISHED, "folder:PATH", "npz:PATH")


def roots(data_dir: Path | None) -> list[Path]:
    """The data folders in the order in which they are searched; the first one takes downloads."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ider"
    named = os.environ.get("IDER_DATA")
    found = [data_dir, Path(named) if named else None, cache]
    return list(dict.fromkeys(root.expanduser() for root in found if root is not None))


def find(name: str, data_dir: Path | None, image_size: int | None) -> Source:
    """Where a named dataset's data lies; a UserError says how to get what lies nowhere."""
    check_size(image_size)
    kind, colon, path = name.partition(":")
    if kind in ("folder", "npz") and not path:
        raise UserError(f"{name!r} needs a path: {kind}:PATH")
    if colon and kind == "folder":
        return folder_source(Path(path).expanduser(), image_size or DEFAULT_SIZE, TEST_SHARE, SPLIT_SEED)
    if colon and kind == "npz":
        return npz_source(Path(path).expanduser(), image_size)
    if name not in PUBLISHED:
        raise unknown("dataset", name, ALLOWED)
    found = find_published(name, data_dir, image_size)
    if found is None:
        looked = ", ".join(str(root) for root in roots(data_dir))
        raise UserError(
            f"{name} is in none of the data folders ({looked}); get it with: {fetch_command(name, data_dir)}"
        )
    return found


def check_size(image_size: int | None) -> None:
    """Refuse a size that no image can have."""
    if image_size is not None and image_size < 1:
        raise UserError(f"image_size is {image_size}; it must be at least 1")


def fetch_command(name: str, data_dir: Path | None) -> str:
    """What to type to get, or to repair, a published dataset."""
    return f"ider data fetch {name}" + (f" --data-dir {data_dir}" if data_dir is not None else "")


def find_published(name: str, data_dir: Path | None, image_size: int | None) -> Source | None:
    """The first data of a published dataset that lies in one of the data folders."""
    published = PUBLISHED[name]
    for root in roots(data_dir):
        for path, layout in published.layouts:
            if (root / path).is_file() or _holds_some(root, path, layout):
                return _published_source(name, published, root, path, layout, image_size)
    return None


def _holds_some(root: Path, path: str, layout: Format) -> bool:
    """Whether a folder holds any of its files: a download that came to nothing leaves an empty one."""
    return (root / path).is_dir() and any((root / name).exists() for name in layout.names(FolderFiles(root)))


def _published_source(
    name: str, published: Published, root: Path, path: str, layout: Format, image_size: int | None
) -> Source:
    @contextmanager
    def content() -> Iterator[Content]:
        with open_files(root / path, root) as files:
            yield _resized(_counted(layout.read(files), published.images, root / path), image_size)

    names = layout.names(FolderFiles(root)) if (root / path).is_dir() else [path]
    return Source(
        label=name,
        path=root / path,
        files=[str(root / file) for file in names],
        options=f"{layout} {published.images} {image_size}",
        md5={str(root / file): md5 for file, md5 in published.md5.items()},
        content=content,
    )


def folder_source(path: Path, size: int, test_share: float, seed: int) -> Source:
    """A folder of image folders."""
    check_size(size)
    tree = folders.scan(path, test_share, seed)

    @contextmanager
    def content() -> Iterator[Content]:
        yield folders.read(tree, size)

    files = [file for file, _ in (*tree.train, *tree.test)]
    return Source("folder", path, files, f"{size} {test_share} {seed}", {}, content)


def npz_source(path: Path, image_size: int | None) -> Source:
    """A .npz file of arrays."""

    @contextmanager
    def content() -> Iterator[Content]:
        yield _resized(arrays.read_npz(path), image_size)

    return Source("npz", path, [str(path)], str(image_size), {}, content)


def _resized(content: Content, size: int | None) -> Content:
    return replace(content, train=resized(content.train, size), test=resized(content.test, size))


def _counted(content: Content, expected: tuple[int, int], path: Path) -> Content:
    """The same content; at its end a UserError if images are missing, as after an interrupted download."""

    def counted(blocks: Iterable[Block], part: str, count: int) -> Iterator[Block]:
        seen = 0
        for images, labels in blocks:
            seen += len(labels)
            yield images, labels
        if seen != count:
            raise UserError(f"{path} is incomplete or changed: it holds {seen:,} {part} images instead of {count:,}")

    train, test = counted(content.train, "training", expected[0]), counted(content.test, "test", expected[1])
    return replace(content, train=train, test=test)
