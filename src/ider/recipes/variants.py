"""What the recipes of all benchmarks share: the same base with another method, memory policy and training settings."""

from dataclasses import replace
from typing import Any

from ider.config import RunConfig
from ider.methods import ER, Idempotent
from ider.protocols import Method

BALANCED = "class-balanced"


def variant(base: RunConfig, name: str, method: Method, policy: str = "auto", **train: Any) -> RunConfig:
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


def unpublished(base: RunConfig, name: str, method: Method) -> RunConfig:
    """`base` with a method that nobody has published settings for; a `+id` takes those of the base's `+id`."""
    policy = base.memory.policy if method.needs().memory == "steps" else "auto"
    if isinstance(method, Idempotent) and isinstance(base.method, Idempotent):
        weights = (base.method.current_weight, base.method.memory_weight)
        method = replace(method, current_weight=weights[0], memory_weight=weights[1])
    return variant(base, name, method, policy)


def er_id_of_the_paper(weight: float, replay_weight: float = 0.5) -> Idempotent:
    """ER+ID as the paper writes it: one weight for both fixed-point terms, cross-entropies of weight 1 and another.

    A label instead of the prior one time in ten, and a teacher with frozen statistics.
    """
    return Idempotent(
        base=ER(mixed=False, replay_weight=replay_weight),
        answer_weight=1.0,
        current_weight=weight,
        memory_weight=weight,
        prior_probability=0.9,
        teacher_statistics="running",
    )
