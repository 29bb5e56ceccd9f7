"""A step's weights in the precision that it is computed in: cast all at once, their gradients collected all at once.

On a GPU a convolution's gradient by its weight is computed beside the rest of backward, which does not wait for it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ider.meanwhile import beside
from ider.types import whole


class Conv2d(nn.Conv2d):
    """A convolution without bias and dilation; while its weight is a cast one it may have a stream on the side.

    Zeros that lie in memory behind the channels of a map are convolved, too, as that is faster.
    """

    side: torch.cuda.Stream | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map to map."""
        x = whole(x)
        if self.side is None:
            plain: Tensor = self._conv_forward(x, _widened(self.weight, x.shape[1]), None)
            return plain
        form = (self.stride, self.padding)
        out: Tensor = _Beside.apply(x.to(self.weight.dtype), self.weight, form, self.side)  # type: ignore[no-untyped-call]
        return out


class Cast:
    """Within, the convolutions and matrix products of a net work with its learning weights in `dtype`.

    The net goes on naming the weights themselves as its own. After backward, `collect` gives them their gradients.
    """

    def __init__(self, dtype: torch.dtype, net: nn.Module) -> None:
        layers = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
        own = {(layer, name): weight for layer in layers for name, weight in layer.named_parameters(recurse=False)}
        learning = {place: weight for place, weight in own.items() if weight.requires_grad and weight.dtype != dtype}
        self.places, self.weights = list(learning), list[Tensor](learning.values())
        self.dtype, self.cast = dtype, list[Tensor]()
        self.side: torch.cuda.Stream | None = None

    def __enter__(self) -> "Cast":
        with torch.no_grad():
            self.cast = [torch.empty_like(weight, dtype=self.dtype) for weight in self.weights]
            if self.cast:
                torch._foreach_copy_(self.cast, self.weights)
        self.side = beside("weights") if self.cast and self.cast[0].is_cuda else None
        for (layer, name), cast in zip(self.places, self.cast, strict=True):
            # Found before the weight itself, which stays where it is.
            layer.__dict__ |= {name: cast.requires_grad_(), "side": self.side}
        return self

    def __exit__(self, *_: object) -> None:
        for layer, name in self.places:
            for borrowed in (name, "side"):
                layer.__dict__.pop(borrowed, None)

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of the cast weights to those of the weights."""
        found = [(weight, cast.grad) for weight, cast in zip(self.weights, self.cast, strict=True)]
        pairs = [(weight, slope) for weight, slope in found if slope is not None]
        if not pairs:
            return
        if self.side is not None:
            here = torch.cuda.current_stream()
            here.wait_stream(self.side)
            for _, slope in pairs:  # whose memory is the side's, and must not be given away before it has been read
                slope.record_stream(here)
        made = [torch.empty_like(slope, dtype=weight.dtype) for weight, slope in pairs]
        torch._foreach_copy_(made, [slope for _, slope in pairs])
        for (weight, _), slope in zip(pairs, made, strict=True):
            weight.grad = slope if weight.grad is None else weight.grad + slope
        self.cast = []


class _Beside(torch.autograd.Function):
    """A convolution that itself adds the gradient by its weight to `weight.grad`, on another stream."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, form: tuple[Any, Any], side: torch.cuda.Stream) -> Tensor:
        """Map to map."""
        ctx.save_for_backward(x)
        ctx.weight, ctx.form, ctx.side = weight, form, side
        return F.conv2d(x, _widened(weight, x.shape[1]), None, *form)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, None, None, None]:
        """The gradient by the map."""
        (x,), weight, side = ctx.saved_tensors, ctx.weight, ctx.side
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            by_weight = _by_weight(slope, x, weight, ctx.form)
            weight.grad = by_weight if weight.grad is None else weight.grad.add_(by_weight)
        for tensor in (x, slope):  # whose memory must not be given away while the work goes on
            tensor.record_stream(side)
        by_map = _gradients(slope, x, weight, ctx.form, (True, False))[0] if ctx.needs_input_grad[0] else None
        return by_map, None, None, None


def _widened(weight: Tensor, channels: int) -> Tensor:
    """A convolution's weight for maps of so many channels, of which it does not see the last."""
    missing = channels - weight.shape[1]
    return F.pad(weight, (0, 0, 0, 0, 0, missing)) if missing else weight


def _by_weight(slope: Tensor, x: Tensor, weight: Tensor, form: tuple[Any, Any]) -> Tensor:
    """A convolution's gradient by the weight, for the channels of the map that it sees."""
    if x.shape[1] == weight.shape[1]:
        return _gradients(slope, x, weight, form, (False, True))[1]
    shape = (len(weight), x.shape[1], *weight.shape[2:])
    wide = torch.empty(shape, dtype=weight.dtype, device=weight.device, memory_format=torch.channels_last)
    found = _gradients(slope, x, wide, form, (False, True))[1]  # what is in the weight does not matter
    return torch.empty_like(weight).copy_(found[:, : weight.shape[1]])


def _gradients(
    slope: Tensor, x: Tensor, weight: Tensor, form: tuple[Any, Any], which: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    """A convolution's gradients by map and weight."""
    stride, padding = form
    found: Any = torch.ops.aten.convolution_backward(
        slope, x, weight.detach(), None, stride, padding, (1, 1), False, (0, 0), 1, (*which, False)
    )
    return found[0], found[1]
