"""Strong augmentation for contrastive terms: flip, random resized crop, colour jitter, grey; all on the device.

The usual chain of contrastive learning (torchvision's transforms), with two simplifications: the four colour changes
come in one order, and a crop that would stick out of the image is cut down instead of drawn again.

Shape legend: N images, C channels, H x W pixels, U random numbers a view.
"""

import math

import torch
from torch import Tensor

SCALE, RATIO = (0.2, 1.0), (3 / 4, 4 / 3)
JITTER, HUE = 0.4, 0.1
JITTER_CHANCE, GREY_CHANCE = 0.8, 0.2
GREY = (0.299, 0.587, 0.114)


def strong_views(images: Tensor, numbers_NU: Tensor) -> Tensor:
    """uint8 images to floats 0..1, each augmented by its own row of uniform random numbers (`types.VIEW_NUMBERS`)."""
    flip, area, ratio, top, left, jitters, brightness, contrast, saturation, hue, grey = numbers_NU.unbind(1)
    x = images.float() / 255
    x = torch.where((flip < 0.5)[:, None, None, None], x.flip(-1), x)
    x = _resized_crop(x, (area, ratio), (top, left))
    changed = _contrast(_scaled(x, brightness), contrast)
    if x.shape[1] == 3:
        changed = _hue(_saturation(changed, saturation), HUE * (2 * hue - 1))
    x = torch.where((jitters < JITTER_CHANCE)[:, None, None, None], changed, x)
    return torch.where((grey < GREY_CHANCE)[:, None, None, None], _grey(x).expand_as(x), x)


def _resized_crop(x: Tensor, size: tuple[Tensor, Tensor], place: tuple[Tensor, Tensor]) -> Tensor:
    """A random part of each image, enlarged to the size of the whole by bilinear interpolation."""
    height, width = x.shape[2:]
    area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * size[0])
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = torch.exp(low + (high - low) * size[1])
    rows_N = torch.round(torch.sqrt(area / ratio)).clamp(1, height)
    columns_N = torch.round(torch.sqrt(area * ratio)).clamp(1, width)
    top, left = (place[0] * (height - rows_N + 1)).floor(), (place[1] * (width - columns_N + 1)).floor()
    down, across = _interpolation(top, rows_N, height), _interpolation(left, columns_N, width)
    return torch.einsum("nij,ncjk,nlk->ncil", down, x, across)


def _interpolation(start_N: Tensor, length_N: Tensor, size: int) -> Tensor:
    """For each image the matrix that stretches `length` pixels from `start` on to `size`."""
    pixels = torch.arange(size, device=start_N.device, dtype=torch.float32)
    at = (pixels + 0.5) * length_N[:, None] / size - 0.5
    at = start_N[:, None] + torch.minimum(at.clamp(min=0), length_N[:, None] - 1)
    return (1 - (at[:, :, None] - pixels).abs()).clamp(min=0)


def _factor(numbers_N: Tensor) -> Tensor:
    return (1 + JITTER * (2 * numbers_N - 1))[:, None, None, None]


def _scaled(x: Tensor, numbers_N: Tensor) -> Tensor:
    return (x * _factor(numbers_N)).clamp(0, 1)


def _blend(x: Tensor, other: Tensor, numbers_N: Tensor) -> Tensor:
    factor = _factor(numbers_N)
    return (factor * x + (1 - factor) * other).clamp(0, 1)


def _contrast(x: Tensor, numbers_N: Tensor) -> Tensor:
    return _blend(x, _grey(x).mean((1, 2, 3), keepdim=True), numbers_N)


def _saturation(x: Tensor, numbers_N: Tensor) -> Tensor:
    return _blend(x, _grey(x), numbers_N)


def _grey(x: Tensor) -> Tensor:
    """The luma, as one channel."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = GREY
    return red * x[:, :1] + green * x[:, 1:2] + blue * x[:, 2:]


def _hue(x: Tensor, turn_N: Tensor) -> Tensor:
    """Turn the hue by a part of the full circle: to hue, saturation, value and back."""
    value, least = x.amax(1), x.amin(1)
    span = value - least
    safe = torch.where(span > 0, span, torch.ones_like(span))
    red, green, blue = (x[:, channel] for channel in range(3))
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = torch.remainder(hue / 6 + turn_N[:, None, None], 1)
    channels = [_channel(hue, value, span, offset) for offset in (5, 3, 1)]
    return torch.stack(channels, 1)


def _channel(hue: Tensor, value: Tensor, span: Tensor, offset: int) -> Tensor:
    """One of red, green, blue (offsets 5, 3, 1) by the closed formula of the way back."""
    k = torch.remainder(offset + 6 * hue, 6)
    return value - span * torch.minimum(k, 4 - k).clamp(0, 1)
