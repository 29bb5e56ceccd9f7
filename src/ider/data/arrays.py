"""Datasets that are arrays already: in memory, in a .npz file, or behind a map-style torch Dataset.

Shape legend: N images, C channels, H x W pixels.
"""

import operator
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ider.data import images as pictures
from ider.data.archives import READ_ERRORS
from ider.data.types import Block, Content, Dataset, Images, Labels, Split
from ider.errors import UserError

BLOCK = 1000
KEYS = ("x_train", "y_train", "x_test", "y_test")


class MapDataset(Protocol):
    """A map-style torch Dataset: items are (image, label)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def from_arrays(
    train_images: ArrayLike,
    train_labels: ArrayLike,
    test_images: ArrayLike,
    test_labels: ArrayLike,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """A dataset from uint8 images (N x H x W, N x H x W x C or N x C x H x W, C is 1 or 3) and labels from 0."""
    train = _split(train_images, train_labels, "the training images")
    test = _split(test_images, test_labels, "the test images")
    if train.images.shape[1:] != test.images.shape[1:]:
        raise UserError(f"training images are {train.images.shape[1:]}, but test images {test.images.shape[1:]}")
    classes = _class_names(class_names, train.labels, test.labels)
    return Dataset(train, test, classes)


def from_torch(
    train: MapDataset, test: MapDataset, class_names: Sequence[str] | None = None, image_size: int | None = None
) -> Dataset:
    """A dataset from two map-style torch Datasets whose items are (Pillow image | array | tensor, label).

    Every item is read once, so random transforms should be left out. Tensors and arrays of floats must lie in 0..1.
    Class names default to the training set's `classes`. `image_size` makes all images square of that size.
    """
    parts = [_collect(part, image_size, name) for part, name in ((train, "training"), (test, "test"))]
    (train_images, train_labels), (test_images, test_labels) = parts
    names = class_names if class_names is not None else getattr(train, "classes", None)
    return from_arrays(train_images, train_labels, test_images, test_labels, names)


def read_npz(path: Path) -> Content:
    """The arrays x_train, y_train, x_test, y_test and (if there) class_names of a .npz file, checked."""
    try:
        # NumPy itself would leave a file that is not a .npz open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as packed:
            missing = [key for key in KEYS if key not in packed]
            if missing:
                raise UserError(f"{path} has no array {', '.join(missing)}; needed: {', '.join(KEYS)}")
            names = [str(name) for name in packed["class_names"]] if "class_names" in packed else None
            x_train, y_train, x_test, y_test = (packed[key] for key in KEYS)
            dataset = from_arrays(x_train, y_train, x_test, y_test, names)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except UserError as error:
        raise UserError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    except (ValueError, TypeError, AttributeError, *READ_ERRORS, zipfile.LargeZipFile) as error:
        # NumPy takes what it does not know for a pickle, and advises to trust it
        reason = "a file of another kind" if "trust" in str(error) else error
        raise UserError(f"{path} is not a readable .npz file ({reason})") from None
    return Content(dataset.class_names, _blocks(dataset.train), _blocks(dataset.test))


def channels_first(images: ArrayLike, what: str) -> Images:
    """Images as N x C x H x W, whichever of the usual layouts they come in."""
    array: NDArray[Any] = np.asarray(images)
    if array.dtype != np.uint8:
        raise UserError(f"{what} must be uint8 (0..255), not {array.dtype}")
    if array.ndim == 3:
        return np.ascontiguousarray(array[:, None])
    if array.ndim != 4:
        raise UserError(f"{what} of shape {array.shape} are neither N x H x W [x C] nor N x C x H x W")
    first, last = array.shape[1] in (1, 3), array.shape[3] in (1, 3)
    if first and last:
        raise UserError(
            f"{what} of shape {array.shape} are ambiguous: the channels could be the second dimension or the last"
        )
    if not first and not last:
        raise UserError(f"{what} of shape {array.shape} have neither 1 nor 3 channels, second or last")
    return np.ascontiguousarray(array if first else array.transpose(0, 3, 1, 2))


def _split(images: ArrayLike, labels: ArrayLike, what: str) -> Split:
    array, answers = channels_first(images, what), np.asarray(labels)
    if answers.ndim == 2 and answers.shape[1] == 1:  # as Keras stores them
        answers = answers[:, 0]
    if answers.dtype.kind not in "iu" or answers.shape != (len(array),):
        raise UserError(f"{what} are {len(array)}, but their labels are {answers.dtype} of shape {answers.shape}")
    if array.size == 0:
        raise UserError(f"{what} are empty: their shape is {array.shape}")
    return Split(array, answers.astype(np.int64))


def _class_names(names: Sequence[str] | None, train: Labels, test: Labels) -> tuple[str, ...]:
    lowest, highest = int(min(train.min(), test.min())), int(max(train.max(), test.max()))
    count = highest + 1 if names is None else len(names)
    if lowest < 0 or highest >= count:
        raise UserError(f"labels run from {lowest} to {highest}, but with {count} classes they must be 0..{count - 1}")
    absent = np.setdiff1d(np.arange(count), train)
    if len(absent):
        raise UserError(f"no training image has label {absent[0]}; labels must be 0..{count - 1} without gaps")
    return tuple(str(name) for name in (range(count) if names is None else names))


def _blocks(part: Split) -> Iterator[Block]:
    for start in range(0, len(part.labels), BLOCK):
        yield part.images[start : start + BLOCK], part.labels[start : start + BLOCK]


def _collect(dataset: MapDataset, size: int | None, part: str) -> tuple[Images, Labels]:
    if len(dataset) == 0:
        raise UserError(f"the {part} dataset is empty")
    items = [dataset[index] for index in range(len(dataset))]
    arrays = [_item(item[0], f"{part} image {index}") for index, item in enumerate(items)]
    if size is not None:
        arrays = [pictures.resize(array, size) for array in arrays]
    if len({array.shape[1] for array in arrays}) > 1:  # some are grey, some in colour
        arrays = [np.repeat(array, 3, axis=1) if array.shape[1] == 1 else array for array in arrays]
    shapes = sorted({array.shape[2:] for array in arrays})
    if len(shapes) > 1:
        raise UserError(f"the {part} images have different sizes ({shapes[0]}, {shapes[1]}, ...); give image_size")
    try:
        return np.concatenate(arrays), np.array([operator.index(label) for _, label in items], np.int64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"the {part} dataset's labels are not single whole numbers ({error})") from None


def _item(image: Any, what: str) -> Images:
    if pictures.is_pillow(image):
        array = np.asarray(image.convert("L") if image.mode in ("1", "L") else pictures.to_rgb(image))
    else:
        array = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image)
    if array.dtype.kind == "f":
        if not (array.min() >= 0 and array.max() <= 1):
            raise UserError(f"{what} has floats outside 0..1; leave out the transform that normalises")
        array = np.rint(array * 255).astype(np.uint8)
    return channels_first(array[None], what)
