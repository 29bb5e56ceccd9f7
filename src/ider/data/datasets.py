"""Datasets as uint8 arrays: images (N x channels x height x width), labels, names of the classes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from ider.data import cache, sources
from ider.data.arrays import from_arrays, from_torch
from ider.data.images import resize
from ider.data.published import PUBLISHED
from ider.data.types import Dataset, Split
from ider.errors import UserError, unknown

__all__ = [
    "DATASETS",
    "Checked",
    "Dataset",
    "Split",
    "Status",
    "check",
    "digits",
    "from_arrays",
    "from_folder",
    "from_torch",
    "load",
    "status",
]

DATASETS = {
    "digits": "1,797 grey images of 8x8 in 10 classes; comes with ider",
    **{name: published.description for name, published in PUBLISHED.items()},
}


@dataclass(frozen=True)
class Status:
    """What is there of a dataset: where all its files lie (None: nowhere yet), and whether it is decoded already."""

    name: str
    description: str
    path: Path | None
    decoded: bool


@dataclass(frozen=True)
class Checked:
    """A dataset that was read from beginning to end without fault.

    `verified` says whether all of its files have the publisher's checksums; unpacked files have none to compare with.
    """

    name: str
    path: Path
    train: int
    test: int
    classes: int
    verified: bool


def load(name: str, data_dir: Path | None = None, image_size: int | None = None) -> Dataset:
    """A dataset by name: one of `DATASETS`, `folder:PATH` or `npz:PATH`.

    Data is searched for in `data_dir`, then in $IDER_DATA, then in ~/.cache/ider; nothing is downloaded. With
    `image_size` images become square of that size; without, they stay as they are (those of a folder: 32).
    """
    if name == "digits":
        return _digits_of_size(image_size)
    with _repair_named(name, data_dir):
        return cache.load(sources.find(name, data_dir, image_size), sources.roots(data_dir))


def from_folder(
    path: Path,
    image_size: int = sources.DEFAULT_SIZE,
    test_share: float = sources.TEST_SHARE,
    seed: int = sources.SPLIT_SEED,
    data_dir: Path | None = None,
) -> Dataset:
    """The images in `path`/train and `path`/test (or val), a folder a class; or in one tree of class folders.

    One tree is split here: of each class `test_share` becomes test images, chosen by `seed`. The decoded images are
    kept in `data_dir`, or where `load` keeps them.
    """
    source = sources.folder_source(Path(path), image_size, test_share, seed)
    return cache.load(source, sources.roots(data_dir))


def status(name: str, data_dir: Path | None = None) -> Status:
    """Whether a dataset's data is there, without reading it."""
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    if name == "digits":
        return Status(name, DATASETS[name], _digits_path(), decoded=True)
    source = sources.find_published(name, data_dir, None)
    if source is None or not all(map(os.path.exists, source.files)):
        return Status(name, DATASETS[name], None, decoded=False)
    return Status(name, DATASETS[name], source.path, cache.is_ready(source, sources.roots(data_dir)))


def check(name: str, data_dir: Path | None = None) -> Checked:
    """Read all of a dataset's own files, not the decoded copy; a UserError says what is wrong with which."""
    if name == "digits":
        built_in = digits()
        return Checked(name, _digits_path(), len(built_in.train.labels), len(built_in.test.labels), 10, True)
    with _repair_named(name, data_dir):
        source = sources.find(name, data_dir, None)
        sums = cache.verify(source)
        with source.content() as content:
            train, test = (sum(len(labels) for _, labels in blocks) for blocks in (content.train, content.test))
        return Checked(name, source.path, train, test, len(content.class_names), sums.keys() <= source.md5.keys())


def digits() -> Dataset:
    """The 1,797 handwritten 8x8 digits of UCI that scikit-learn also carries, in a fixed stratified split (70:30).

    The file holds the original grey levels 0..16; here they are stretched to 0..255.
    """
    with (
        resources.files("ider.data").joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as packed,
    ):
        levels, labels, is_test = packed["levels"], packed["labels"].astype(np.int64), packed["is_test"]
    images = np.rint(levels[:, None] * (255 / 16)).astype(np.uint8)
    train, test = (Split(images[chosen], labels[chosen]) for chosen in (~is_test, is_test))
    return Dataset(train, test, tuple("0123456789"))


def _digits_path() -> Path:
    return Path(str(resources.files("ider.data").joinpath("digits.npz")))


def _digits_of_size(size: int | None) -> Dataset:
    sources.check_size(size)
    whole = digits()
    if size is None:
        return whole
    train, test = (replace(part, images=resize(part.images, size)) for part in (whole.train, whole.test))
    return replace(whole, train=train, test=test)


@contextmanager
def _repair_named(name: str, data_dir: Path | None) -> Iterator[None]:
    """Add to whatever is wrong with a published dataset's files the command that repairs it."""
    try:
        yield
    except UserError as error:
        command = sources.fetch_command(name, data_dir)
        if name not in PUBLISHED or command in str(error):
            raise
        raise UserError(f"{error}; repair it with: {command}") from None
