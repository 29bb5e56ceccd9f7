"""Read the pickles of CIFAR's Python version without running what a pickle asks for.

A pickle is a program: the default unpickler calls whatever it names. Here only a handful of names have a meaning, and
each stands for a function of this file, made anew for every use: not even NumPy's own constructors are called, and
nothing a pickle does to such a function outlives it. (That also avoids the warning of NumPy 2.4 on old dtypes.)
"""

import pickle
import re
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ider.errors import UserError

PLAIN_DTYPE = re.compile(r"[|<>=]?[biuf][1248]")


def load(file: IO[bytes], where: str) -> dict[str, Any]:
    """The dictionary in a pickle of numbers, strings, lists and plain arrays; `where` names the file in errors."""
    try:
        # Strings of Python 2 are bytes: pixels must not be decoded, and the few texts are decoded by who wants them.
        content = _Restricted(file, encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise UserError(f"{where} is not a readable pickle of CIFAR ({error or type(error).__name__})") from None
    if not isinstance(content, dict):
        raise UserError(f"{where} is not a pickle of CIFAR: it holds a {type(content).__name__}, not a dictionary")
    odd = next((value for value in content.values() if not isinstance(value, DATA)), None)
    if odd is not None:
        raise UserError(f"{where} is not a pickle of CIFAR: a {type(odd).__name__} is no data")
    return {text(key): value.values if isinstance(value, _Array) else value for key, value in content.items()}


def text(value: object) -> str:
    """A string of either Python: bytes or text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class _Dtype:
    """What stands for a NumPy dtype."""

    def __init__(self, code: object) -> None:
        self.code = text(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.code = text(state[1]) + self.code.lstrip("|<>=")

    def plain(self) -> np.dtype[Any]:
        if not PLAIN_DTYPE.fullmatch(self.code):
            raise pickle.UnpicklingError(f"an array of dtype {self.code!r}")
        return np.dtype(self.code)


class _Array:
    """What stands for a NumPy array; the pickle gives its content afterwards, as state."""

    values: NDArray[Any] = np.zeros(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self.fill(raw, dtype, shape, "F" if fortran else "C")

    def fill(self, raw: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str) -> "_Array":
        flat = np.frombuffer(raw, dtype.plain())
        self.values = flat.reshape(shape, order="F" if order == "F" else "C")
        return self


DATA = (_Array, list, tuple, int, float, bytes, str, type(None))


def _encode(value: str, codec: str = "latin1") -> bytes:
    if codec not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the codec {codec!r}")
    return value.encode("latin1")


MEANINGS: dict[str, Callable[[], object]] = {
    "numpy.ndarray": lambda: None,  # only ever an argument of _reconstruct
    "numpy.dtype": lambda: lambda code, align=False, copy=True: _Dtype(code),
    "multiarray._reconstruct": lambda: lambda kind, shape, dtype: _Array(),
    "numeric._frombuffer": lambda: lambda raw, dtype, shape, order, *axes: _Array().fill(raw, dtype, shape, order),
    "__builtin__.bytes": lambda: lambda: b"",  # how Python 3 writes no bytes for Python 2
    "_codecs.encode": lambda: lambda value, codec="latin1": _encode(value, codec),
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name; NumPy 2 moved `numpy.core` to `numpy._core`."""
        short = re.sub(r"^numpy\._?core\.(multiarray|numeric)$", r"\1", module)
        if f"{short}.{name}" not in MEANINGS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not data")
        return MEANINGS[f"{short}.{name}"]()
