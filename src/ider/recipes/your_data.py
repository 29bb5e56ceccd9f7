"""Your own images, from a folder or an archive of arrays, in 5 tasks.

A starting point, not published: ResNet-18 and the settings of CIFAR-100 with 20 epochs; images are normalised by the
mean and the spread of the first task.
"""

from dataclasses import replace

from ider.config import ImageConfig, RunConfig
from ider.methods import Joint
from ider.recipes import cifar100
from ider.recipes.variants import named, of_memory, variant

MEMORIES = (500,)


def recipes(memory: int, data: str) -> dict[str, RunConfig]:
    """All methods on the data that `data` names, such as folder:./photos."""
    base = replace(
        cifar100.BASE,
        benchmark=data,
        images=ImageConfig(pad=4, flip=True),
        train=replace(cifar100.BASE.train, epochs=20),
        stream=replace(cifar100.BASE.stream, data=data, tasks=5),
    )
    base = of_memory(base, memory)
    return cifar100.of_base(base) | named(variant(base, "joint", Joint(), milestones=()))
