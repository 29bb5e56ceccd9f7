"""ider: reliable class-incremental learning with idempotent experience replay."""

import gc

# A collection among torch's objects in the midst of this would take as long as all of it, and find nothing.
_collecting = gc.isenabled()
gc.disable()
try:
    from ider.config import LearnerConfig, RunConfig
    from ider.engine.learner import Learner
    from ider.errors import RunError, UserError
    from ider.methods import METHODS
    from ider.recipes import recipe
    from ider.streams import Stream, Task, gcil, split
    from ider.version import __version__
finally:
    if _collecting:
        gc.enable()


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
