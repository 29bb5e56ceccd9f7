"""Work on the side: on a GPU, passes that do not need each other run at once, each on a stream of its own."""

from collections.abc import Callable
from typing import TypeVar

import torch

from ider.types import Parts, Terms

T = TypeVar("T", Parts, Terms)

_BESIDE: dict[tuple[torch.cuda.Stream, str], torch.cuda.Stream] = {}


def beside(purpose: str, first: bool = False) -> torch.cuda.Stream:
    """The stream for a purpose beside the current one, always the same; its work comes `first`, or when there is room.

    A device has some streams of each kind, which are handed out in turn: two purposes may get the same.
    """
    place = torch.cuda.current_stream(), purpose
    if place not in _BESIDE:
        _BESIDE[place] = torch.cuda.Stream(priority=-1 if first else 0)  # type: ignore[no-untyped-call]
    return _BESIDE[place]


def meanwhile(work: Callable[[], T], used: Parts) -> Callable[[], T]:
    """Begin `work` on what is `used`; the result is there when what this returns is called, once.

    Gradients go back the same ways. A net that learns, or tracks statistics, must not be at work twice at a time. A
    compiler orders the work by itself, and without a GPU it is done when it is asked for.
    """
    if torch.compiler.is_compiling() or not used.rows.is_cuda:
        return work
    side = beside("passes")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = work()
    used.rows.record_stream(side)  # whose memory must not be given away while the work goes on

    def result() -> T:
        asking = torch.cuda.current_stream()
        asking.wait_stream(side)
        for tensor in [found.rows] if isinstance(found, Parts) else found.values():
            tensor.record_stream(asking)
        return found

    return result
