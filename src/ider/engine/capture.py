"""How a step runs: as it is, compiled, or recorded as a CUDA graph; always the same arithmetic.

A step takes no argument and touches no Python state: all it reads and writes are device tensors that stay where they
are. So its work can be recorded once and replayed without running its Python code again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, cast

import torch

from ider.meanwhile import beside

Mode = Literal["off", "compile", "graph"]
Step = Callable[[], None]

WARM_UP = 3
"""Steps before a recording: libraries choose their kernels, buffers appear. They are steps like all others."""

# Every shape of every method is compiled once, and its code serves all learners of the process.
_COMPILED: dict[Callable[..., Any], Callable[..., Any]] = {}
_SHAPES = 1000
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as one compiled graph for each shape that it meets."""
    if function not in _COMPILED:
        _COMPILED[function] = torch.compile(function, fullgraph=True, dynamic=False)
    return cast(F, _COMPILED[function])


def capture(step: Step, mode: Mode, pool: Any = None) -> Step:
    """The step as `mode` wants it; what it compiles, it compiles inside. Graphs of one `pool` never run at once."""
    if mode == "graph":
        return _Recorded(step, pool)
    return _Watched(step) if mode == "compile" else step


class _Watched:
    """A compiled step that must not be compiled again once it has warmed up: that would be a step of another shape."""

    def __init__(self, step: Step) -> None:
        self.step, self.runs = step, 0

    def __call__(self) -> None:
        """Do one step."""
        with _compiling() if self.runs < WARM_UP else torch.compiler.set_stance("fail_on_recompile"):
            self.step()
        self.runs += 1


class _Recorded:
    """A step that is recorded as a CUDA graph after a few runs, and from then on replayed."""

    def __init__(self, step: Step, pool: Any) -> None:
        self.step, self.pool, self.runs = step, pool, 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Do one step."""
        if self.graph is not None:
            self.graph.replay()
            return
        # Nothing can be recorded on the default stream, so nothing is warmed up there. Work beside it comes after it.
        aside = beside("steps", first=True)
        with _choosing():
            if self.runs < WARM_UP:
                self._run_on(aside)
            else:
                self._record_on(aside)
        self.runs += 1

    def _run_on(self, aside: torch.cuda.Stream) -> None:
        here = torch.cuda.current_stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self.step()
        here.wait_stream(aside)

    def _record_on(self, aside: torch.cuda.Stream) -> None:
        graph = torch.cuda.CUDAGraph()
        here = torch.cuda.current_stream()
        with torch.cuda.stream(here), _own_workspaces(), torch.cuda.graph(graph, self.pool, aside):
            self.step()
        self.graph = graph
        graph.replay()


@contextmanager
def _own_workspaces() -> Iterator[None]:
    """Within, matrix products get workspaces that nobody else has.

    Those at hand belong to a stream, and a recording takes note of their address: replayed elsewhere, beside another
    recording from the same stream, both would write there.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


@contextmanager
def _compiling() -> Iterator[None]:
    """Room in the compiler's tables for all shapes; on reaching their end it would raise."""
    import torch._dynamo.config as settings

    with settings.patch(recompile_limit=_SHAPES, accumulated_recompile_limit=_SHAPES):
        yield


@contextmanager
def _choosing() -> Iterator[None]:
    """Within, convolutions are tried out and the fastest taken."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
