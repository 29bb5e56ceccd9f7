"""Split TinyImageNet: 10 tasks of 20 classes, ResNet-18, the settings that the authors of IDER released."""

from typing import Any

from ider.config import ImageConfig, RunConfig, StreamConfig, TrainConfig
from ider.methods import ER, Finetune, Idempotent, Joint
from ider.recipes.variants import named, of_memory, variant

MEMORIES = (4000, 500)

_LONG: dict[str, Any] = {"epochs": 100, "milestones": (0.35, 0.6, 0.75)}
_SHORT: dict[str, Any] = {"epochs": 50, "milestones": (0.7, 0.9)}

_BASE = RunConfig(
    benchmark="tiny-imagenet",
    method=Finetune(),
    images=ImageConfig(mean=(0.4802, 0.4480, 0.3975), std=(0.2770, 0.2691, 0.2821), pad=4, flip=True),
    train=TrainConfig(),
    stream=StreamConfig(tasks=10),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """ER was published with other settings for a memory of 500 than for 4000; sizes between take the nearer ones."""
    base = of_memory(_BASE, memory)
    small = memory < (500 + 4000) / 2
    er_id = Idempotent(base=ER(mixed=False), current_weight=0.4, memory_weight=0.5)
    return named(
        variant(base, "finetune", Finetune(), lr=0.03, **_LONG),
        variant(base, "er", ER(), lr=0.03 if small else 0.1, **(_LONG if small else _SHORT)),
        variant(base, "er-matched", ER(), policy="class-balanced", lr=0.03, **_SHORT),
        variant(base, "er+id", er_id, policy="class-balanced", lr=0.03, **_SHORT),
        variant(base, "joint", Joint(), lr=0.03, epochs=100),
    )
