"""Crop, mirror and normalise against one image at a time in NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ider.data.augment import crop_and_flip, normalise

quick = settings(deadline=None, max_examples=80)


def one_by_one(images: np.ndarray, crops: np.ndarray | None, flips: np.ndarray | None, pad: int) -> np.ndarray:
    """The definition: pad with zeros, cut out at the offset, mirror."""
    done = []
    for number, image in enumerate(images):
        _, height, width = image.shape
        if crops is not None:
            top, left = crops[number]
            padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
            image = padded[:, top : top + height, left : left + width]
        if flips is not None and flips[number]:
            image = image[:, :, ::-1]
        done.append(image)
    return np.stack(done)


@st.composite
def cases(draw):
    shape = tuple(draw(st.integers(1, high)) for high in (6, 3, 7, 7))
    pad, seed = draw(st.integers(0, 4)), draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    crops = rng.integers(0, 2 * pad + 1, (shape[0], 2)) if draw(st.booleans()) else None
    flips = rng.random(shape[0]) < 0.5 if draw(st.booleans()) else None
    return images, crops, flips, pad


def moved(images, crops, flips, pad) -> torch.Tensor:
    crops, flips = (None if array is None else torch.from_numpy(array) for array in (crops, flips))
    return crop_and_flip(torch.from_numpy(images), crops, flips, pad)


@quick
@given(cases())
def test_all_images_at_once_are_as_each_by_itself(case):
    result = moved(*case)
    assert result.dtype == torch.uint8
    assert result.shape == case[0].shape
    assert (result.numpy() == one_by_one(*case)).all()


@quick
@given(cases(), st.integers(0, 999))
def test_an_image_depends_on_its_own_numbers_only(case, seed):
    images, crops, flips, pad = case
    chosen = np.random.default_rng(seed).integers(0, len(images), len(images) + 1)
    some = (None if array is None else array[chosen] for array in (crops, flips))
    assert torch.equal(moved(images[chosen], *some, pad), moved(*case)[torch.from_numpy(chosen)])


@quick
@given(cases())
def test_images_are_not_changed_in_place(case):
    before = case[0].copy()
    moved(*case)
    assert (case[0] == before).all()


@quick
@given(cases())
def test_without_crops_and_flips_nothing_happens(case):
    images, _, _, pad = case
    assert (moved(images, None, None, pad).numpy() == images).all()


@quick
@given(cases())
def test_the_central_crop_without_mirroring_is_the_image(case):
    images, _, _, pad = case
    central, none = np.full((len(images), 2), pad), np.zeros(len(images), bool)
    assert (moved(images, central, None, pad).numpy() == images).all()
    assert (moved(images, central, none, pad).numpy() == images).all()
    assert (moved(images, None, none, pad).numpy() == images).all()


def test_mirroring_twice_is_the_image():
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 5, 6), dtype=np.uint8)
    flips = np.array([True, False, True, True])
    assert (moved(moved(images, None, flips, 0).numpy(), None, flips, 0).numpy() == images).all()


def test_offsets_are_rows_then_columns():
    image = np.arange(1, 10, dtype=np.uint8).reshape(1, 1, 3, 3)
    result = moved(image, np.array([[2, 1]]), None, 1)  # one row down, no column
    assert result[0, 0].tolist() == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]
    mirrored = moved(image, np.array([[1, 0]]), np.array([True]), 1)  # cut one column to the left, then mirror
    assert mirrored[0, 0].tolist() == [[2, 1, 0], [5, 4, 0], [8, 7, 0]]


@quick
@given(cases(), st.floats(0, 1), st.floats(0.01, 2))
def test_normalising_is_per_channel_and_of_pixels_in_0_to_1(case, mean, std):
    images = case[0]
    channels = images.shape[1]
    means, stds = mean + 0.1 * np.arange(channels), std + 0.1 * np.arange(channels)
    expected = (images / 255 - means[:, None, None]) / stds[:, None, None]
    result = normalise(torch.from_numpy(images), torch.tensor(means).float(), torch.tensor(stds).float())
    assert result.dtype == torch.float32
    assert result.numpy() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_normalised_images_have_mean_0_and_deviation_1():
    images = np.random.default_rng(1).integers(0, 256, (50, 3, 6, 6), dtype=np.uint8)
    pixels = images / 255
    mean, std = (torch.tensor(value).float() for value in (pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))))
    result = normalise(torch.from_numpy(images), mean, std)
    assert result.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=1e-5)
    assert result.std((0, 2, 3), correction=0).tolist() == pytest.approx([1, 1, 1], abs=1e-5)
