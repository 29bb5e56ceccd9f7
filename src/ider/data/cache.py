"""Decoded datasets on disk: decoded once, then mapped into memory.

`decoded/` in a data folder holds an entry (a folder of .npy files and header.json) per content, and per state of the
source files (names, sizes, times) a small JSON file that says which content that was. So what is untouched is found
at once; what was only moved or touched is recognised by its digest; and what has changed is decoded anew. An entry
appears by a rename when it is complete. Everything below `decoded/` may be deleted at any time.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from ider.data.archives import reading
from ider.data.blocks import gather, write_blocks
from ider.data.types import Content, Dataset, Source, Split
from ider.errors import UserError
from ider.records import write_bytes

FORMAT = 1
HEADER = "header.json"
PARTS = ("train", "test")
STALE_SECONDS = 86400
BROKEN_ENTRY = (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError)


def load(source: Source, roots: Sequence[Path]) -> Dataset:
    """The decoded dataset: from the first of the data folders that has it, else decoded and kept in the first it can.

    Images are mapped copy-on-write: writing to them changes this process's copy alone.
    """
    folders = [root / "decoded" for root in roots]
    pointer = f"{source.label}-{_state(source)}.json"
    found = _lookup(folders, pointer)
    if found is not None:
        return found
    entry = f"{source.label}-{_digest(source, verify(source))}"
    problem = None
    for folder in folders:
        try:
            dataset = _open(folder / entry) or _store(folder, entry, source)
        except OSError as error:
            problem = problem or f"{folder} ({error.strerror or error})"
            continue
        with contextlib.suppress(OSError):  # a cache that can only be read is still a cache
            write_bytes(folder / pointer, json.dumps({"entry": entry}).encode())
        return dataset
    warnings.warn(
        f"decoded data cannot be kept in {problem}; it is decoded again every time", UserWarning, stacklevel=3
    )
    return _in_memory(source)


def is_ready(source: Source, roots: Sequence[Path]) -> bool:
    """Whether `load` would find the dataset decoded, without looking at the content of its files."""
    try:
        state = _state(source)
    except UserError:  # a file is missing, which is for `load` to complain about
        return False
    return _lookup([root / "decoded" for root in roots], f"{source.label}-{state}.json") is not None


def verify(source: Source) -> dict[str, str]:
    """The MD5 of every file (here it tells contents apart, it protects nothing), compared with the publisher's."""
    sums = {}
    for name in source.files:
        with reading(name), open(name, "rb") as file:
            sums[name] = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if sums[name] != source.md5.get(name, sums[name]):
            raise UserError(f"{name} is damaged or incomplete: its MD5 is not the publisher's {source.md5[name]}")
    return sums


def _state(source: Source) -> str:
    def line(name: str) -> str:
        with reading(name):
            info = os.stat(name)
        # The change time sees a file that was replaced by one of the same size and modification time.
        return f"{os.path.abspath(name)}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ctime_ns}"

    return _key(source, map(line, source.files))


def _digest(source: Source, sums: dict[str, str]) -> str:
    return _key(source, (f"{os.path.relpath(name, source.path)}\0{md5}" for name, md5 in sums.items()))


def _key(source: Source, lines: Iterable[str]) -> str:
    told = "\n".join([str(FORMAT), source.options, *lines])
    return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _lookup(folders: Sequence[Path], pointer: str) -> Dataset | None:
    for folder in folders:
        try:
            entry = Path(json.loads((folder / pointer).read_bytes())["entry"]).name
        except BROKEN_ENTRY:
            continue
        dataset = _open(folder / entry)
        if dataset is not None:
            return dataset
    return None


def _open(entry: Path) -> Dataset | None:
    try:
        header = json.loads((entry / HEADER).read_bytes())
        names = tuple(str(name) for name in header["class_names"])
        train, test = (_open_part(entry, part, header["shapes"][part], len(names)) for part in PARTS)
    except BROKEN_ENTRY:  # missing, half-written or damaged: to be made again
        return None
    return Dataset(train, test, names)


def _open_part(entry: Path, part: str, shape: Sequence[int], classes: int) -> Split:
    path = entry / f"{part}-images.npy"
    images = np.load(path, mmap_mode="c", allow_pickle=False)
    labels = np.load(entry / f"{part}-labels.npy", allow_pickle=False)
    whole = images.dtype == np.uint8 and list(images.shape) == list(shape) and images.flags.c_contiguous
    whole = whole and path.stat().st_size == images.offset + images.nbytes
    whole = whole and labels.dtype == np.int64 and labels.shape == images.shape[:1]
    if not whole or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"{path} does not fit its header")
    return Split(np.asarray(images), labels)


def _store(folder: Path, entry: str, source: Source) -> Dataset:
    """Decode into a folder under a temporary name, then rename; only OSErrors of the cache itself leave as such."""
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    temporary = folder / f".{entry}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        temporary.mkdir()
        with source.content() as content:
            shapes = {part: _write_part(temporary, part, content) for part in PARTS}
        header = {"class_names": content.class_names, "shapes": shapes, "source": str(source.path)}
        write_bytes(temporary / HEADER, json.dumps(header).encode())
        return _publish(temporary, folder / entry)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, entry: Path) -> Dataset:
    found = _open(entry)
    if found is None:  # otherwise another process was faster
        shutil.rmtree(entry, ignore_errors=True)  # damaged
        with contextlib.suppress(OSError):
            os.rename(temporary, entry)
        found = _open(entry)
    if found is None:
        raise OSError(f"{entry} cannot be made")
    return found


def _sweep(folder: Path) -> None:
    """Remove what a process that was killed long ago has left half-written."""
    for left in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _write_part(folder: Path, part: str, content: Content) -> list[int]:
    blocks = content.train if part == "train" else content.test
    with open(folder / f"{part}-images.npy", "wb") as file:
        shape, labels = write_blocks(blocks, file)
        _sync(file)
    with open(folder / f"{part}-labels.npy", "wb") as file:
        np.save(file, labels, allow_pickle=False)
        _sync(file)
    return shape


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _in_memory(source: Source) -> Dataset:
    with source.content() as content:
        return Dataset(gather(content.train), gather(content.test), content.class_names)
