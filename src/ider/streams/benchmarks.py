"""The named benchmarks: which dataset, and what it is."""

from collections.abc import Callable
from dataclasses import dataclass

from ider.data import datasets
from ider.errors import unknown
from ider.streams.split import split
from ider.streams.stream import Stream


@dataclass(frozen=True)
class Benchmark:
    """A dataset under the name that `--benchmark` takes."""

    description: str
    load: Callable[[], datasets.Dataset]


BENCHMARKS = {
    "digits": Benchmark(
        "handwritten digits, 8x8 grey, 1,258 + 539 images, 10 classes; comes with ider", datasets.digits
    ),
}


def build(name: str, tasks: int, order_seed: int) -> Stream:
    """The stream of a named benchmark."""
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    return split(BENCHMARKS[name].load(), tasks, order_seed)
