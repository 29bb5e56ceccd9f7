"""Your own images, from a folder or an archive of arrays, in 5 tasks.

A starting point, not published: ResNet-18 and the settings of CIFAR-100 with 20 epochs; images are normalised by the
mean and the spread of the first task.
"""

from dataclasses import replace

from ider import methods as m
from ider.config import ImageConfig
from ider.recipes import cifar100
from ider.recipes.cifar10 import GDUMB
from ider.recipes.table import UNTUNED, Benchmark, carried_over, from_elsewhere, row, with_id, without
from ider.recipes.variants import er_id_of_the_paper

# Warm-ups are shortened with the epochs. How many steps a task has is not known; running means are for some thousand.
_ALONE = (
    *without(carried_over(cifar100.ALONE, UNTUNED, epochs=20), "gdumb", "cls-er", "scommer", "sarl"),
    *carried_over([GDUMB], UNTUNED),
    row("cls-er", UNTUNED, m.CLSER(decay=0.998, stable_rate=0.8, plastic_rate=1.0), lr=0.1),
    row("scommer", UNTUNED, replace(cifar100.SPARSE, decay=0.998, rate=1.0, warm_up=12), lr=0.1),
    row("sarl", UNTUNED, m.SARL(share=0.9, warm_up=2)),
)
_IDEMPOTENT = from_elsewhere(cifar100.IDEMPOTENT, UNTUNED)
_ROWS = (*_ALONE, *with_id(_ALONE, _IDEMPOTENT, lr=0.03), row("er+id-paper", UNTUNED, er_id_of_the_paper(0.5)))


def benchmark(data: str) -> Benchmark:
    """All methods on the data that `data` names, such as folder:./photos."""
    base = replace(
        cifar100.BASE,
        benchmark=data,
        images=ImageConfig(pad=4, flip=True),
        train=replace(cifar100.BASE.train, epochs=20),
        stream=replace(cifar100.BASE.stream, data=data, tasks=5),
    )
    return Benchmark(__doc__, (500,), base, _ROWS)
