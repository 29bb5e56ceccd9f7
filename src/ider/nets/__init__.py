"""Two-input nets by name."""

from collections.abc import Callable

from ider.nets.resnet import resnet18
from ider.nets.smallconv import small_conv
from ider.nets.twoinput import Shape, TwoInputNet, View

NETS: dict[str, Callable[[Shape], TwoInputNet]] = {"resnet18": resnet18, "small-conv": small_conv}

__all__ = ["NETS", "Shape", "TwoInputNet", "View"]
