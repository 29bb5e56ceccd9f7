"""Split TinyImageNet: 10 tasks of 20 classes, 100,000 + 10,000 images of 64x64.

ResNet-18 and the settings that the authors of IDER, CLS-ER and SARL released. The test set is the official validation
set. The paper gives settings for a memory of 4000 alone, all with 100 epochs.
"""

from typing import Any

from ider import methods as m
from ider.config import ImageConfig, RunConfig, TrainConfig
from ider.recipes.cifar10 import GDUMB
from ider.recipes.cifar100 import IDEMPOTENT, SPARSE
from ider.recipes.table import INFERRED, OURS, PAPER, RELEASED, Benchmark, row, with_id
from ider.recipes.variants import BALANCED, er_id_of_the_paper
from ider.streams import StreamConfig

BASE = RunConfig(
    benchmark="tiny-imagenet",
    method=m.Finetune(),
    images=ImageConfig(mean=(0.4802, 0.4480, 0.3975), std=(0.2770, 0.2691, 0.2821), pad=4, flip=True),
    train=TrainConfig(epochs=50, lr=0.03, milestones=(0.7, 0.9)),
    stream=StreamConfig(data="tiny-imagenet", tasks=10),
)
_SHORT: dict[str, Any] = {"epochs": 50, "milestones": (0.7, 0.9)}
_LONG: dict[str, Any] = {"epochs": 100, "milestones": (0.35, 0.6, 0.75)}
_SARL: dict[str, Any] = {"epochs": 100, "milestones": (0.7, 0.9)}
_XDER_PAPER = m.XDER(replay_weight=0.9, contrast_weight=0.0)
_BFP = m.BFP(logit_weight=0.3, replay_weight=0.8)


def _cls_er(stable_rate: float) -> m.CLSER:
    return m.CLSER(consistency_weight=0.1, stable_rate=stable_rate, plastic_rate=0.08)


_ALONE = (
    row("finetune", RELEASED, m.Finetune(), **_LONG),
    row("joint", RELEASED, m.Joint(), epochs=100, milestones=()),
    row("lwf", INFERRED, m.LwF()),
    row("ewc", INFERRED, m.EWC(), lr=0.1),
    GDUMB,
    row("er", RELEASED, m.ER(), 500, **_LONG),
    row("er", RELEASED, m.ER(), 4000, lr=0.1),
    row("er-paper", PAPER, m.ER(), 4000, lr=0.1, **_LONG),
    row("er-matched", OURS, m.ER(), policy=BALANCED),
    row("er-ace", RELEASED, m.ERACE(), 500, **_LONG),
    row("er-ace", RELEASED, m.ERACE(), 4000),
    row("er-ace-paper", PAPER, m.ERACE(), 4000, **_LONG),
    row("der", RELEASED, m.DER(logit_weight=0.1), 500, **_LONG),
    row("der", RELEASED, m.DER(logit_weight=0.5), 4000),
    row("der-paper", PAPER, m.DER(logit_weight=0.1), 4000, **_LONG),
    row("derpp", RELEASED, m.DERPP(logit_weight=0.2), 500, **_LONG),
    row("derpp", RELEASED, m.DERPP(logit_weight=0.1), 4000),
    row("derpp-paper", PAPER, m.DERPP(logit_weight=0.1), 4000, **_LONG),
    row("xder", RELEASED, m.XDER(), 500, **_LONG),
    row("xder", RELEASED, m.XDER(margin_weight=0.01), 4000),
    row("xder-paper", PAPER, _XDER_PAPER, 4000, momentum=0.9, weight_decay=1e-6, **_LONG),
    row("icarl", RELEASED, m.ICaRL(), 500, weight_decay=1e-5, **_LONG),
    row("icarl", RELEASED, m.ICaRL(), 4000, weight_decay=1e-5),
    row("icarl-paper", PAPER, m.ICaRL(), 4000, weight_decay=1e-5, **_LONG),
    row("bic", RELEASED, m.BiC(), 500, **_LONG),
    row("bic", RELEASED, m.BiC(), 4000),
    row("bic-paper", PAPER, m.BiC(), 4000, **_LONG),
    row("lucir", RELEASED, m.LUCIR(), 500, momentum=0.9, **_LONG),
    row("lucir", RELEASED, m.LUCIR(), 4000, momentum=0.9),
    row("lucir-paper", PAPER, m.LUCIR(), 4000, momentum=0.9, **_LONG),
    row("bfp", RELEASED, _BFP, 500, 4000, policy=BALANCED),
    row("bfp-paper", PAPER, _BFP, 4000, policy=BALANCED, **_LONG),
    row("cls-er", RELEASED, _cls_er(0.04), 200, lr=0.05),
    row("cls-er", RELEASED, _cls_er(0.05), 500, lr=0.05),
    row("cls-er", INFERRED, _cls_er(0.07), 4000, lr=0.05),
    row("cls-er", RELEASED, _cls_er(0.07), 5120, lr=0.05),
    row("scommer", INFERRED, SPARSE, lr=0.1),
    row("sarl", RELEASED, m.SARL(share=0.9, prototype_weight=0.2), 200, **_SARL),
    row("sarl", RELEASED, m.SARL(share=0.9, logit_weight=0.5), 500, **_SARL),
    row("sarl", INFERRED, m.SARL(share=0.9, logit_weight=0.5), 4000, **_SARL),
    row("npcl", INFERRED, m.NPCL(task_weight=0.01, past_stream_weight=0.05), lr=0.1),
)

# As on CIFAR-100; ER+ID has 50 epochs with either memory, the others have those of their method.
_IDEMPOTENT = {name: weights for name, weights in IDEMPOTENT.items() if name != "er"}

# The paper gives no weights of ER+ID for TinyImageNet: its variant takes the released one of CIFAR-100.
ROWS = (
    *_ALONE,
    *with_id(_ALONE, {"er": (0.4, 0.5, RELEASED)}, lr=0.03, **_SHORT),
    *with_id(_ALONE, _IDEMPOTENT, lr=0.03),
    row("er+id-paper", INFERRED, er_id_of_the_paper(0.5), **_LONG),
)
BENCHMARK = Benchmark(__doc__, (4000, 500), BASE, ROWS)
