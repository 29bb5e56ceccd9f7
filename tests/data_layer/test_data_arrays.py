"""Datasets that are arrays already: from Python, from .npz files, from torch Datasets."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from ider.data.arrays import channels_first
from ider.data.datasets import check, from_arrays, from_torch, load
from ider.errors import UserError


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(0, 256, shape, np.uint8)


def labels(count: int, classes: int = 3) -> np.ndarray:
    return np.arange(count) % classes


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((7, 9, 8), (1, 9, 8)), ((7, 9, 8, 3), (3, 9, 8)), ((7, 9, 8, 1), (1, 9, 8)), ((7, 3, 9, 8), (3, 9, 8))],
)
def test_the_layout_is_detected(shape: tuple[int, ...], wanted: tuple[int, int, int]) -> None:
    train, test = pixels(*shape), pixels(*shape)[:4]
    found = from_arrays(train, labels(7), test, labels(4))
    assert found.train.images.shape == (7, *wanted)
    assert found.test.images.shape == (4, *wanted)
    assert found.train.labels.dtype == np.int64
    assert found.class_names == ("0", "1", "2")
    last = len(shape) == 4 and shape[3] in (1, 3)
    want = train.transpose(0, 3, 1, 2) if last else train.reshape(7, *wanted)
    np.testing.assert_array_equal(found.train.images, want)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_layout_is_detected_or_refused(shape: list[int]) -> None:
    array = np.arange(np.prod(shape)).astype(np.uint8).reshape(shape)
    try:
        found = channels_first(array, "images")
    except UserError as error:
        assert str(tuple(shape)) in str(error)
    else:
        assert found.shape[1] in (1, 3)
        assert sorted(found.ravel()) == sorted(array.ravel())


def test_class_names_are_kept_and_plain_lists_will_do() -> None:
    found = from_arrays(
        pixels(3, 4, 4).tolist() and pixels(3, 4, 4), [0, 1, 1], pixels(2, 4, 4), [[0], [1]], ["cat", "dog"]
    )
    assert found.class_names == ("cat", "dog")
    assert found.test.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_images": pixels(6, 3, 8, 3)}, r"\(6, 3, 8, 3\) are ambiguous"),
        ({"train_images": pixels(6, 8, 8, 4)}, "neither 1 nor 3 channels"),
        ({"train_images": pixels(6, 64)}, "neither N x H x W"),
        ({"train_images": pixels(6, 8, 8) / 255}, "must be uint8 .* not float64"),
        ({"train_images": pixels(6, 9, 9)}, r"training images are \(1, 9, 9\), but test images \(1, 8, 8\)"),
        ({"train_images": pixels(0, 8, 8), "train_labels": np.zeros(0, int)}, "the training images are empty"),
        ({"test_labels": labels(5)}, "test images are 3, but their labels are int64 of shape .5,"),
        ({"test_labels": np.array([0.0, 1.0, 2.0])}, "labels are float64"),
        ({"train_labels": labels(6) + 1}, "no training image has label 0"),
        ({"train_labels": labels(6) - 1}, "labels run from -1"),
        ({"train_labels": np.array([0, 1, 2, 9, 9, 9])}, "no training image has label 3"),
        ({"class_names": ["a", "b"]}, "labels run from 0 to 2, but with 2 classes they must be 0..1"),
        ({"class_names": ["a", "b", "c", "d"]}, "no training image has label 3"),
    ],
)
def test_arrays_that_do_not_fit_say_why(change: dict[str, object], message: str) -> None:
    given_ = {
        **{"train_images": pixels(6, 8, 8), "train_labels": labels(6)},
        **{"test_images": pixels(3, 8, 8), "test_labels": labels(3)},
    }
    with pytest.raises(UserError, match=message):
        from_arrays(**{**given_, **change})


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_files_are_read_and_cached(make, compressed: bool, elsewhere: Path) -> None:
    arrays = {"x_train": pixels(2500, 6, 6, 3), "y_train": labels(2500)[:, None], "x_test": pixels(9, 6, 6, 3)}
    path = make.root / "set.npz"
    names = np.array(["a", "ö", "猫"])
    save = np.savez_compressed if compressed else np.savez
    save(path, **arrays, y_test=labels(9).astype(np.uint8), class_names=names)
    for _ in range(2):
        found = load(f"npz:{path}")
        assert found.class_names == tuple(names)
        np.testing.assert_array_equal(found.train.images, arrays["x_train"].transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(found.train.labels, labels(2500))
        np.testing.assert_array_equal(found.test.labels, labels(9))
    assert isinstance(found.train.images.base, np.memmap)
    assert len(list((elsewhere / "decoded").glob("npz-*/header.json"))) == 1
    assert load(f"npz:{path}", image_size=12).test.images.shape == (9, 3, 12, 12)
    assert check(f"npz:{path}").train == 2500


def test_npz_files_that_do_not_fit_say_why(make) -> None:
    path = make.root / "set.npz"
    good = {"x_train": pixels(6, 8, 8), "y_train": labels(6), "x_test": pixels(3, 8, 8), "y_test": labels(3)}
    with pytest.raises(UserError, match=r"set\.npz is missing"):
        load(f"npz:{path}")
    np.savez(path, **{key: good[key] for key in ("x_train", "y_test")})
    with pytest.raises(UserError, match=r"set\.npz has no array y_train, x_test; needed: x_train"):
        load(f"npz:{path}")
    np.savez(path, **{**good, "x_test": pixels(3, 3, 8, 3)})
    with pytest.raises(UserError, match=r"set\.npz: the test images of shape \(3, 3, 8, 3\) are ambiguous"):
        load(f"npz:{path}")
    np.savez(path, **good)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"plain text", whole.replace(b"NUMPY", b"NUMPX")):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"set\.npz is not a readable \.npz file") as caught:
            load(f"npz:{path}")
        assert "\n" not in str(caught.value)
    path.write_bytes(whole)
    assert len(load(f"npz:{path}").train.labels) == 6


class _Plant:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return open, (str(self.target), "w")


@pytest.mark.parametrize("key", ["x_train", "class_names"])
def test_a_payload_in_an_npz_file_does_not_run(make, key: str) -> None:
    target = make.root / "planted"
    good = {"x_train": pixels(6, 8, 8), "y_train": labels(6), "x_test": pixels(3, 8, 8), "y_test": labels(3)}
    np.savez(make.root / "set.npz", **{**good, key: np.array([_Plant(target)], object)})
    with pytest.raises(UserError, match="allow_pickle=False"):
        load(f"npz:{make.root / 'set.npz'}")
    (make.root / "pickled.npz").write_bytes(pickle.dumps(_Plant(target)))
    with pytest.raises(UserError, match="is not a readable"):
        load(f"npz:{make.root / 'pickled.npz'}")
    assert not target.exists()


class Items(TorchDataset):
    def __init__(self, items: list[tuple[object, object]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[object, object]:
        return self.items[index]


@pytest.mark.parametrize("kind", ["pillow", "array", "array first", "tensor", "float tensor", "float array"])
def test_torch_datasets_of_every_kind_of_item(kind: str) -> None:
    images = pixels(6, 8, 9, 3)
    first = images.transpose(0, 3, 1, 2)
    as_item = {
        "pillow": lambda i: Image.fromarray(images[i]),
        "array": lambda i: images[i],
        "array first": lambda i: first[i],
        "tensor": lambda i: torch.from_numpy(first.copy())[i],
        "float tensor": lambda i: torch.from_numpy(first.copy())[i].float() / 255,
        "float array": lambda i: images[i] / 255,
    }[kind]
    as_label = torch.tensor if "tensor" in kind else np.int64 if kind == "array" else int
    items = Items([(as_item(i), as_label(i % 3)) for i in range(6)])
    items.classes = ["x", "y", "z"]
    found = from_torch(items, Items(items.items[:3]))
    np.testing.assert_array_equal(found.train.images, first)
    assert found.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.test.labels.tolist() == [0, 1, 2]
    assert found.class_names == ("x", "y", "z")
    assert from_torch(items, items, class_names=["p", "q", "r"]).class_names == ("p", "q", "r")


def test_torch_tensor_datasets_and_sizes() -> None:
    grey = TensorDataset(torch.from_numpy(pixels(4, 28, 28)), torch.tensor([0, 1, 0, 1]))
    assert from_torch(grey, grey).train.images.shape == (4, 1, 28, 28)
    assert from_torch(grey, grey, image_size=14).train.images.shape == (4, 1, 14, 14)
    mixed = Items(
        [(Image.new("RGB", (5, 7), (1, 2, 3)), 0), (Image.new("L", (9, 9), 8), 0), (Image.new("P", (4, 4)), 0)]
    )
    found = from_torch(mixed, mixed, image_size=6).train.images
    assert found.shape == (3, 3, 6, 6)
    assert found[:2, :, 0, 0].tolist() == [[1, 2, 3], [8, 8, 8]]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "training dataset is empty"),
        ([(pixels(4, 4), 0), (pixels(5, 5), 0)], r"different sizes \(\(4, 4\), \(5, 5\), ...\); give image_size"),
        ([(torch.randn(3, 8, 8), 0)], "training image 0 has floats outside 0..1; leave out the transform"),
        ([(torch.full((3, 8, 8), torch.nan), 0)], "outside 0..1"),
        ([(pixels(4, 4).astype(np.int64), 0)], "training image 0 must be uint8"),
        ([(pixels(4, 4), 0.5)], "labels are not single whole numbers"),
        ([(pixels(4, 4), torch.tensor([0, 1]))], "labels are not single whole numbers"),
    ],
)
def test_torch_datasets_that_do_not_fit_say_why(items: list[tuple[object, object]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_torch(Items(items), Items(items))
