"""Two-input nets by name."""

from collections.abc import Callable, Sequence

from ider.nets.resnet import resnet18
from ider.nets.smallconv import small_conv
from ider.nets.twoinput import TwoInputNet, View

NETS: dict[str, Callable[[Sequence[int], int, int, int, bool], TwoInputNet]] = {
    "resnet18": resnet18,
    "small-conv": small_conv,
}
"""Builders: (image shape, classes, width, split, label_input) -> net."""

__all__ = ["NETS", "TwoInputNet", "View"]
