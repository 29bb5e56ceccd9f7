"""Split CIFAR-10: 5 tasks of 2 classes, 50,000 + 10,000 images of 32x32.

ResNet-18 and the settings that the authors of IDER released.
"""

from ider.config import ImageConfig, RunConfig, TrainConfig
from ider.methods import ER, Finetune, Joint
from ider.recipes.variants import BALANCED, er_id, er_id_of_the_paper, named, of_memory, variant
from ider.streams import StreamConfig

MEMORIES = (200, 500)
IMAGES = ImageConfig(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2615), pad=4, flip=True)

_BASE = RunConfig(
    benchmark="cifar10",
    method=Finetune(),
    images=IMAGES,
    train=TrainConfig(epochs=50, lr=0.1),
    stream=StreamConfig(data="cifar10", tasks=5),
)


def recipes(memory: int) -> dict[str, RunConfig]:
    """The same for every memory size. The paper gives no weights for CIFAR-10: its variant takes the released ones."""
    base = of_memory(_BASE, memory)
    return named(
        variant(base, "finetune", Finetune()),
        variant(base, "er", ER()),
        variant(base, "er-matched", ER(), BALANCED, lr=0.03),
        variant(base, "er+id", er_id(0.05, 0.05), BALANCED, lr=0.03),
        variant(base, "er+id-paper", er_id_of_the_paper(0.05), lr=0.03),
        variant(base, "joint", Joint()),
    )
