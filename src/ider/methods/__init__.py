"""All methods by name: what a configuration's `method.name` may say, with their default hyper-parameters."""

from ider.methods.er import ER
from ider.methods.finetune import Finetune, Joint
from ider.methods.idempotence import Idempotent
from ider.protocols import Method

METHODS: dict[str, Method] = {
    "finetune": Finetune(),
    "joint": Joint(),
    "er": ER(),
    "finetune+id": Idempotent(base=Finetune()),
    "er+id": Idempotent(base=ER(mixed=False)),
}

__all__ = ["ER", "METHODS", "Finetune", "Idempotent", "Joint"]
