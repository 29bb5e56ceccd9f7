"""The seam at which a step is compiled and captured; for now every device runs it as it is.

A step takes no argument and touches no Python state: all it reads and writes are device tensors that stay where they
are. So whatever this function returns may replay the same work without running its Python code again.
"""

from collections.abc import Callable


def capture(step: Callable[[], None]) -> Callable[[], None]:
    """The fastest equivalent of `step` on this device."""
    return step
