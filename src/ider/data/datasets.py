"""Datasets as uint8 arrays: images (N x channels x height x width), labels, names of the classes."""

from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Split:
    """The images and labels of a dataset's training or test part."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """A classification dataset with its published split."""

    train: Split
    test: Split
    class_names: tuple[str, ...]


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
