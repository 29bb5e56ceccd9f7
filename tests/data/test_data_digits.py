"""The digits that come with ider are scikit-learn's, in a fixed stratified split; the recipe knows their statistics."""

from importlib import resources

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ider.data.datasets import digits
from ider.recipes import recipes

FILE = resources.files("ider.data").joinpath("digits.npz")


@pytest.fixture(scope="module")
def theirs():
    return load_digits()


@pytest.fixture(scope="module")
def packed():
    with FILE.open("rb") as file, np.load(file, allow_pickle=False) as content:
        return dict(content)


def test_the_file_is_small_and_plain(packed):
    assert len(FILE.read_bytes()) < 100_000
    assert set(packed) == {"levels", "labels", "is_test"}
    assert packed["levels"].dtype == packed["labels"].dtype == np.uint8
    assert packed["is_test"].dtype == np.bool_


def test_the_licence_lies_beside_the_file():
    words = resources.files("ider.data").joinpath("DIGITS-LICENSE.md").read_text(encoding="utf-8")
    assert "CC BY 4.0" in words
    assert "https://creativecommons.org/licenses/by/4.0" in words


def test_the_loader_forbids_pickles(monkeypatch):
    asked = []

    def spy(file, **options):
        asked.append(options)
        return original(file, **options)

    original = np.load
    monkeypatch.setattr(np, "load", spy)
    digits()
    assert asked == [{"allow_pickle": False}]


def test_the_levels_in_the_file_are_those_of_scikit_learn(packed, theirs):
    assert (packed["levels"] == theirs.images).all()
    assert (packed["labels"] == theirs.target).all()
    assert packed["levels"].max() == 16


def test_the_images_are_the_levels_stretched_to_a_byte(packed, theirs):
    dataset = digits()
    expected = np.rint(theirs.images * 255 / 16).astype(np.uint8)[:, None]
    assert (dataset.train.images == expected[~packed["is_test"]]).all()
    assert (dataset.test.images == expected[packed["is_test"]]).all()
    assert (dataset.train.labels == theirs.target[~packed["is_test"]]).all()
    assert (dataset.test.labels == theirs.target[packed["is_test"]]).all()
    for part in (dataset.train, dataset.test):
        assert part.images.dtype == np.uint8
        assert part.labels.dtype == np.int64
        assert part.images.shape[1:] == (1, 8, 8)
        assert (part.images.min(), part.images.max()) == (0, 255)


def test_the_split_is_complete_and_disjoint(theirs):
    dataset = digits()
    assert (len(dataset.train.labels), len(dataset.test.labels)) == (1258, 539)
    ours = np.concatenate([part.images.reshape(-1, 64) for part in (dataset.train, dataset.test)])
    images = np.rint(theirs.data * 255 / 16).astype(np.uint8)
    assert sorted(map(bytes, ours)) == sorted(map(bytes, images))
    train, test = ({bytes(image) for image in part.images} for part in (dataset.train, dataset.test))
    assert not train & test


def test_the_split_is_stratified_70_to_30():
    dataset = digits()
    assert dataset.class_names == tuple("0123456789")
    train, test = (np.bincount(part.labels, minlength=10) for part in (dataset.train, dataset.test))
    assert (np.abs(test - 0.3 * (train + test)) < 1).all()
    assert test.sum() / (train + test).sum() == pytest.approx(0.3, abs=0.001)


def test_the_split_is_fixed(packed):
    one, other = digits(), digits()
    assert (one.test.images == other.test.images).all()
    assert (one.train.labels == other.train.labels).all()
    places = np.flatnonzero(packed["is_test"])
    assert (len(places), int(places.sum())) == (539, 469715)


def test_the_recipes_normalise_by_the_statistics_of_the_training_images():
    pixels = digits().train.images / 255
    for config in recipes("digits").values():
        assert config.images.mean == pytest.approx((pixels.mean(),), abs=1e-4)
        assert config.images.std == pytest.approx((pixels.std(),), abs=1e-4)
