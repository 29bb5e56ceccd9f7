"""Recipes as tables: a row is a method, the memory sizes it was published for, and where its settings come from."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ider.config import RunConfig
from ider.methods import METHODS, Idempotent
from ider.protocols import Method
from ider.recipes.variants import BALANCED, variant

RELEASED = "released"  # in code that the authors of IDER or of the method released
PAPER = "paper"  # in the text of IDER, where the released code has something else
INFERRED = "inferred"  # from what was published for other benchmarks, memory sizes or methods
OURS = "ours"
UNTUNED = "ours, not tuned"  # a place to start from
OF_THE_PAPER = "-paper"

Train = Mapping[str, Any]
Weights = Mapping[str, tuple[float, float, str]]
"""By method the weights of the fixed-point terms on current and on remembered images, and where they come from."""


@dataclass(frozen=True)
class Row:
    """A recipe: a method under a name, and the memory policy and training settings that are not the benchmark's."""

    name: str
    source: str
    method: Method
    memories: tuple[int, ...] = ()  # none: the same for every size
    policy: str = "auto"
    train: Train = field(default_factory=dict)

    @property
    def of(self) -> str:
        """What it is a recipe of: the paper's settings of a method count as one with the others."""
        return self.name.removesuffix(OF_THE_PAPER)


@dataclass(frozen=True)
class Benchmark:
    """A stream of tasks under a name: what it is, the memory sizes it is run with (first: default), its recipes."""

    text: str | None
    memories: tuple[int, ...]
    base: RunConfig
    rows: tuple[Row, ...]

    @property
    def description(self) -> str:
        """What the stream is, in one line."""
        return (self.text or "").partition("\n")[0].removesuffix(".")

    def table(self, memory: int) -> dict[str, Row]:
        """By name the row of each recipe: that of the nearest memory size for which the method was published."""
        sizes: dict[str, set[int]] = {}
        for row in self.rows:
            sizes.setdefault(row.of, set()).update(row.memories)
        nearest = {name: min(of, key=lambda size: (abs(size - memory), -size)) for name, of in sizes.items() if of}
        return {row.name: row for row in self.rows if not row.memories or nearest[row.of] in row.memories}

    def config(self, row: Row, memory: int) -> RunConfig:
        """A row as a complete configuration, with a memory of that size."""
        base = replace(self.base, memory=replace(self.base.memory, size=memory))
        return variant(base, row.name, row.method, row.policy, **row.train)


def row(name: str, source: str, method: Method, *memories: int, policy: str = "auto", **train: Any) -> Row:
    """A row, with the memory sizes that it was published for after the method, and its training settings by name."""
    return Row(name, source, method, memories, policy, train)


def with_id(rows: Iterable[Row], weights: Weights, **train: Any) -> tuple[Row, ...]:
    """`<method>+id` for the methods that have weights: their own rows, the fixed-point terms, and some settings."""
    return tuple(_with_id(row, weights[row.name], train) for row in rows if row.name in weights)


def _with_id(row: Row, weights: tuple[float, float, str], train: Train) -> Row:
    """With ER and CLS-ER goes a class-balanced memory, as published and as inferred; the others keep their own."""
    name = f"{row.name}+id"
    usual, current, memory = METHODS[name], *weights[:2]
    assert isinstance(usual, Idempotent)
    base: Any = replace(row.method, **_differences(METHODS[row.name], usual.base))  # type: ignore[type-var]
    return replace(
        row,
        name=name,
        source=weights[2],
        method=replace(usual, base=base, current_weight=current, memory_weight=memory),
        policy=BALANCED if row.name in ("er", "cls-er") else row.policy,
        train={**row.train, **train},
    )


def _differences(alone: Any, under: Any) -> dict[str, Any]:
    """What `+id` changes in the method underneath (ER and CLS-ER then keep parts apart, BFP drops its logits)."""
    names = [item.name for item in dataclasses.fields(alone)]
    return {name: getattr(under, name) for name in names if getattr(under, name) != getattr(alone, name)}


def carried_over(rows: Iterable[Row], source: str, **train: Any) -> tuple[Row, ...]:
    """The rows of another benchmark with some settings of one's own; what was ours there is ours here."""
    return tuple(
        replace(row, source=row.source if row.source in (OURS, UNTUNED) else source, train={**row.train, **train})
        for row in rows
    )


def from_elsewhere(weights: Weights, source: str) -> Weights:
    """The weights of another benchmark."""
    return {name: (current, memory, source) for name, (current, memory, _) in weights.items()}


def without(rows: Iterable[Row], *names: str) -> tuple[Row, ...]:
    """The rows but for those of some methods and those of the paper."""
    return tuple(row for row in rows if row.name == row.of and row.name not in names)
