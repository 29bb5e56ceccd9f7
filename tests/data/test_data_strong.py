"""Strong views against a plain reimplementation, pixel by pixel, of what torchvision documents for each transform."""

import colorsys
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from ider.data.strong import strong_views
from ider.types import VIEW_NUMBERS

Array = NDArray[np.float64]
H, W = 9, 7
NAMES = (
    "flip",
    "area",
    "ratio",
    "top",
    "left",
    "jitters",
    "brightness",
    "contrast",
    "saturation",
    "hue",
    "grey",
)
STILL = dict.fromkeys(NAMES, 0.5) | {"flip": 0.9, "area": 1.0, "jitters": 0.9, "grey": 0.9}
"""Numbers that leave a square image as it is."""


def images(count: int, channels: int = 3, height: int = H, width: int = W, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, channels, height, width)).astype(np.uint8)


def views(given: NDArray[np.uint8], *numbers: dict[str, float]) -> NDArray[np.float32]:
    rows = torch.tensor([[one[name] for name in NAMES] for one in numbers], dtype=torch.float32)
    return strong_views(torch.from_numpy(given), rows).numpy()


def luma(x: Array) -> Array:
    """One channel: 0.299 R + 0.587 G + 0.114 B; of another number of channels their mean."""
    return 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2] if len(x) == 3 else x.mean(0)


def blend(x: Array, other: Array | float, factor: float) -> Array:
    return np.clip(factor * x + (1 - factor) * other, 0, 1)


def resized_crop(x: Array, n: dict[str, float]) -> Array:
    """RandomResizedCrop(scale=(0.2, 1), ratio=(3/4, 4/3)), bilinear, corners not aligned."""
    height, width = x.shape[1:]
    area = height * width * (0.2 + 0.8 * n["area"])
    ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * n["ratio"])
    rows = min(max(round(math.sqrt(area / ratio)), 1), height)
    columns = min(max(round(math.sqrt(area * ratio)), 1), width)
    top, left = int(n["top"] * (height - rows + 1)), int(n["left"] * (width - columns + 1))
    cut = x[:, top : top + rows, left : left + columns]
    down = np.clip((np.arange(height) + 0.5) * rows / height - 0.5, 0, rows - 1)
    across = np.clip((np.arange(width) + 0.5) * columns / width - 0.5, 0, columns - 1)
    at = np.stack(np.meshgrid(down, across, indexing="ij"), -1)
    if rows == 1 or columns == 1:  # the interpolator needs two points each way
        cut = np.pad(cut, ((0, 0), (0, rows == 1), (0, columns == 1)), mode="edge")
    axes = [np.arange(size) for size in cut.shape[1:]]
    return np.stack([RegularGridInterpolator(axes, channel)(at) for channel in cut])


def turned(x: Array, turn: float) -> Array:
    """adjust_hue: to HSV, hue + turn modulo 1, back; by the standard library, pixel by pixel."""
    result = np.empty_like(x)
    for row in range(x.shape[1]):
        for column in range(x.shape[2]):
            hue, saturation, value = colorsys.rgb_to_hsv(*x[:, row, column])
            result[:, row, column] = colorsys.hsv_to_rgb((hue + turn) % 1.0, saturation, value)
    return result


def plain(image: NDArray[np.uint8], n: dict[str, float]) -> Array:
    """One view: flip, crop, brightness, contrast, saturation and hue (or none of the four), grey."""
    x = image.astype(np.float64) / 255
    x = x[:, :, ::-1] if n["flip"] < 0.5 else x
    x = resized_crop(x, n)
    if n["jitters"] < 0.8:
        x = blend(x, 0, 0.6 + 0.8 * n["brightness"])
        x = blend(x, luma(x).mean(), 0.6 + 0.8 * n["contrast"])
        if len(x) == 3:
            x = blend(x, luma(x), 0.6 + 0.8 * n["saturation"])
            x = turned(x, -0.1 + 0.2 * n["hue"])
    return np.broadcast_to(luma(x), x.shape) if n["grey"] < 0.2 else x


def numbers(count: int, seed: int = 1) -> list[dict[str, float]]:
    drawn = np.random.default_rng(seed).random((count, VIEW_NUMBERS), np.float32)
    return [dict(zip(NAMES, row.tolist(), strict=True)) for row in drawn]


def test_there_is_a_name_for_every_number() -> None:
    assert len(NAMES) == VIEW_NUMBERS


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 9, 7), (3, 8, 8), (1, 6, 6), (2, 5, 8), (3, 1, 1)])
def test_views_are_the_chain_of_documented_transforms(channels: int, height: int, width: int) -> None:
    given, drawn = images(60, channels, height, width), numbers(60)
    expected = [plain(*pair) for pair in zip(given, drawn, strict=True)]
    np.testing.assert_allclose(views(given, *drawn), expected, atol=2e-5)


def test_nothing_happens_to_a_square_image_if_the_numbers_say_so() -> None:
    given = images(1, height=8, width=8)
    np.testing.assert_allclose(views(given, STILL), given / 255, atol=1e-6)


def test_a_flip_alone() -> None:
    given = images(1, height=8, width=8)
    np.testing.assert_allclose(views(given, STILL | {"flip": 0.49}), given[..., ::-1] / 255, atol=1e-6)


def test_a_crop_by_hand() -> None:
    """A fifth of 10 x 10 pixels, 4 x 4 after rounding, from row 6 and column 0 on: each becomes 2.5 pixels wide."""
    ramp = np.tile(np.arange(10, dtype=np.uint8) * 10, (10, 1))[None, None].repeat(3, 1)
    found = views(ramp, STILL | {"area": 0.0, "top": 0.9999, "left": 0.0})[0] * 255
    middle = [0, 1, 5, 9, 13, 17, 21, 25, 29, 30]
    np.testing.assert_allclose(found, np.broadcast_to(middle, (3, 10, 10)), atol=1e-3)


def test_grey_is_the_same_in_all_channels_and_keeps_the_luma() -> None:
    given = images(1, height=8, width=8)
    found = views(given, STILL | {"grey": 0.19})[0]
    assert (found == found[0]).all()
    np.testing.assert_allclose(luma(found.astype(np.float64)), luma(given[0] / 255), atol=1e-6)


def test_jitter_of_a_grey_image_turns_no_hue() -> None:
    given = images(1, 1, 8, 8).repeat(3, 1)
    found = views(given, STILL | {"jitters": 0.1, "hue": 0.99, "saturation": 0.99})[0]
    np.testing.assert_allclose(found, given[0] / 255, atol=1e-5)


def test_each_image_has_numbers_of_its_own() -> None:
    given, drawn = images(1).repeat(20, 0), numbers(20)
    together = views(given, *drawn)
    for one, other in zip(together[:-1], together[1:], strict=True):
        assert np.abs(one - other).max() > 0.05
    for place, row in enumerate(drawn):
        np.testing.assert_allclose(views(given[:1], row)[0], together[place], atol=1e-6)


@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-24])
@pytest.mark.parametrize("size", [1, 5, 8, 32, 33])
def test_extreme_numbers_stay_within_the_image(extreme: float, size: int) -> None:
    """A crop that reached beyond the edge would bring black into a white image."""
    white = np.full((1, 3, size, size), 255, np.uint8)
    found = views(white, dict.fromkeys(NAMES, extreme) | {"jitters": 0.9, "grey": 0.9})
    np.testing.assert_allclose(found, 1, atol=1e-6)
