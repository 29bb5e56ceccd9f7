"""Several runs side by side in one process: a step of each in turn, on a GPU each on a stream of its own.

A GPU that is busy with one small step has room for others; and while it works, the host prepares what comes next.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch

T = TypeVar("T")


def take_turns(runs: Iterable[Iterator[T]], at_once: int, device: str) -> Iterator[tuple[int, T | None]]:
    """Advance the first `at_once` runs in turn, the next one as soon as one ends.

    Yields the number of a run and what it yielded; None at its end.
    """
    waiting = enumerate(runs)
    streams = [torch.cuda.Stream() if device == "cuda" else None for _ in range(at_once)]  # type: ignore[no-untyped-call]
    lanes = deque((number, run, stream) for stream, (number, run) in zip(streams, waiting, strict=False))
    while lanes:
        number, run, stream = lanes.popleft()
        with torch.cuda.stream(stream):
            news = next(run, None)
        yield number, news
        following = (number, run) if news is not None else next(waiting, None)
        if following is not None:
            lanes.append((*following, stream))
