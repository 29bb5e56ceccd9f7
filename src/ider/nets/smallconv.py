"""A small convolutional net for images of about 8x8 pixels: two 3x3 layers, the second at half the resolution.

Its head sees the last map place by place: on so few pixels, where a stroke lies matters more than that there is one.
"""

from collections.abc import Sequence

from ider.errors import UserError
from ider.nets.resnet import ConvNormReLU
from ider.nets.twoinput import Flatten, Stack, TwoInputNet


def small_conv(image_shape: Sequence[int], classes: int, width: int, split: int, label_input: bool) -> TwoInputNet:
    """Layers of `width` and `2 * width` channels; the cut lies between them."""
    if split != 1:
        raise UserError(f"net.split is {split}; small-conv can be cut after layer 1 only")
    channels, height, breadth = image_shape
    lower = Stack([ConvNormReLU(channels, width)])
    upper = Stack([ConvNormReLU(width, 2 * width, stride=2), Flatten()])
    features = 2 * width * ((height + 1) // 2) * ((breadth + 1) // 2)
    return TwoInputNet(lower, upper, (width, features), classes, label_input)
