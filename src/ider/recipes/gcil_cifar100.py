"""Generalised class-incremental CIFAR-100: 20 phases of 1 to 50 recurring classes, each up to 1,000 images of 32x32.

As published it is normalised with the constants of CIFAR-10 and drops the last, smaller batch. Settings are those of
the benchmark's origin (100 epochs, no schedule) and of the methods' authors; ER+ID's learning rate and epochs are its
authors', its weights are not recorded anywhere. Methods that need each class in one task alone are not defined here.
"""

from dataclasses import replace
from typing import Any, Literal

from ider import methods as m
from ider.config import RunConfig, TrainConfig
from ider.recipes.cifar10 import GDUMB, IMAGES
from ider.recipes.table import INFERRED, OURS, RELEASED, UNTUNED, Benchmark, Row, Weights, row, with_id
from ider.recipes.variants import BALANCED
from ider.streams import StreamConfig
from ider.streams.gcil import Sampler

_BASE = RunConfig(method=m.Finetune(), images=IMAGES, train=TrainConfig(epochs=100, lr=0.1, drop_last=True))
_SHORT: dict[str, Any] = {"epochs": 50, "lr": 0.03, "milestones": (0.7, 0.9)}


def _scommer(rate: float, habit: float) -> m.SCoMMER:
    return m.SCoMMER(shares=(0.9, 0.9, 0.9, 0.9), habit=habit, consistency_weight=0.2, rate=rate)


_ALIKE = (
    row("finetune", RELEASED, m.Finetune()),
    row("joint", RELEASED, m.Joint()),
    row("lwf", INFERRED, m.LwF(), **_SHORT),
    row("ewc", INFERRED, m.EWC()),
    GDUMB,
    row("er", RELEASED, m.ER()),
    row("er-matched", OURS, m.ER(), policy=BALANCED, **_SHORT),
    row("der", INFERRED, m.DER(), **_SHORT),
    row("icarl", INFERRED, m.ICaRL(), epochs=50, lr=0.3, weight_decay=1e-5, milestones=(0.7, 0.9)),
    row("bfp", INFERRED, m.BFP(), policy=BALANCED, **_SHORT),
)
_UNIFORM = (
    row("derpp", RELEASED, m.DERPP(logit_weight=0.2, replay_weight=0.5), 200),
    row("derpp", RELEASED, m.DERPP(logit_weight=0.2, replay_weight=0.6), 500),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.6, plastic_rate=0.7), 200, epochs=200),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.6, plastic_rate=0.9), 500),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.6, plastic_rate=0.8), 1000),
    row("scommer", RELEASED, _scommer(0.6, 3.0), 200, 500, lr=0.05, epochs=50),
    row("sarl", RELEASED, m.SARL(share=0.7, prototype_weight=0.2), 200, 500, **_SHORT),
)
_LONGTAIL = (
    row("derpp", RELEASED, m.DERPP(logit_weight=0.2, replay_weight=0.6), 200),
    row("derpp", RELEASED, m.DERPP(logit_weight=0.2, replay_weight=0.8), 500),
    row("cls-er", RELEASED, m.CLSER(consistency_weight=0.1, stable_rate=0.6, plastic_rate=0.7), 200, 500),
    row("cls-er", RELEASED, m.CLSER(consistency_weight=0.1, stable_rate=0.6, plastic_rate=0.8), 1000),
    row("scommer", RELEASED, _scommer(0.5, 2.0), 200, lr=0.05, epochs=50),
    row("scommer", RELEASED, _scommer(0.6, 3.0), 500, lr=0.05, epochs=50),
    row("sarl", RELEASED, m.SARL(share=0.9, logit_weight=0.5, prototype_weight=0.2), 200, 500, **_SHORT),
)
_IDEMPOTENT: Weights = {
    "er": (0.2, 0.2, INFERRED),
    "bfp": (0.2, 0.2, INFERRED),
    "cls-er": (0.2, 0.2, INFERRED),
    "sarl": (0.2, 0.2, INFERRED),
    "finetune": (0.2, 0.2, UNTUNED),
    "der": (0.1, 0.1, UNTUNED),
    "derpp": (0.1, 0.1, UNTUNED),
    "scommer": (0.1, 0.1, UNTUNED),
}


def _benchmark(weights: Literal["uniform", "longtail"], own: tuple[Row, ...]) -> Benchmark:
    stream = StreamConfig(data="cifar100", kind="gcil", tasks=20, gcil=Sampler(weights=weights))
    base = replace(_BASE, benchmark=f"gcil-cifar100-{weights}", stream=stream)
    alone = (*_ALIKE, *own)
    return Benchmark(__doc__, (200, 500), base, (*alone, *with_id(alone, _IDEMPOTENT, **_SHORT)))


UNIFORM, LONGTAIL = _benchmark("uniform", _UNIFORM), _benchmark("longtail", _LONGTAIL)
