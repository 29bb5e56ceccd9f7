"""The layouts in which published datasets come: which files each consists of, and how their bytes are read.

A format is the same for an unpacked folder and for an archive; it reads in blocks, and every error names the file.
The formats of CIFAR are in cifar.py.
"""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Protocol, cast

import numpy as np

from ider.data import images
from ider.data.archives import Files, reading
from ider.data.types import Block, Content, Images, Labels
from ider.errors import UserError

BLOCK = 1000  # images; at 64x64x3 that is 12 MB


class Format(Protocol):
    """A layout of files, found by names that begin with the dataset's folder."""

    def names(self, files: Files) -> list[str]:
        """The files that the decoded arrays depend on."""
        ...

    def read(self, files: Files) -> Content:
        """The dataset, to be read in blocks."""
        ...


@dataclass(frozen=True)
class Idx:
    """MNIST's layout: images and labels as IDX files, compressed or not (the compressed one is taken first)."""

    folder: str
    class_names: tuple[str, ...]

    def names(self, files: Files) -> list[str]:
        """The files that the decoded arrays depend on."""
        there = set(files.names(self.folder))
        wanted = [
            f"{self.folder}/{part}-{kind}-ubyte"
            for part in ("train", "t10k")
            for kind in ("images-idx3", "labels-idx1")
        ]
        return [f"{name}.gz" if f"{name}.gz" in there else name for name in wanted]

    def read(self, files: Files) -> Content:
        """The dataset, to be read in blocks."""
        train_images, train_labels, test_images, test_labels = self.names(files)
        train = self._blocks(files, train_images, train_labels)
        return Content(self.class_names, train, self._blocks(files, test_images, test_labels))

    def _blocks(self, files: Files, images_name: str, labels_name: str) -> Iterator[Block]:
        labels = _idx(files, labels_name, dimensions=1).astype(np.int64)
        check_labels(labels, len(self.class_names), files.where(labels_name))
        pixels = _idx(files, images_name, dimensions=3)
        if len(pixels) != len(labels):
            raise UserError(f"{files.where(images_name)} has {len(pixels)} images for {len(labels)} labels")
        for start in range(0, len(labels), BLOCK):
            yield pixels[start : start + BLOCK, None], labels[start : start + BLOCK]


@dataclass(frozen=True)
class TinyImageNet:
    """TinyImageNet as published: class ids are the lines of wnids.txt; the validation images are the test set."""

    folder: str
    size: int = 64

    def names(self, files: Files) -> list[str]:
        """The files that the decoded arrays depend on."""
        tables = [f"{self.folder}/{name}" for name in ("wnids.txt", "words.txt", "val/val_annotations.txt")]
        pictures = [name for part in ("train", "val/images") for name in files.names(f"{self.folder}/{part}")]
        return tables + [name for name in pictures if name.endswith(".JPEG")]

    def read(self, files: Files) -> Content:
        """The dataset, to be read in blocks."""
        ids = lines(files, f"{self.folder}/wnids.txt")
        label_of = {wnid: label for label, wnid in enumerate(ids)}
        train = self._train(files, label_of)
        return Content(
            self._words(files, ids), self._blocks(files, train), self._blocks(files, self._val(files, label_of))
        )

    def _train(self, files: Files, label_of: dict[str, int]) -> list[tuple[str, int]]:
        found = [name for name in files.names(f"{self.folder}/train") if name.endswith(".JPEG")]
        owner = [PurePosixPath(name).relative_to(self.folder).parts[1] for name in found]
        return [(name, label_of[wnid]) for name, wnid in zip(found, owner, strict=True) if wnid in label_of]

    def _val(self, files: Files, label_of: dict[str, int]) -> list[tuple[str, int]]:
        name = f"{self.folder}/val/val_annotations.txt"
        rows = [line.split("\t") for line in lines(files, name)]
        if any(len(row) < 2 or row[1] not in label_of for row in rows):
            raise UserError(f"{files.where(name)} is damaged: a line gives no class that wnids.txt knows")
        return [(f"{self.folder}/val/images/{row[0]}", label_of[row[1]]) for row in rows]

    def _words(self, files: Files, ids: list[str]) -> tuple[str, ...]:
        rows = (line.partition("\t") for line in lines(files, f"{self.folder}/words.txt"))
        words = {wnid: meaning for wnid, _, meaning in rows}
        full = [words.get(wnid, wnid) for wnid in ids]
        short = [meaning.split(",")[0] for meaning in full]  # the first synonym, unless two classes share it
        return tuple(one if short.count(one) == 1 else all_ for one, all_ in zip(short, full, strict=True))

    def _blocks(self, files: Files, listed: Sequence[tuple[str, int]]) -> Iterator[Block]:
        def open_picture(name: str) -> Images:
            with files.open(name) as file:
                return images.decode(file, files.where(name), self.size, ("JPEG",))

        for start in range(0, len(listed), BLOCK):
            part = listed[start : start + BLOCK]
            yield np.stack([open_picture(name) for name, _ in part]), np.array([label for _, label in part], np.int64)


def check_labels(labels: Labels, classes: int, where: str) -> None:
    """Refuse labels outside 0..classes - 1."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise UserError(f"{where} is damaged: it holds label {wrong[0]}, but there are {classes} classes")


def lines(files: Files, name: str) -> list[str]:
    """The lines of a text file that are not empty."""
    with reading(files.where(name)), files.open(name) as file:
        return [line.strip() for line in file.read().decode("utf-8").splitlines() if line.strip()]


def _idx(files: Files, name: str, dimensions: int) -> Images:
    where = files.where(name)
    with reading(where), files.open(name) as file, _unpacked(file, name) as plain:
        head = np.frombuffer(plain.read(4 + 4 * dimensions), ">u1")
        body = plain.read()
    if len(head) != 4 + 4 * dimensions or head[:4].tolist() != [0, 0, 8, dimensions]:
        raise UserError(f"{where} is not an IDX file of bytes in {dimensions} dimensions")
    shape = head[4:].view(">u4").astype(np.int64)
    if len(body) != shape.prod():
        raise UserError(f"{where} is damaged: {len(body)} bytes follow its header instead of {shape.prod()}")
    return np.frombuffer(body, np.uint8).reshape(shape.tolist())


def _unpacked(file: IO[bytes], name: str) -> AbstractContextManager[IO[bytes]]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if name.endswith(".gz") else nullcontext(file)
