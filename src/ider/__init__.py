"""ider: reliable class-incremental learning with idempotent experience replay."""

from ider.config import LearnerConfig, RunConfig
from ider.engine.learner import Learner
from ider.errors import RunError, UserError
from ider.methods import METHODS
from ider.recipes import recipe
from ider.streams import Stream, Task, gcil, split
from ider.version import __version__

__all__ = [
    "METHODS",
    "Learner",
    "LearnerConfig",
    "RunConfig",
    "RunError",
    "Stream",
    "Task",
    "UserError",
    "__version__",
    "gcil",
    "recipe",
    "split",
]
