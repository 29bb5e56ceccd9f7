"""On a GPU: what works on several streams is right also where one of them is far behind and memory is used again."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ider.engine.capture import WARM_UP, capture
from ider.meanwhile import beside, meanwhile
from ider.nets import NETS, Shape, TwoInputNet
from ider.nets.precision import Cast
from ider.types import Parts

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LONG = 200_000_000  # cycles, about a tenth of a second
JUNK = 1e20


def use_again(stream: torch.cuda.Stream, shapes: list[Tensor]) -> list[Tensor]:
    """Write junk into memory of these shapes that the stream has to give away."""
    with torch.cuda.stream(stream):
        return [torch.full_like(shape, JUNK) for shape in shapes for _ in range(4)]


def net() -> TwoInputNet:
    torch.manual_seed(0)
    return NETS["resnet18"](Shape((3, 8, 8), 4, 8)).to("cuda", memory_format=torch.channels_last)


def loss(net: TwoInputNet, images: Tensor) -> Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        return net.decode(net.encode(images)).float().square().mean()


def test_gradients_of_cast_weights_outlive_their_stream() -> None:
    images = torch.randn(8, 3, 8, 8, device="cuda").contiguous(memory_format=torch.channels_last)
    gradients = []
    for late in (False, True):
        mine, stream = net(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            cast = Cast(torch.bfloat16, mine)
            with cast:
                value = loss(mine, images)
            value.backward()
            shapes = [weight.detach().to(torch.bfloat16) for weight in cast.weights]
            if late:
                torch.cuda._sleep(LONG)
            cast.collect()
            assert cast.side is not None
            junk = use_again(cast.side, shapes) if late else []
        torch.cuda.synchronize()
        del junk
        gradients.append([weight.grad for weight in mine.parameters()])
    for plain, behind in zip(*gradients, strict=True):
        assert torch.allclose(plain, behind, rtol=0.05, atol=1e-3)


@pytest.mark.parametrize("slow", ["side", "main"])
def test_what_is_used_and_found_meanwhile_outlives_its_stream(slow: str) -> None:
    main = torch.cuda.Stream()
    main.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(main):
        rows, side = torch.full((64, 64), 2.0, device="cuda"), beside("passes")
        used, shape = Parts(rows, {"current": 64}), torch.empty_like(rows)
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG if slow == "side" else 1)
        result = meanwhile(lambda used=used: used.like(used.rows * 3), used)
        del rows, used
        junk = use_again(main, [shape])
        if slow == "main":
            torch.cuda._sleep(LONG)
        found = result()
        tripled = found.rows + 0
        del found, result
        junk += use_again(side, [shape])
    torch.cuda.synchronize()
    assert (tripled == 6).all()


def test_recordings_from_one_stream_do_not_share_their_workspaces() -> None:
    """Products whose sums are split need room for parts of them, which belongs to the stream they are recorded on."""
    torch.manual_seed(0)
    pairs = [(torch.randn(16, 65536, device="cuda"), torch.randn(65536, 16, device="cuda")) for _ in range(6)]
    found = [torch.empty(16, 16, device="cuda") for _ in pairs]
    lanes = [torch.cuda.Stream() for _ in pairs]

    def step_of(number: int) -> Callable[[], None]:
        left, right = pairs[number]

        def step() -> None:
            for _ in range(20):
                torch.mm(left, right, out=found[number])

        return step

    with torch.cuda.stream(lanes[0]):  # the same stream aside for all
        steps = [capture(step_of(number), "graph", torch.cuda.graph_pool_handle()) for number in range(len(pairs))]
        for step in steps:
            for _ in range(WARM_UP + 1):
                step()
    torch.cuda.synchronize()
    alone = [each.clone() for each in found]
    for _ in range(50):
        for lane, step in zip(lanes, steps, strict=True):
            with torch.cuda.stream(lane):
                step()
        torch.cuda.synchronize()
        assert all(torch.equal(one, other) for one, other in zip(found, alone, strict=True))
