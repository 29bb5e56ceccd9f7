"""One file that holds a learner: safetensors, whose header carries the rest as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from ider.errors import RunError, UserError
from ider.records import write_bytes

SCHEMA = 1
Tensors = dict[str, Tensor]


def write(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Replace the file at `path`; a crash leaves the old one or the new one."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"ider": json.dumps({"schema": SCHEMA, **state})}
    try:
        write_bytes(path, safetensors.torch.save(content, header))
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}; the file before it, if any, is untouched") from error


def read(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the state of a file that `write` wrote."""
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    try:
        with safetensors.safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            state = json.loads((file.metadata() or {})["ider"])
    except (safetensors.SafetensorError, KeyError, ValueError, OSError) as error:
        raise UserError(f"{path} is not a learner saved by ider, or it is damaged: {error}") from None
    if state["schema"] != SCHEMA:
        raise UserError(f"{path} has schema {state['schema']}; this version of ider reads schema {SCHEMA}")
    return tensors, state


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """Names under a common prefix."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """The tensors that `prefixed` put under a prefix, by their own names."""
    start = prefix + "/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
