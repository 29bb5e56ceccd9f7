"""The CIFAR-style ResNet-18 of the class-incremental literature, cut after any of its eight blocks."""

from collections.abc import Sequence

from torch import Tensor, nn

from ider.errors import UserError
from ider.nets.norm import PartNorm2d
from ider.nets.twoinput import AveragePool, Shape, Stack, TwoInputNet

BLOCKS = 8


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps the map's size (divided by `stride`) and leaves the bias to the normalisation."""
    return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)


class ConvNormReLU(nn.Module):
    """A stem or a plain layer: 3x3 convolution, normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv, self.norm = conv3x3(inputs, outputs, stride), PartNorm2d(outputs)

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Map to map."""
        out: Tensor = self.norm(self.conv(x), sizes, relu=True)
        return out


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv3x3(inputs, outputs, stride), PartNorm2d(outputs)
        self.conv2, self.norm2 = conv3x3(outputs, outputs), PartNorm2d(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None
        self.shortcut_norm = PartNorm2d(outputs) if changes else None

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Map to map."""
        inner = self.conv2(self.norm1(self.conv1(x), sizes, relu=True))
        if self.shortcut is not None and self.shortcut_norm is not None:
            x = self.shortcut_norm(self.shortcut(x), sizes)
        out: Tensor = self.norm2(inner, sizes, add=x, relu=True)
        return out


def resnet18(shape: Shape) -> TwoInputNet:
    """ResNet-18 with a 3x3 stem and no max-pooling, cut after block 4 (the paper's "9th layer") by default."""
    split, width = shape.split or 4, shape.width
    if not 1 <= split < BLOCKS:
        raise UserError(f"net.split is {split}; resnet18 can be cut after block 1 to {BLOCKS - 1}")
    widths = [width * 2**stage for stage in range(4) for _ in range(2)]
    inputs, strides = [width, *widths[:-1]], [1, 1, 2, 1, 2, 1, 2, 1]
    blocks = [BasicBlock(*sizes) for sizes in zip(inputs, widths, strides, strict=True)]
    lower = Stack([ConvNormReLU(shape.image[0], width), *blocks[:split]])
    upper = Stack([*blocks[split:], AveragePool()])
    return TwoInputNet(lower, upper, (widths[split - 1], widths[-1]), shape)
