"""Split CIFAR-100: 10 tasks of 10 classes, ResNet-18, the settings that the authors of IDER released."""

from ider.config import ImageConfig, RunConfig, StreamConfig, TrainConfig
from ider.methods import ER, Finetune, Idempotent, Joint
from ider.recipes.variants import named, of_memory, variant

MEMORIES = (500, 2000)

_BASE = RunConfig(
    benchmark="cifar100",
    method=Finetune(),
    images=ImageConfig(mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761), pad=4, flip=True),
    train=TrainConfig(epochs=50, milestones=(0.7, 0.9)),
    stream=StreamConfig(tasks=10),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """The same for every memory size. Joint training has no learning-rate schedule."""
    base = of_memory(_BASE, memory)
    er_id = Idempotent(base=ER(mixed=False), current_weight=0.4, memory_weight=0.5)
    return named(
        variant(base, "finetune", Finetune(), lr=0.03),
        variant(base, "er", ER(), lr=0.1),
        variant(base, "er-matched", ER(), policy="class-balanced", lr=0.03),
        variant(base, "er+id", er_id, policy="class-balanced", lr=0.03),
        variant(base, "joint", Joint(), lr=0.03, milestones=()),
    )
