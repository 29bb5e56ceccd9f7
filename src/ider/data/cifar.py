"""The two layouts of CIFAR-10 and CIFAR-100: the binary version and the pickles of the Python version."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ider.data import unpickle
from ider.data.archives import Files, reading
from ider.data.formats import BLOCK, check_labels, lines
from ider.data.types import Block, Content, Images, Labels
from ider.errors import UserError

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarBinary:
    """Records of one or two label bytes (the last one counts) and 3 x 32 x 32 pixels."""

    folder: str
    train: tuple[str, ...]
    test: str
    class_names: str
    label_bytes: int = 1

    def names(self, files: Files) -> list[str]:
        """The files that the decoded arrays depend on."""
        return [f"{self.folder}/{name}" for name in (*self.train, self.test, self.class_names)]

    def read(self, files: Files) -> Content:
        """The dataset, to be read in blocks."""
        classes = tuple(lines(files, f"{self.folder}/{self.class_names}"))
        return Content(classes, self._blocks(files, self.train, classes), self._blocks(files, (self.test,), classes))

    def _blocks(self, files: Files, parts: Sequence[str], classes: tuple[str, ...]) -> Iterator[Block]:
        size = self.label_bytes + PIXELS
        for name in (f"{self.folder}/{part}" for part in parts):
            where = files.where(name)
            with reading(where), files.open(name) as file:
                while chunk := file.read(BLOCK * size):
                    if len(chunk) % size:
                        raise UserError(f"{where} is damaged: its size is not a multiple of {size} bytes")
                    records = np.frombuffer(chunk, np.uint8).reshape(-1, size)
                    labels = records[:, self.label_bytes - 1].astype(np.int64)
                    check_labels(labels, len(classes), where)
                    yield records[:, self.label_bytes :].reshape(-1, 3, 32, 32), labels


@dataclass(frozen=True)
class CifarPython:
    """Pickled dictionaries of pixels and labels, as torchvision keeps them."""

    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    names_key: str
    labels_key: str

    def names(self, files: Files) -> list[str]:
        """The files that the decoded arrays depend on."""
        return [f"{self.folder}/{name}" for name in (*self.train, self.test, self.meta)]

    def read(self, files: Files) -> Content:
        """The dataset, to be read in blocks."""
        where = files.where(f"{self.folder}/{self.meta}")
        listed = _unpickled(files, f"{self.folder}/{self.meta}").get(self.names_key)
        if not isinstance(listed, list):
            raise UserError(f"{where} is damaged: it has no list {self.names_key!r}")
        classes = tuple(unpickle.text(item) for item in listed)
        return Content(classes, self._blocks(files, self.train, classes), self._blocks(files, (self.test,), classes))

    def _blocks(self, files: Files, parts: Sequence[str], classes: tuple[str, ...]) -> Iterator[Block]:
        for name in (f"{self.folder}/{part}" for part in parts):
            images, labels = self._batch(_unpickled(files, name), files.where(name))
            check_labels(labels, len(classes), files.where(name))
            for start in range(0, len(labels), BLOCK):
                yield images[start : start + BLOCK], labels[start : start + BLOCK]

    def _batch(self, content: dict[str, Any], where: str) -> tuple[Images, Labels]:
        pixels = content.get("data")
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
            raise UserError(f"{where} is damaged: 'data' is not an array of N x {PIXELS} bytes")
        try:
            labels = np.array(content.get(self.labels_key), np.int64)
        except (TypeError, ValueError, OverflowError):
            raise UserError(f"{where} is damaged: {self.labels_key!r} is not a list of numbers") from None
        if labels.shape != (len(pixels),):
            raise UserError(f"{where} is damaged: {len(pixels)} images, but labels of shape {labels.shape}")
        return pixels.reshape(-1, 3, 32, 32), labels


def _unpickled(files: Files, name: str) -> dict[str, Any]:
    with files.open(name) as file:
        return unpickle.load(file, files.where(name))
