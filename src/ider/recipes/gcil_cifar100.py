"""Generalised class-incremental CIFAR-100: 20 phases of 1 to 50 recurring classes, each up to 1,000 images of 32x32.

As published it is normalised with the constants of CIFAR-10 and drops the last, smaller batch. ER's settings are those
of the benchmark's origin (100 epochs, no schedule); ER+ID's learning rate and epochs are the authors', its weights are
not recorded anywhere: 0.2 is ours.
"""

from dataclasses import replace
from typing import Literal, cast

from ider.config import RunConfig, TrainConfig
from ider.methods import ER, Finetune, Joint
from ider.recipes import cifar10
from ider.recipes.variants import BALANCED, er_id, named, of_memory, variant
from ider.streams import StreamConfig
from ider.streams.gcil import Sampler

MEMORIES = (200, 500)

_BASE = RunConfig(method=Finetune(), images=cifar10.IMAGES, train=TrainConfig(epochs=100, lr=0.1, drop_last=True))


def recipes(memory: int, weights: str) -> dict[str, RunConfig]:
    """The same for every memory size and both kinds of class weights."""
    sampler = Sampler(weights=cast(Literal["uniform", "longtail"], weights))
    stream = StreamConfig(data="cifar100", kind="gcil", tasks=20, gcil=sampler)
    base = of_memory(replace(_BASE, benchmark=f"gcil-cifar100-{weights}", stream=stream), memory)
    return named(
        variant(base, "finetune", Finetune()),
        variant(base, "er", ER()),
        variant(base, "er-matched", ER(), BALANCED, lr=0.03, epochs=50, milestones=(0.7, 0.9)),
        variant(base, "er+id", er_id(0.2, 0.2), BALANCED, lr=0.03, epochs=50, milestones=(0.7, 0.9)),
        variant(base, "joint", Joint()),
    )
