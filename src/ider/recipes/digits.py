"""Handwritten digits: 5 tasks of 2 classes, 1,258 + 539 grey images of 8x8; comes with ider.

Ours, not published: docs/digits.md tells how the settings were chosen.
"""

from ider.config import ImageConfig, NetConfig, RunConfig, TrainConfig
from ider.methods import ER, Finetune, Joint
from ider.recipes.variants import BALANCED, er_id, named, of_memory, variant
from ider.streams import StreamConfig

MEMORIES = (30,)

_BASE = RunConfig(
    benchmark="digits",
    method=Finetune(),
    net=NetConfig(name="small-conv", width=32),
    images=ImageConfig(mean=(0.3061,), std=(0.3764,)),
    train=TrainConfig(epochs=20, lr=0.1),
    stream=StreamConfig(data="digits", tasks=5),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """Finetune, ER, ER with the settings of ER+ID, ER+ID, and joint training."""
    base = of_memory(_BASE, memory)
    return named(
        variant(base, "finetune", Finetune()),
        variant(base, "er", ER(), lr=0.2),
        variant(base, "er-matched", ER(), BALANCED),
        variant(base, "er+id", er_id(0.02, 0.02), BALANCED),
        variant(base, "joint", Joint()),
    )
