"""Split CIFAR-10: 5 tasks of 2 classes, ResNet-18, the settings that the authors of IDER released."""

from ider.config import ImageConfig, RunConfig, StreamConfig, TrainConfig
from ider.methods import ER, Finetune, Idempotent, Joint
from ider.recipes.variants import named, of_memory, variant

MEMORIES = (200, 500)

_BASE = RunConfig(
    benchmark="cifar10",
    method=Finetune(),
    images=ImageConfig(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2615), pad=4, flip=True),
    train=TrainConfig(epochs=50),
    stream=StreamConfig(tasks=5),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """The same for every memory size."""
    base = of_memory(_BASE, memory)
    er_id = Idempotent(base=ER(mixed=False), current_weight=0.05, memory_weight=0.05)
    return named(
        variant(base, "finetune", Finetune(), lr=0.1),
        variant(base, "er", ER(), lr=0.1),
        variant(base, "er-matched", ER(), policy="class-balanced", lr=0.03),
        variant(base, "er+id", er_id, policy="class-balanced", lr=0.03),
        variant(base, "joint", Joint(), lr=0.1),
    )
