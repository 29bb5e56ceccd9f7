"""Split CIFAR-100: 10 tasks of 10 classes, 50,000 + 10,000 images of 32x32.

ResNet-18 and the settings that the authors of IDER released.
"""

from ider.config import ImageConfig, RunConfig, TrainConfig
from ider.methods import ER, Finetune, Joint
from ider.recipes.variants import BALANCED, er_id, er_id_of_the_paper, named, of_memory, variant
from ider.streams import StreamConfig

MEMORIES = (500, 2000)

BASE = RunConfig(
    benchmark="cifar100",
    method=Finetune(),
    images=ImageConfig(mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761), pad=4, flip=True),
    train=TrainConfig(epochs=50, lr=0.03, milestones=(0.7, 0.9)),
    stream=StreamConfig(data="cifar100", tasks=10),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """The same for every memory size. Joint training has no learning-rate schedule."""
    return of_base(of_memory(BASE, memory)) | named(variant(of_memory(BASE, memory), "joint", Joint(), milestones=()))


def of_base(base: RunConfig) -> dict[str, RunConfig]:
    """The methods that learn task after task."""
    return named(
        variant(base, "finetune", Finetune()),
        variant(base, "er", ER(), lr=0.1),
        variant(base, "er-matched", ER(), BALANCED),
        variant(base, "er+id", er_id(0.4, 0.5), BALANCED),
        variant(base, "er+id-paper", er_id_of_the_paper(0.5)),
    )
