"""Where the arithmetic runs: `auto` made definite, and the precision of a forward pass."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from ider.config import EngineConfig
from ider.errors import UserError


def resolve(config: EngineConfig, workers: int = 1) -> EngineConfig:
    """The same engine with every automatic choice made; `workers` runs share this machine's cores."""
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("engine.device is cuda, but torch finds no GPU here; use cpu or auto")
    precision = config.precision
    if precision == "auto":
        precision = "bf16" if device == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    threads = config.threads or max(1, (os.cpu_count() or 1) // workers)
    return replace(config, device=device, precision=precision, threads=threads)


def casting(config: EngineConfig) -> AbstractContextManager[object]:
    """The context of every forward pass: automatic mixed precision for bf16, nothing for fp32."""
    if config.precision == "bf16":
        return torch.autocast(config.device, torch.bfloat16)
    return nullcontext()
