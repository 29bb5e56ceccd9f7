"""A user's own images: a folder a class, in `train/` and `test/` (or `val/`), or in one tree that is split here."""

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ider.data import images
from ider.data.archives import reading
from ider.data.types import Block, Content, Images
from ider.errors import UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
BLOCK = 256  # images; at 224x224 that is 39 MB
NAMED = 20
"""Damaged files that one error names."""


@dataclass(frozen=True)
class Tree:
    """The image files of a dataset, each with its label; the classes are the folders' names in order."""

    class_names: tuple[str, ...]
    train: Sequence[tuple[str, int]]
    test: Sequence[tuple[str, int]]


def scan(root: Path, test_share: float, seed: int) -> Tree:
    """Find the images below `root`; `test_share` and `seed` matter only where there is no test folder."""
    if not root.is_dir():
        raise UserError(f"{root} is not a folder")
    if _subfolders(root / "train"):  # a class may be called "train" as well, but then it holds images, not folders
        return _published_split(root)
    return _seeded_split(root, test_share, seed)


def read(tree: Tree, size: int) -> Content:
    """The images of a tree, resized to size x size, to be read in blocks."""
    return Content(tree.class_names, _blocks(tree.train, size, tree.test), _blocks(tree.test, size))


def _blocks(listed: Sequence[tuple[str, int]], size: int, later: Sequence[tuple[str, int]] = ()) -> Iterator[Block]:
    """The images in blocks; if one cannot be read, all after it, and those `later`, are looked at before it is said."""
    for start in range(0, len(listed), BLOCK):
        part = listed[start : start + BLOCK]
        pictures = np.empty((len(part), 3, size, size), np.uint8)
        for index, (path, _) in enumerate(part):
            try:
                pictures[index] = _decode(path, size)
            except UserError as error:
                raise _damaged(error, [other for other, _ in (*listed[start + index + 1 :], *later)]) from None
        yield pictures, np.array([label for _, label in part], np.int64)


def _decode(path: str, size: int) -> Images:
    with reading(path), open(path, "rb") as file:
        return images.decode(file, path, size)


def _damaged(first: UserError, rest: Sequence[str]) -> UserError:
    """All damaged files in one line, so that a big folder is not read once for each of them."""
    others = [path for path in rest if not _readable(path)]
    if not others:
        return UserError(f"{first}; replace or delete it")
    named = ", ".join(others[:NAMED]) + ", ..." * (len(others) > NAMED)
    return UserError(f"{first}; replace or delete it and {len(others)} more that cannot be read: {named}")


def _readable(path: str) -> bool:
    try:
        _decode(path, 1)
    except UserError:
        return False
    return True


def _published_split(root: Path) -> Tree:
    test = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if test is None:
        raise UserError(f"{root} has a folder train/ but neither test/ nor val/ beside it")
    classes, tested = _subfolders(root / "train"), _subfolders(test)
    for name in sorted({*classes} ^ {*tested}):
        lacking = test if name in classes else root / "train"
        raise UserError(f"{lacking} has no folder for the class {name!r}; both parts need the same class folders")
    train_part, test_part = (_listed([_images_in(part / name) for name in classes]) for part in (root / "train", test))
    return Tree(tuple(classes), train_part, test_part)


def _seeded_split(root: Path, test_share: float, seed: int) -> Tree:
    if not 0 < test_share < 1:
        raise UserError(f"test_share is {test_share}; it must lie between 0 and 1")
    classes = _subfolders(root)
    if not classes:
        raise UserError(f"{root} holds no class folders; expected {root}/CLASS/IMAGE or {root}/train/CLASS/IMAGE")
    train, test = [], []
    for name in classes:
        found = _images_in(root / name)
        if len(found) < 2:
            raise UserError(f"{root / name} holds one image; a class needs two, one to train on and one to test on")
        # Seeded by the class's name too, so that a class that joins later leaves the split of the others as it was.
        order = np.random.default_rng([seed, zlib.crc32(os.fsencode(name))]).permutation(len(found))
        count = min(max(1, round(test_share * len(found))), len(found) - 1)
        test.append([found[index] for index in sorted(order[:count])])
        train.append([found[index] for index in sorted(order[count:])])
    return Tree(tuple(classes), _listed(train), _listed(test))


def _listed(by_class: Sequence[Sequence[str]]) -> list[tuple[str, int]]:
    return [(path, label) for label, paths in enumerate(by_class) for path in paths]


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and _meant(entry.name))


def _images_in(folder: Path) -> list[str]:
    found = []
    for parent, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if _meant(name)]
        found += [os.path.join(parent, name) for name in names if _meant(name) and name.lower().endswith(SUFFIXES)]
    if not found:
        raise UserError(f"{folder} holds no image ({', '.join(SUFFIXES)}); delete the folder or fill it")
    return sorted(found)


def _meant(name: str) -> bool:
    return not name.startswith(".") and name != "__MACOSX"  # "._x.png" is what macOS leaves beside x.png in archives
