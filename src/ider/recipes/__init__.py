"""Recipes: complete run configurations by benchmark, name and memory size, with the published hyper-parameters."""

from ider.config import RunConfig
from ider.errors import UserError, unknown
from ider.methods import METHODS
from ider.recipes import (
    cifar10,
    cifar100,
    cifar100_online,
    digits,
    fashion_mnist,
    gcil_cifar100,
    tiny_imagenet,
    tiny_imagenet_20,
    your_data,
)
from ider.recipes.table import Benchmark

BENCHMARKS = {
    "digits": digits.BENCHMARK,
    "fashion-mnist": fashion_mnist.BENCHMARK,
    "cifar10": cifar10.BENCHMARK,
    "cifar100": cifar100.BENCHMARK,
    "cifar100-online": cifar100_online.BENCHMARK,
    "gcil-cifar100-uniform": gcil_cifar100.UNIFORM,
    "gcil-cifar100-longtail": gcil_cifar100.LONGTAIL,
    "tiny-imagenet": tiny_imagenet.BENCHMARK,
    "tiny-imagenet-20": tiny_imagenet_20.BENCHMARK,
}


def recipes(benchmark: str, memory: int | None = None) -> dict[str, RunConfig]:
    """All recipes of a benchmark for a memory size (default: the first it is run with), by name.

    `benchmark` may also be the user's own data, `folder:PATH` or `npz:PATH`.
    """
    known = _known(benchmark)
    size = known.memories[0] if memory is None else memory
    return {name: known.config(row, size) for name, row in known.table(size).items()}


def recipe(benchmark: str, name: str, memory: int | None = None) -> RunConfig:
    """One recipe, for example `recipe("digits", "er+id")`."""
    known = _known(benchmark)
    size = known.memories[0] if memory is None else memory
    rows = known.table(size)
    if name in rows:
        return known.config(rows[name], size)
    if name in METHODS and METHODS[name].needs().disjoint and known.base.stream.kind == "gcil":
        raise UserError(f"{name} is not defined on {benchmark}, where classes come again; there are {', '.join(rows)}")
    raise unknown("method or recipe", name, rows)


def _known(benchmark: str) -> Benchmark:
    known = your_data.benchmark(benchmark) if ":" in benchmark else BENCHMARKS.get(benchmark)
    if known is None:
        raise unknown("benchmark", benchmark, [*BENCHMARKS, "folder:PATH", "npz:PATH"])
    return known
