"""ider: reliable class-incremental learning with idempotent experience replay."""

from ider.config import LearnerConfig, RunConfig
from ider.engine.learner import Learner
from ider.errors import RunError, UserError
from ider.methods import METHODS
from ider.recipes import recipe
from ider.streams import Stream, Task, split

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "Learner",
    "LearnerConfig",
    "RunConfig",
    "RunError",
    "Stream",
    "Task",
    "UserError",
    "recipe",
    "split",
]
