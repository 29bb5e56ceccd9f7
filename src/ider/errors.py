"""The two ways to fail: a user's mistake (exit code 2, one clear line) and a run that went wrong (exit code 1)."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """The input is wrong: the message names the field, the value and what is allowed."""


class RunError(RuntimeError):
    """The run failed although the input was well-formed: the loss diverged, the disk is full, a worker died."""


def unknown(what: str, value: object, allowed: Iterable[str]) -> UserError:
    """An error for a name that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UserError(f"unknown {what} {value!r}{hint} (allowed: {', '.join(names)})")
