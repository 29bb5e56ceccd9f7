"""`digits`: 5 tasks of 2 classes, a small net, a memory of 30. Ours, not published: docs/digits.md tells the choice."""

from ider.config import ImageConfig, NetConfig, RunConfig, StreamConfig, TrainConfig
from ider.methods import ER, Finetune, Idempotent, Joint
from ider.recipes.variants import named, of_memory, variant

MEMORIES = (30,)

_BASE = RunConfig(
    benchmark="digits",
    method=Finetune(),
    net=NetConfig(name="small-conv", width=32),
    images=ImageConfig(mean=(0.3061,), std=(0.3764,)),
    train=TrainConfig(epochs=20),
    stream=StreamConfig(tasks=5),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """Finetune, ER, ER with the settings of ER+ID, ER+ID, and joint training."""
    base = of_memory(_BASE, memory)
    er_id = Idempotent(base=ER(mixed=False), current_weight=0.02, memory_weight=0.02)
    return named(
        variant(base, "finetune", Finetune(), lr=0.1),
        variant(base, "er", ER(), lr=0.2),
        variant(base, "er-matched", ER(), policy="class-balanced", lr=0.1),
        variant(base, "er+id", er_id, policy="class-balanced", lr=0.1),
        variant(base, "joint", Joint(), lr=0.1),
    )
