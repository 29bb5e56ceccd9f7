"""What the parts of the data layer hand to each other: finished datasets, and datasets while they are being read.

Shape legend: N images, C channels, H x W pixels.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Block = tuple[Images, Labels]


@dataclass(frozen=True)
class Split:
    """The images and labels of a dataset's training or test part."""

    images: Images
    labels: Labels


@dataclass(frozen=True)
class Dataset:
    """A classification dataset with its published split."""

    train: Split
    test: Split
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class Content:
    """A dataset while it is read: blocks of images (N x C x H x W) and labels, so that memory stays bounded."""

    class_names: tuple[str, ...]
    train: Iterable[Block]
    test: Iterable[Block]


@dataclass(frozen=True)
class Source:
    """A dataset that was found on disk and is not decoded yet.

    `files` and `options` together decide the decoded arrays, so the cache is keyed by them; `md5` holds the
    publisher's checksums of those files that have one; `content` can be opened again and again.
    """

    label: str
    path: Path
    files: Sequence[str]
    options: str
    md5: Mapping[str, str]
    content: Callable[[], AbstractContextManager[Content]]
