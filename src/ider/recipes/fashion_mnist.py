"""Fashion-MNIST: 5 tasks of 2 classes, 60,000 + 10,000 grey images of 28x28.

Ours, not published: the settings of CIFAR-10 with a quarter of its width, 10 epochs, and no mirroring.
"""

from ider import methods as m
from ider.config import ImageConfig, NetConfig, RunConfig, TrainConfig
from ider.recipes import cifar10
from ider.recipes.table import UNTUNED, Benchmark, carried_over, from_elsewhere, row, with_id, without
from ider.streams import StreamConfig

_BASE = RunConfig(
    benchmark="fashion-mnist",
    method=m.Finetune(),
    net=NetConfig(width=16),
    images=ImageConfig(mean=(0.2860,), std=(0.3530,), pad=2),
    train=TrainConfig(epochs=10, lr=0.1),
    stream=StreamConfig(data="fashion-mnist", tasks=5),
)

# What is counted in steps or epochs has a quarter or a fifth of CIFAR-10's: a task is 3,750 steps, there 15,650.
_ALONE = (
    *without(carried_over(cifar10.ALONE, UNTUNED, epochs=10), "gdumb", "cls-er", "scommer", "sarl"),
    *carried_over([cifar10.GDUMB], UNTUNED),
    row("cls-er", UNTUNED, m.CLSER(decay=0.998, stable_rate=0.2, plastic_rate=0.6)),
    row("scommer", UNTUNED, m.SCoMMER(decay=0.998, rate=1.0, warm_up=6)),
    row("sarl", UNTUNED, m.SARL(warm_up=2), lr=0.03, milestones=(0.75,)),
)
_IDEMPOTENT = from_elsewhere(cifar10.IDEMPOTENT, UNTUNED)

BENCHMARK = Benchmark(__doc__, (200, 500), _BASE, (*_ALONE, *with_id(_ALONE, _IDEMPOTENT, lr=0.03)))
