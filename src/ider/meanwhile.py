"""Work on the side: on a GPU, passes that do not need each other run at once, each on a stream of its own."""

from collections.abc import Callable

import torch

from ider.types import Parts

Begun = Callable[[], Parts]
"""Work on its way: called, it gives the result once that is there."""

_BESIDE: dict[tuple[torch.cuda.Stream, str], torch.cuda.Stream] = {}


def beside(purpose: str, first: bool = False) -> torch.cuda.Stream:
    """The stream for a purpose beside the current one, always the same; its work comes `first`, or when there is room.

    A device has some streams of each kind, which are handed out in turn: two purposes may get the same.
    """
    place = torch.cuda.current_stream(), purpose
    if place not in _BESIDE:
        _BESIDE[place] = torch.cuda.Stream(priority=-1 if first else 0)  # type: ignore[no-untyped-call]
    return _BESIDE[place]


def meanwhile(work: Callable[[], Parts], *used: Parts) -> Begun:
    """Begin `work` on what is `used`.

    Gradients go back the same ways. No net may be at work twice at a time. A compiler orders the work by itself, and
    without a GPU it is done at once.
    """
    if torch.compiler.is_compiling() or not all(parts.rows.is_cuda for parts in used):
        done = work()
        return lambda: done
    side = beside("passes")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = work()
    for parts in used:  # whose memory must not be given away while the work goes on
        parts.rows.record_stream(side)

    def result() -> Parts:
        asking = torch.cuda.current_stream()
        asking.wait_stream(side)
        found.rows.record_stream(asking)
        return found

    return result
