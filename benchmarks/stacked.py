"""Seeds side by side, two ways: a convolution of each on a stream of its own, or one grouped convolution of all.

    python benchmarks/stacked.py

Prints, for the four kinds of layers of ResNet-18, microseconds a seed of forward and backward in bf16, in CUDA graphs.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

SEEDS, ROWS, CALLS, REPLAYS = 5, 96, 10, 20
LAYERS = [(64, 32), (128, 16), (256, 8), (512, 4)]


def layer(rows: int, channels: int, side: int, groups: int) -> Callable[[], Tensor]:
    """Forward and backward of a 3x3 convolution."""
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(rows, channels, side, side, **kind).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(channels, channels // groups, 3, 3, **kind).contiguous(memory_format=torch.channels_last)
    slope = torch.randn_like(x)

    def work() -> Tensor:
        out = F.conv2d(x, weight, padding=1, groups=groups)
        arguments = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), groups, (True, True, False))
        torch.ops.aten.convolution_backward(slope, x, weight, *arguments)
        return out

    return work


def recorded(work: Callable[[], Tensor], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """Some calls as a graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        work()
        work()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                work()
    return graph


def microseconds(works: list[Callable[[], Tensor]]) -> float:
    """A call of each, all at once."""
    streams = [torch.cuda.Stream() for _ in works]
    graphs = [recorded(work, stream) for work, stream in zip(works, streams, strict=True)]
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        for _ in range(REPLAYS):
            for graph, stream in zip(graphs, streams, strict=True):
                with torch.cuda.stream(stream):
                    graph.replay()
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / REPLAYS / CALLS)
    return min(times)


def main() -> None:
    torch.backends.cudnn.benchmark = True
    print(torch.cuda.get_device_name(), torch.__version__)
    for channels, side in LAYERS:
        alone = microseconds([layer(ROWS, channels, side, 1)])
        streams = microseconds([layer(ROWS, channels, side, 1) for _ in range(SEEDS)]) / SEEDS
        stacked = microseconds([layer(ROWS, SEEDS * channels, side, SEEDS)]) / SEEDS
        print(
            f"{channels} channels, {side}x{side}: alone {alone:.0f}, on streams {streams:.0f}, stacked {stacked:.0f} us"
        )


if __name__ == "__main__":
    main()
