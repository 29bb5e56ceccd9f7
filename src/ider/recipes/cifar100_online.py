"""Online CIFAR-100: 10 tasks of 10 classes, each image seen once; 50,000 + 10,000 images of 32x32.

The authors' "online" is their CIFAR-100 with one epoch a task; the batch sizes of the paper's table are not known.
"""

from dataclasses import replace

from ider.config import RunConfig
from ider.methods import Joint
from ider.recipes import cifar100
from ider.recipes.variants import named, of_memory, variant

MEMORIES = (1000, 2000)

_BASE = replace(cifar100.BASE, benchmark="cifar100-online", train=replace(cifar100.BASE.train, epochs=1, milestones=()))


def recipes(memory: int) -> dict[str, RunConfig]:
    """The settings of CIFAR-100, with one epoch a task."""
    base = of_memory(_BASE, memory)
    return cifar100.of_base(base) | named(variant(base, "joint", Joint()))
