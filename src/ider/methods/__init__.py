"""All methods by name: what a configuration's `method.name` may say, with their default hyper-parameters.

`METHODS` is a dict of ider's own; it also finds methods of installed packages and, once `load_method` has been called,
those in files. `METHODS["my-name"] = MyMethod()` adds one from Python.
"""

from ider.methods.bfp import BFP
from ider.methods.bic import BiC
from ider.methods.cls_er import CLSER
from ider.methods.der import DER
from ider.methods.derpp import DERPP
from ider.methods.er import ER
from ider.methods.er_ace import ERACE
from ider.methods.ewc import EWC
from ider.methods.finetune import Finetune, Joint
from ider.methods.gdumb import GDumb
from ider.methods.icarl import ICaRL
from ider.methods.idempotence import Idempotent
from ider.methods.lucir import LUCIR
from ider.methods.lwf import LwF
from ider.methods.npcl import NPCL
from ider.methods.registry import Registry
from ider.methods.sarl import SARL
from ider.methods.scommer import SCoMMER
from ider.methods.xder import XDER
from ider.protocols import Method

OWN: dict[str, Method] = {
    "finetune": Finetune(),
    "joint": Joint(),
    "lwf": LwF(),
    "ewc": EWC(),
    "gdumb": GDumb(),
    "er": ER(),
    "er-ace": ERACE(),
    "der": DER(),
    "derpp": DERPP(),
    "xder": XDER(),
    "icarl": ICaRL(),
    "bic": BiC(),
    "lucir": LUCIR(),
    "bfp": BFP(),
    "cls-er": CLSER(),
    "scommer": SCoMMER(),
    "sarl": SARL(),
    "npcl": NPCL(),
    "finetune+id": Idempotent(base=Finetune()),
    "er+id": Idempotent(base=ER(mixed=False)),
    "er-ace+id": Idempotent(base=ERACE()),
    "der+id": Idempotent(base=DER()),
    "derpp+id": Idempotent(base=DERPP()),
    "xder+id": Idempotent(base=XDER()),
    "bfp+id": Idempotent(base=BFP(logit_weight=0.0, replay_weight=1.0), teacher_statistics="running"),
    "cls-er+id": Idempotent(base=CLSER(mixed=False)),
    "scommer+id": Idempotent(base=SCoMMER()),
    "sarl+id": Idempotent(base=SARL(), teacher_statistics="running"),
}
METHODS = Registry(OWN)


def load_method(name: str) -> Method:
    """The method in a file of your own, `load_method("my_method.py:MyMethod")`; this runs the file.

    From then on configurations, records and saved learners that name it are understood, in this process.
    """
    return METHODS[METHODS.load(name)]


__all__ = [
    "BFP",
    "CLSER",
    "DER",
    "DERPP",
    "ER",
    "ERACE",
    "EWC",
    "LUCIR",
    "METHODS",
    "NPCL",
    "SARL",
    "XDER",
    "BiC",
    "Finetune",
    "GDumb",
    "ICaRL",
    "Idempotent",
    "Joint",
    "LwF",
    "SCoMMER",
    "load_method",
]
