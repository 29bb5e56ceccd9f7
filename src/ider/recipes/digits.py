"""Handwritten digits: 5 tasks of 2 classes, 1,258 + 539 grey images of 8x8; comes with ider.

Ours, not published: docs/digits.md tells how the settings were chosen.
"""

from ider import methods as m
from ider.config import ImageConfig, NetConfig, RunConfig, TrainConfig
from ider.recipes.table import OURS, Benchmark, Weights, row, with_id
from ider.recipes.variants import BALANCED
from ider.streams import StreamConfig

_BASE = RunConfig(
    benchmark="digits",
    method=m.Finetune(),
    net=NetConfig(name="small-conv", width=32),
    images=ImageConfig(mean=(0.3061,), std=(0.3764,)),
    train=TrainConfig(epochs=20, lr=0.1),
    stream=StreamConfig(data="digits", tasks=5),
)

_ALONE = (
    row("finetune", OURS, m.Finetune()),
    row("joint", OURS, m.Joint()),
    row("lwf", OURS, m.LwF(distill_weight=10.0), lr=0.03),
    row("ewc", OURS, m.EWC(penalty_weight=1000.0), lr=0.2),
    row("gdumb", OURS, m.GDumb(), lr=0.03, epochs=100),
    row("er", OURS, m.ER(), lr=0.2),
    row("er-matched", OURS, m.ER(), policy=BALANCED),
    row("er-ace", OURS, m.ERACE(), lr=0.03),
    row("der", OURS, m.DER(), lr=0.03),
    row("derpp", OURS, m.DERPP()),
    row("xder", OURS, m.XDER(), lr=0.01),
    row("icarl", OURS, m.ICaRL()),
    row("bic", OURS, m.BiC()),
    row("lucir", OURS, m.LUCIR(), momentum=0.9),
    row("bfp", OURS, m.BFP(), policy=BALANCED),
    row("cls-er", OURS, m.CLSER(decay=0.97, stable_rate=0.3, plastic_rate=1.0), lr=0.03),
    row("scommer", OURS, m.SCoMMER(decay=0.99, rate=1.0, warm_up=12), lr=0.2),
    row("sarl", OURS, m.SARL()),
    row("npcl", OURS, m.NPCL(draws=4, test_draws=8, latent=32, decoder=64)),
)
_IDEMPOTENT: Weights = {
    "finetune": (0.02, 0.02, OURS),
    "er-ace": (0.001, 0.001, OURS),
    "der": (0.1, 0.1, OURS),
    "derpp": (0.02, 0.02, OURS),
    "xder": (0.005, 0.005, OURS),
    "bfp": (0.1, 0.1, OURS),
    "cls-er": (0.02, 0.02, OURS),
    "scommer": (0.005, 0.005, OURS),
    "sarl": (0.001, 0.001, OURS),
}
_ROWS = (*_ALONE, *with_id(_ALONE, {"er": (0.02, 0.02, OURS)}, lr=0.1), *with_id(_ALONE, _IDEMPOTENT))

BENCHMARK = Benchmark(__doc__, (30,), _BASE, _ROWS)
