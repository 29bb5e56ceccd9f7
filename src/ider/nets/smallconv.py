"""A small convolutional net for images of about 8x8 pixels: two 3x3 layers, the second at half the resolution.

Its head sees the last map place by place: on so few pixels, where a stroke lies matters more than that there is one.
With sparse activations, whose methods reason about channels, it sees their means.
"""

from ider.errors import UserError
from ider.nets.resnet import ConvNormReLU
from ider.nets.twoinput import AveragePool, Flatten, Shape, Stack, StageEnd, TwoInputNet


def small_conv(shape: Shape) -> TwoInputNet:
    """Layers of `width` and `2 * width` channels; the cut lies between them."""
    if shape.split not in (0, 1):
        raise UserError(f"net.split is {shape.split}; small-conv can be cut after layer 1 only")
    channels, height, breadth = shape.image
    dense, sparsity = shape.sparsity is None, shape.sparsity
    ends = [[StageEnd(sparsity, stage, stage == 1)] if sparsity else [] for stage in range(2)]
    lower = Stack([ConvNormReLU(channels, shape.width, relu=dense), *ends[0]])
    last = Flatten() if dense else AveragePool()
    upper = Stack([ConvNormReLU(shape.width, 2 * shape.width, stride=2, relu=dense), *ends[1], last])
    features = 2 * shape.width * (((height + 1) // 2) * ((breadth + 1) // 2) if dense else 1)
    return TwoInputNet(lower, upper, (shape.width, features), shape)
