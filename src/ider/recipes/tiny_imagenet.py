"""Split TinyImageNet: 10 tasks of 20 classes, 100,000 + 10,000 images of 64x64.

ResNet-18 and the settings that the authors of IDER released. The test set is the official validation set.
"""

from typing import Any

from ider.config import ImageConfig, RunConfig, TrainConfig
from ider.methods import ER, Finetune, Joint
from ider.recipes.variants import BALANCED, er_id, er_id_of_the_paper, named, of_memory, variant
from ider.streams import StreamConfig

MEMORIES = (4000, 500)

_LONG: dict[str, Any] = {"epochs": 100, "milestones": (0.35, 0.6, 0.75)}

BASE = RunConfig(
    benchmark="tiny-imagenet",
    method=Finetune(),
    images=ImageConfig(mean=(0.4802, 0.4480, 0.3975), std=(0.2770, 0.2691, 0.2821), pad=4, flip=True),
    train=TrainConfig(epochs=50, lr=0.03, milestones=(0.7, 0.9)),
    stream=StreamConfig(data="tiny-imagenet", tasks=10),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """ER was published with other settings for a memory of 500 than for 4000; other sizes take the nearer ones."""
    return of_base(of_memory(BASE, memory))


def of_base(base: RunConfig) -> dict[str, RunConfig]:
    """All methods on a stream of TinyImageNet. The paper gives settings for a memory of 4000 alone."""
    large = base.memory.size >= (500 + 4000) / 2
    of_the_paper = named(variant(base, "er-paper", ER(), lr=0.1, **_LONG)) if large else {}
    found = named(
        variant(base, "finetune", Finetune(), **_LONG),
        variant(base, "er", ER(), **({"lr": 0.1} if large else _LONG)),
        variant(base, "er-matched", ER(), BALANCED),
        variant(base, "er+id", er_id(0.4, 0.5), BALANCED),
        variant(base, "er+id-paper", er_id_of_the_paper(0.5), **_LONG),
        variant(base, "joint", Joint(), epochs=100, milestones=()),
    )
    return found | of_the_paper
