"""Split CIFAR-10: 5 tasks of 2 classes, 50,000 + 10,000 images of 32x32.

ResNet-18 and the settings that the authors of IDER, CLS-ER, SCoMMER and SARL released.
"""

from ider import methods as m
from ider.config import ImageConfig, RunConfig, TrainConfig
from ider.recipes.table import INFERRED, OURS, PAPER, RELEASED, UNTUNED, Benchmark, Weights, row, with_id
from ider.recipes.variants import BALANCED, er_id_of_the_paper
from ider.streams import StreamConfig

IMAGES = ImageConfig(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2615), pad=4, flip=True)
# GDumb's own schedule, without its CutMix: half a cosine from 0.05 to 0.0005, over the memory's samples.
GDUMB = row("gdumb", INFERRED, m.GDumb(), epochs=250, lr=0.05, schedule="cosine", decay=0.01, milestones=())

_BASE = RunConfig(
    benchmark="cifar10",
    method=m.Finetune(),
    images=IMAGES,
    train=TrainConfig(epochs=50, lr=0.1),
    stream=StreamConfig(data="cifar10", tasks=5),
)

_XDER = m.XDER(replay_weight=1.0, margin=0.5, margin_weight=0.01, contrast_views=4)
_XDER_PAPER = m.XDER(replay_weight=0.9, margin=0.7, margin_weight=0.001, contrast_views=4)
_XDER_PAPER_500 = m.XDER(replay_weight=0.9, margin=0.7, margin_weight=0.001, contrast_weight=0.0)

ALONE = (
    row("finetune", RELEASED, m.Finetune()),
    row("joint", RELEASED, m.Joint()),
    row("lwf", INFERRED, m.LwF(), lr=0.03),
    row("ewc", INFERRED, m.EWC()),
    GDUMB,
    row("er", RELEASED, m.ER()),
    row("er-matched", OURS, m.ER(), policy=BALANCED, lr=0.03),
    row("er-ace", RELEASED, m.ERACE(), lr=0.03),
    row("der", RELEASED, m.DER(), lr=0.03),
    row("derpp", RELEASED, m.DERPP(logit_weight=0.1), 200, lr=0.03),
    row("derpp", RELEASED, m.DERPP(logit_weight=0.2), 500, lr=0.03),
    row("derpp-paper", PAPER, m.DERPP(logit_weight=0.1), 500, lr=0.03),
    row("xder", RELEASED, _XDER, 200, 500, lr=0.03),
    row("xder-paper", PAPER, _XDER_PAPER, 200, lr=0.03, momentum=0.9, weight_decay=1e-6),
    row("xder-paper", PAPER, _XDER_PAPER_500, 500, lr=0.03, momentum=0.9, weight_decay=1e-6),
    row("icarl", RELEASED, m.ICaRL(), weight_decay=1e-5),
    row("bic", RELEASED, m.BiC(), lr=0.03),
    row("lucir", RELEASED, m.LUCIR(), lr=0.03, momentum=0.9),
    row("bfp", RELEASED, m.BFP(logit_weight=0.1), 200, 500, policy=BALANCED, lr=0.03),
    row("bfp-paper", PAPER, m.BFP(logit_weight=0.2), 500, policy=BALANCED, lr=0.03),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.1, plastic_rate=0.3), 200),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.1, plastic_rate=0.9), 500),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.8, plastic_rate=1.0), 5120),
    row("scommer", RELEASED, m.SCoMMER(rate=0.5), 200),
    row("scommer", RELEASED, m.SCoMMER(rate=0.7), 500),
    row("sarl", RELEASED, m.SARL(), lr=0.03, epochs=20, milestones=(0.75,)),
    row("npcl", INFERRED, m.NPCL()),
)

# Of these ER's are the authors'. BFP and CLS-ER take them over; where a method holds the past itself, they are lower.
IDEMPOTENT: Weights = {
    "er": (0.05, 0.05, RELEASED),
    "bfp": (0.05, 0.05, INFERRED),
    "cls-er": (0.05, 0.05, INFERRED),
    "finetune": (0.05, 0.05, UNTUNED),
    "er-ace": (0.01, 0.01, UNTUNED),
    "der": (0.02, 0.02, UNTUNED),
    "derpp": (0.02, 0.02, UNTUNED),
    "xder": (0.01, 0.01, UNTUNED),
    "scommer": (0.02, 0.02, UNTUNED),
    "sarl": (0.02, 0.02, UNTUNED),
}

# The paper gives no weights of ER+ID for CIFAR-10: its variant takes the released ones.
_PAPER = row("er+id-paper", INFERRED, er_id_of_the_paper(0.05), lr=0.03)

BENCHMARK = Benchmark(__doc__, (200, 500), _BASE, (*ALONE, *with_id(ALONE, IDEMPOTENT, lr=0.03), _PAPER))
