"""Recipes: complete run configurations by benchmark, name and memory size, with the published hyper-parameters."""

from dataclasses import dataclass
from types import ModuleType

from ider.config import RunConfig
from ider.errors import unknown
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
from ider.recipes.variants import unpublished

Recipes = dict[str, RunConfig]


@dataclass(frozen=True)
class Benchmark:
    """A stream of tasks under a name: what it is, the memory sizes it is run with (first: default), its recipes."""

    module: ModuleType
    variant: str = ""

    @property
    def description(self) -> str:
        """What the stream is, in one line."""
        return (self.module.__doc__ or "").partition("\n")[0].removesuffix(".")

    @property
    def memories(self) -> tuple[int, ...]:
        """The memory sizes; the first is the default."""
        found: tuple[int, ...] = self.module.MEMORIES
        return found

    def recipes(self, memory: int) -> Recipes:
        """All recipes for a memory size, by name."""
        found: Recipes = self.module.recipes(memory, self.variant) if self.variant else self.module.recipes(memory)
        return found


BENCHMARKS = {
    "digits": Benchmark(digits),
    "fashion-mnist": Benchmark(fashion_mnist),
    "cifar10": Benchmark(cifar10),
    "cifar100": Benchmark(cifar100),
    "cifar100-online": Benchmark(cifar100_online),
    "gcil-cifar100-uniform": Benchmark(gcil_cifar100, "uniform"),
    "gcil-cifar100-longtail": Benchmark(gcil_cifar100, "longtail"),
    "tiny-imagenet": Benchmark(tiny_imagenet),
    "tiny-imagenet-20": Benchmark(tiny_imagenet_20),
}


def recipes(benchmark: str, memory: int | None = None) -> Recipes:
    """All recipes of a benchmark for a memory size (default: the first it is run with), by name.

    `benchmark` may also be the user's own data, `folder:PATH` or `npz:PATH`.
    """
    known = Benchmark(your_data, benchmark) if ":" in benchmark else BENCHMARKS.get(benchmark)
    if known is None:
        raise unknown("benchmark", benchmark, [*BENCHMARKS, "folder:PATH", "npz:PATH"])
    return known.recipes(known.memories[0] if memory is None else memory)


def recipe(benchmark: str, name: str, memory: int | None = None) -> RunConfig:
    """One recipe, for example `recipe("digits", "er+id")`.

    A method that is not ider's own has none: it takes the settings of `er` (with `+id` those of `er+id`) on the
    benchmark, and its own hyper-parameters; whether they suit it is for the user to find out.
    """
    found = recipes(benchmark, memory)
    if name in found:
        return found[name]
    if name.removesuffix(PLUS) in METHODS.own:
        raise unknown("method or recipe", name, found)
    try:
        method = METHODS[name]
    except KeyError:
        raise unknown(
            "method or recipe", name, [*found, *(other for other in METHODS.names() if other not in METHODS.own)]
        ) from None
    return unpublished(found["er+id" if isinstance(method, Idempotent) else "er"], short(name), method)
