"""Streams of tasks, built from datasets."""

from ider.streams.build import StreamConfig, build
from ider.streams.gcil import gcil
from ider.streams.split import split
from ider.streams.stream import Stream, Task

__all__ = ["Stream", "StreamConfig", "Task", "build", "gcil", "split"]
