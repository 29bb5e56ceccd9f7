"""The CIFAR-style ResNet-18 of the class-incremental literature, cut after any of its eight blocks."""

from collections.abc import Sequence

from torch import Tensor, nn

from ider.errors import UserError
from ider.nets.norm import PartNorm2d
from ider.nets.precision import Conv2d
from ider.nets.twoinput import AveragePool, Shape, Stack, StageEnd, TwoInputNet
from ider.nets.winners import winners
from ider.types import Sparsity

BLOCKS = 8


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> Conv2d:
    """A 3x3 convolution that keeps the map's size (divided by `stride`) and leaves the bias to the normalisation."""
    return Conv2d(inputs, outputs, 3, stride, 1, bias=False)


class ConvNormReLU(nn.Module):
    """A stem or a plain layer: 3x3 convolution, normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, relu: bool = True) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = conv3x3(inputs, outputs, stride), PartNorm2d(outputs), relu

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Map to map."""
        out: Tensor = self.norm(self.conv(x), sizes, relu=self.relu)
        return out


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes.

    In a sparse net winners take the place of the first ReLU, and of the second if they are local; if they are global
    there is no activation between the blocks of a stage.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, sparsity: Sparsity | None, stage: int) -> None:
        super().__init__()
        self.sparsity, self.stage = sparsity, stage
        self.conv1, self.norm1 = conv3x3(inputs, outputs, stride), PartNorm2d(outputs)
        self.conv2, self.norm2 = conv3x3(outputs, outputs), PartNorm2d(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None
        self.shortcut_norm = PartNorm2d(outputs) if changes else None

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Map to map."""
        inner = self.norm1(self.conv1(x), sizes, relu=self.sparsity is None)
        inner = self.conv2(inner if self.sparsity is None else winners(inner, self.sparsity, self.stage))
        if self.shortcut is not None and self.shortcut_norm is not None:
            x = self.shortcut_norm(self.shortcut(x), sizes)
        out: Tensor = self.norm2(inner, sizes, add=x, relu=self.sparsity is None)
        if self.sparsity is not None and self.sparsity.kind == "local":
            out = winners(out, self.sparsity, self.stage)
        return out


def resnet18(shape: Shape) -> TwoInputNet:
    """ResNet-18 with a 3x3 stem and no max-pooling, cut after block 4 (the paper's "9th layer") by default."""
    split, width = shape.split or 4, shape.width
    if not 1 <= split < BLOCKS:
        raise UserError(f"net.split is {split}; resnet18 can be cut after block 1 to {BLOCKS - 1}")
    widths = [width * 2**stage for stage in range(4) for _ in range(2)]
    inputs, strides = [width, *widths[:-1]], [1, 1, 2, 1, 2, 1, 2, 1]
    blocks: list[nn.Module] = []
    cut = 0
    for number, sizes in enumerate(zip(inputs, widths, strides, strict=True)):
        blocks.append(BasicBlock(*sizes, shape.sparsity, number // 2))
        if number % 2 and shape.sparsity is not None and shape.sparsity.kind == "global":
            blocks.append(StageEnd(shape.sparsity, number // 2, last=number == BLOCKS - 1))
        cut = len(blocks) if number < split else cut
    lower = Stack([ConvNormReLU(shape.image[0], width), *blocks[:cut]])
    upper = Stack([*blocks[cut:], AveragePool()])
    return TwoInputNet(lower, upper, (widths[split - 1], widths[-1]), shape)
