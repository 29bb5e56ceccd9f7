"""Recipes: complete run configurations by benchmark, name and memory size, with the published hyper-parameters."""

from collections.abc import Callable

from ider.config import RunConfig
from ider.errors import unknown
from ider.recipes import cifar10, cifar100, digits, tiny_imagenet

Recipes = dict[str, RunConfig]

BENCHMARKS: dict[str, tuple[Callable[[int], Recipes], tuple[int, ...]]] = {
    "digits": (digits.recipes, digits.MEMORIES),
    "cifar10": (cifar10.recipes, cifar10.MEMORIES),
    "cifar100": (cifar100.recipes, cifar100.MEMORIES),
    "tiny-imagenet": (tiny_imagenet.recipes, tiny_imagenet.MEMORIES),
}
"""For each benchmark its recipes as a function of the memory size, and the published sizes (first: default)."""


def recipes(benchmark: str, memory: int | None = None) -> Recipes:
    """All recipes of a benchmark for a memory size (default: the first published one), by name."""
    if benchmark not in BENCHMARKS:
        raise unknown("benchmark", benchmark, BENCHMARKS)
    make, memories = BENCHMARKS[benchmark]
    return make(memories[0] if memory is None else memory)


def recipe(benchmark: str, name: str, memory: int | None = None) -> RunConfig:
    """One recipe, for example `recipe("digits", "er+id")`."""
    found = recipes(benchmark, memory)
    if name not in found:
        raise unknown("method or recipe", name, found)
    return found[name]
