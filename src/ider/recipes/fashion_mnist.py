"""Fashion-MNIST: 5 tasks of 2 classes, 60,000 + 10,000 grey images of 28x28.

Ours, not published: the settings of CIFAR-10 with a quarter of its width, 10 epochs, and no mirroring.
"""

from ider.config import ImageConfig, NetConfig, RunConfig, TrainConfig
from ider.methods import ER, Finetune, Joint
from ider.recipes.variants import BALANCED, er_id, named, of_memory, variant
from ider.streams import StreamConfig

MEMORIES = (200, 500)

_BASE = RunConfig(
    benchmark="fashion-mnist",
    method=Finetune(),
    net=NetConfig(width=16),
    images=ImageConfig(mean=(0.2860,), std=(0.3530,), pad=2),
    train=TrainConfig(epochs=10, lr=0.1),
    stream=StreamConfig(data="fashion-mnist", tasks=5),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """The same for every memory size."""
    base = of_memory(_BASE, memory)
    return named(
        variant(base, "finetune", Finetune()),
        variant(base, "er", ER()),
        variant(base, "er-matched", ER(), BALANCED, lr=0.03),
        variant(base, "er+id", er_id(0.05, 0.05), BALANCED, lr=0.03),
        variant(base, "joint", Joint()),
    )
