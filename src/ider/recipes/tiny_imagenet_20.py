"""Split TinyImageNet in 20 tasks of 10 classes, 100,000 + 10,000 images of 64x64.

The settings of the 10-task stream; the paper does not state the memory size, and its numbers point to 4000.
"""

from dataclasses import replace

from ider.recipes import tiny_imagenet
from ider.recipes.table import INFERRED, Benchmark, carried_over

_BASE = replace(tiny_imagenet.BASE, benchmark="tiny-imagenet-20", stream=replace(tiny_imagenet.BASE.stream, tasks=20))

BENCHMARK = Benchmark(__doc__, (4000,), _BASE, carried_over(tiny_imagenet.ROWS, INFERRED))
