"""What the recipes of all benchmarks share: the same base with another method, memory policy and training settings."""

from dataclasses import replace
from typing import Any

from ider.config import RunConfig
from ider.types import Method


def variant(base: RunConfig, name: str, method: Method, policy: str = "reservoir", **train: Any) -> RunConfig:
    """`base` under another name, with another method and the given training settings.

    Only a method that feeds answers back into the net gets one with a second input; the others get the plain one.
    """
    return replace(
        base,
        recipe=name,
        method=method,
        net=replace(base.net, label_input=method.needs().second_input),
        memory=replace(base.memory, policy=policy),
        train=replace(base.train, **train),
    )


def of_memory(base: RunConfig, size: int) -> RunConfig:
    """`base` with a memory of `size` slots."""
    return replace(base, memory=replace(base.memory, size=size))


def named(*configs: RunConfig) -> dict[str, RunConfig]:
    """Recipes by their names."""
    return {config.recipe: config for config in configs}
