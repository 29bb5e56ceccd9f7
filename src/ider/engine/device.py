"""Where the arithmetic runs: `auto` made definite, and the precision of a forward pass."""

import os
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace

import torch

from ider.config import EngineConfig
from ider.errors import UserError

AT_ONCE_ON_A_GPU = 5


def resolve(config: EngineConfig, runs: int = 1) -> EngineConfig:
    """The same engine with every automatic choice made, for so many `runs` on this machine."""
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("engine.device is cuda, but torch finds no GPU here; use cpu or auto")
    precision = config.precision
    if precision == "auto":
        precision = "bf16" if device == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    capture = config.capture
    if capture == "auto":
        capture = "graph" if device == "cuda" else "off"
    if capture == "graph" and device != "cuda":
        raise UserError("engine.capture is graph, but only a GPU records graphs; use auto, off or compile")
    cores = os.cpu_count() or 1
    at_once = min(runs, config.at_once or (AT_ONCE_ON_A_GPU if device == "cuda" else cores))
    threads = config.threads or max(1, cores // at_once)
    return replace(config, device=device, precision=precision, capture=capture, at_once=at_once, threads=threads)


def settle() -> None:
    """Wait until the GPU, if one is in use, has done all that it was given; what went wrong there is known already."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        with suppress(RuntimeError):
            torch.cuda.synchronize()


def device_name(config: EngineConfig) -> str:
    """What the arithmetic runs on, for the record."""
    return torch.cuda.get_device_name() if config.device == "cuda" else f"cpu ({config.threads} threads)"


def compute_dtype(config: EngineConfig) -> torch.dtype:
    """What convolutions and matrix products are computed in."""
    return torch.bfloat16 if config.precision == "bf16" else torch.float32


def casting(config: EngineConfig) -> AbstractContextManager[object]:
    """The context of every forward pass: automatic mixed precision for bf16, nothing for fp32."""
    if config.precision == "bf16":
        return torch.autocast(config.device, torch.bfloat16)
    return nullcontext()
