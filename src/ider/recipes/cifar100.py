"""Split CIFAR-100: 10 tasks of 10 classes, 50,000 + 10,000 images of 32x32.

ResNet-18 and the settings that the authors of IDER released; those of SCoMMER and SARL are for 5 tasks of 20 classes.
"""

from ider import methods as m
from ider.config import ImageConfig, RunConfig, TrainConfig
from ider.recipes.cifar10 import GDUMB
from ider.recipes.table import INFERRED, OURS, PAPER, RELEASED, UNTUNED, Benchmark, Weights, row, with_id
from ider.recipes.variants import BALANCED, er_id_of_the_paper
from ider.streams import StreamConfig

BASE = RunConfig(
    benchmark="cifar100",
    method=m.Finetune(),
    images=ImageConfig(mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761), pad=4, flip=True),
    train=TrainConfig(epochs=50, lr=0.03, milestones=(0.7, 0.9)),
    stream=StreamConfig(data="cifar100", tasks=10),
)
_FIVE_TASKS = "released, for 5 tasks"
_XDER_2000 = m.XDER(logit_weight=0.6, replay_weight=0.9, margin=0.2, margin_weight=0.01)

SPARSE = m.SCoMMER(shares=(0.9, 0.9, 0.9, 0.9), habit=3.0, rate=0.1)
ALONE = (
    row("finetune", RELEASED, m.Finetune()),
    row("joint", RELEASED, m.Joint(), milestones=()),
    row("lwf", INFERRED, m.LwF()),
    row("ewc", INFERRED, m.EWC(), lr=0.1),
    GDUMB,
    row("er", RELEASED, m.ER(), lr=0.1),
    row("er-matched", OURS, m.ER(), policy=BALANCED),
    row("er-ace", RELEASED, m.ERACE()),
    row("der", RELEASED, m.DER()),
    row("derpp", RELEASED, m.DERPP()),
    row("xder", RELEASED, m.XDER(), 500),
    row("xder", RELEASED, _XDER_2000, 2000),
    row("xder-paper", PAPER, m.XDER(replay_weight=0.9), 500, 2000, momentum=0.9, weight_decay=1e-6),
    row("icarl", RELEASED, m.ICaRL(), lr=0.3, weight_decay=1e-5),
    row("bic", RELEASED, m.BiC()),
    row("lucir", RELEASED, m.LUCIR(), momentum=0.9),
    row("bfp", RELEASED, m.BFP(), policy=BALANCED),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.1, plastic_rate=0.3), 200, lr=0.1),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.1, plastic_rate=0.5), 500, lr=0.1),
    row("cls-er", RELEASED, m.CLSER(stable_rate=0.8, plastic_rate=1.0), 2000, lr=0.1),
    row("scommer", _FIVE_TASKS, SPARSE, 200, 500, lr=0.1),
    row("scommer", INFERRED, SPARSE, 2000, lr=0.1),
    row("sarl", _FIVE_TASKS, m.SARL(share=0.9, logit_weight=0.5), 200),
    row("sarl", _FIVE_TASKS, m.SARL(share=0.9), 500),
    row("sarl", INFERRED, m.SARL(share=0.9), 2000),
    row("npcl", INFERRED, m.NPCL(), lr=0.1),
)

# ER's are the authors', BFP and CLS-ER take them over. The others hold the past themselves, and with ER's weights learn
# too little of new tasks; benchmarks/select_weights.py chooses theirs on held-out images.
IDEMPOTENT: Weights = {
    "er": (0.4, 0.5, RELEASED),
    "bfp": (0.4, 0.5, INFERRED),
    "cls-er": (0.4, 0.5, INFERRED),
    "finetune": (0.4, 0.5, UNTUNED),
    "er-ace": (0.1, 0.1, UNTUNED),
    "der": (0.2, 0.2, UNTUNED),
    "derpp": (0.2, 0.2, UNTUNED),
    "xder": (0.1, 0.1, UNTUNED),
    "scommer": (0.2, 0.2, UNTUNED),
    "sarl": (0.2, 0.2, UNTUNED),
}

ROWS = (*ALONE, *with_id(ALONE, IDEMPOTENT, lr=0.03), row("er+id-paper", PAPER, er_id_of_the_paper(0.5)))
BENCHMARK = Benchmark(__doc__, (500, 2000), BASE, ROWS)
