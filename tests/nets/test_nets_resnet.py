"""ResNet-18: sizes, an independent re-implementation with torch's own BatchNorm, and every possible cut."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ider.errors import UserError
from ider.nets import Shape, TwoInputNet
from ider.nets.resnet import resnet18

CLASSES, WIDTH = 5, 4


class ReferenceBlock(nn.Module):
    """The basic block of He et al. (2016), as every textbook has it."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride > 1 or inputs != outputs
            else nn.Sequential()
        )

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.downsample(x))


class Reference(nn.Module):
    """CIFAR ResNet-18 with one input: 3x3 stem, no max-pooling, stages of two blocks."""

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        blocks = []
        for stage in range(4):
            inputs, outputs = width * 2 ** max(stage - 1, 0), width * 2**stage
            blocks += [ReferenceBlock(inputs, outputs, 1 if stage == 0 else 2), ReferenceBlock(outputs, outputs, 1)]
        self.layers = nn.Sequential(*blocks)
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(F.relu(self.bn1(self.conv1(x))))
        return self.fc(F.adaptive_avg_pool2d(out, 1).flatten(1))


def copy_in_order(source: nn.Module, target: nn.Module) -> None:
    """Weights and statistics from one net to another that has them in the same order under other names."""
    values = [v for name, v in source.state_dict().items() if "tracked" not in name and not name.startswith("label")]
    slots = [v for name, v in target.state_dict().items() if "tracked" not in name and not name.startswith("label")]
    for slot, value in zip(slots, values, strict=True):
        assert slot.shape == value.shape
        slot.copy_(value)


def small(split: int = 4, label_input: bool = True, channels: int = 3, width: int = WIDTH) -> TwoInputNet:
    torch.manual_seed(split)
    return resnet18(Shape((channels, 8, 8), CLASSES, width, split, label_input)).double()


def images(rows: int, channels: int = 3, side: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(rows, channels, side, side, generator=generator, dtype=torch.float64)


def count(net: nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


def test_parameter_counts_are_the_published_ones() -> None:
    plain, two = (resnet18(Shape((3, 32, 32), 100, 64, 4, label_input)) for label_input in (False, True))
    assert count(plain) == 11_220_132
    assert count(two) == 11_233_060 == count(plain) + 128 * 100 + 128


@pytest.mark.parametrize(("split", "channels"), [(1, 64), (2, 64), (3, 128), (4, 128), (5, 256), (6, 256), (7, 512)])
def test_the_label_feature_has_the_channels_of_the_map_at_the_cut(split: int, channels: int) -> None:
    with torch.device("meta"):
        net = resnet18(Shape((3, 32, 32), 100, 64, split, True))
    assert net.label is not None
    assert net.label.weight.shape == (channels, 100)
    assert count(net) == 11_220_132 + channels * 101


@pytest.mark.parametrize("label_input", [False, True])
def test_every_parameter_learns(label_input: bool) -> None:
    net = small(label_input=label_input)
    z = net.encode(images(4))
    first = net.decode(z)
    F.cross_entropy(net.decode(z, first.softmax(-1)) + first, torch.tensor([0, 1, 2, 3])).backward()
    dead = [name for name, weight in net.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert dead == []


@pytest.mark.parametrize(("channels", "side", "width"), [(3, 8, 4), (1, 9, 3), (3, 16, 2)])
@pytest.mark.parametrize("training", [True, False])
def test_the_plain_net_equals_the_reference(channels: int, side: int, width: int, training: bool) -> None:
    torch.manual_seed(0)
    net = resnet18(Shape((channels, side, side), CLASSES, width, 4, False)).double().train(training)
    reference = Reference(channels, width, CLASSES).double().train(training)
    copy_in_order(net, reference)
    x_ours, x_theirs = (images(4, channels, side).requires_grad_() for _ in range(2))
    ours, theirs = net.decode(net.encode(x_ours)), reference(x_theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    ours[:, 1].sum().backward()
    theirs[:, 1].sum().backward()
    torch.testing.assert_close(x_ours.grad, x_theirs.grad, rtol=1e-7, atol=1e-9)
    statistics = [value for name, value in net.state_dict().items() if "running" in name]
    expected = [value for name, value in reference.state_dict().items() if "running" in name]
    torch.testing.assert_close(statistics, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("split", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize("training", [True, False])
def test_without_a_label_feature_every_cut_gives_the_same_answer(split: int, training: bool) -> None:
    here, there = small(split).train(training), small(4).train(training)
    copy_in_order(there, here)
    for net in (here, there):
        assert net.label is not None
        net.label.requires_grad_(False).weight.zero_()
        net.label.bias.zero_()
    x = images(6)
    y = torch.eye(CLASSES, dtype=torch.float64)[[0, 1, 2, 3, 4, 0]]
    answers = [net.decode(net.encode(x, (2, 4)), y, (2, 4)) for net in (here, there)]
    torch.testing.assert_close(*answers, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("split", [8, 9, -1])
def test_a_cut_outside_the_net_is_the_users_mistake(split: int) -> None:
    with pytest.raises(UserError, match=rf"net\.split is {split}; .* 1 to 7"):
        resnet18(Shape((3, 8, 8), CLASSES, WIDTH, split, True))


def test_width_is_the_channels_of_the_first_stage() -> None:
    assert small(width=6).encode(images(2)).shape == (2, 12, 4, 4)
    assert small(split=2, width=6).encode(images(2)).shape == (2, 6, 8, 8)
    assert small(width=6).head.weight.shape == (CLASSES, 48)
