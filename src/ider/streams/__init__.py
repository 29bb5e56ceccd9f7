"""Streams of tasks, built from datasets."""

from ider.streams.split import split
from ider.streams.stream import Stream, Task

__all__ = ["Stream", "Task", "split"]
