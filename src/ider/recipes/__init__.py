"""Recipes: complete run configurations by benchmark, name and memory size, with the published hyper-parameters."""

from collections.abc import Iterable

from ider.config import RunConfig
from ider.errors import UserError, unknown
from ider.methods import METHODS, Idempotent
from ider.methods.registry import PLUS, short
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
from ider.recipes.variants import unpublished

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
    """One recipe, for example `recipe("digits", "er+id")`.

    A method that is not ider's own has none: it takes the settings of `er` (with `+id` those of `er+id`) on the
    benchmark, and its own hyper-parameters; whether they suit it is for the user to find out.
    """
    known = _known(benchmark)
    size = known.memories[0] if memory is None else memory
    rows = known.table(size)
    if name in rows:
        return known.config(rows[name], size)
    if name.removesuffix(PLUS) in METHODS.own:
        _refuse_recurring(name, benchmark, known, rows)
        raise unknown("method or recipe", name, rows)
    try:
        method = METHODS[name]
    except KeyError:
        others = [other for other in METHODS.names() if other not in METHODS.own]
        raise unknown("method or recipe", name, [*rows, *others]) from None
    base = rows["er+id" if isinstance(method, Idempotent) else "er"]
    return unpublished(known.config(base, size), short(name), method)


def _refuse_recurring(name: str, benchmark: str, known: Benchmark, rows: Iterable[str]) -> None:
    if name in METHODS and METHODS[name].needs().disjoint and known.base.stream.kind == "gcil":
        raise UserError(f"{name} is not defined on {benchmark}, where classes come again; there are {', '.join(rows)}")


def _known(benchmark: str) -> Benchmark:
    known = your_data.benchmark(benchmark) if ":" in benchmark else BENCHMARKS.get(benchmark)
    if known is None:
        raise unknown("benchmark", benchmark, [*BENCHMARKS, "folder:PATH", "npz:PATH"])
    return known
