"""Online CIFAR-100: 10 tasks of 10 classes, each image seen once; 50,000 + 10,000 images of 32x32.

The authors' "online" is their CIFAR-100 with one epoch a task; the batch sizes of the paper's table are not known.
"""

from dataclasses import replace

from ider import methods as m
from ider.recipes import cifar100
from ider.recipes.cifar10 import GDUMB
from ider.recipes.table import INFERRED, UNTUNED, Benchmark, carried_over, from_elsewhere, row, with_id, without
from ider.recipes.variants import er_id_of_the_paper

_BASE = replace(cifar100.BASE, benchmark="cifar100-online", train=replace(cifar100.BASE.train, epochs=1, milestones=()))

# A task has 157 steps: running means follow the net over one or two tasks, as a share far more than where they were
# published. SARL is its released online variant, whose warm-up is counted in steps, with its default weights.
ALONE = (
    *without(carried_over(cifar100.ALONE, INFERRED, epochs=1, milestones=()), "gdumb", "cls-er", "scommer", "sarl"),
    GDUMB,
    row("cls-er", UNTUNED, m.CLSER(decay=0.99, stable_rate=0.5, plastic_rate=0.9), lr=0.1),
    row("scommer", UNTUNED, replace(cifar100.SPARSE, decay=0.99, rate=0.5, warm_up=0), lr=0.1),
    row("sarl", INFERRED, m.SARL(share=0.9, logit_weight=0.5, prototype_weight=0.1, warm_up_steps=10)),
)
_IDEMPOTENT = {**from_elsewhere(cifar100.IDEMPOTENT, UNTUNED), "er": (0.4, 0.5, INFERRED)}
_PAPER = row("er+id-paper", INFERRED, er_id_of_the_paper(0.5))

BENCHMARK = Benchmark(__doc__, (1000, 2000), _BASE, (*ALONE, *with_id(ALONE, _IDEMPOTENT, lr=0.03), _PAPER))
