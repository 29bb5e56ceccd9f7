"""All randomness of a run comes from its seed, through one named and independent stream a purpose."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch

from ider.errors import UserError

PURPOSES = ("order", "memory", "replay", "augment", "coins")

Generators = Mapping[str, np.random.Generator]


def generators(seed: int) -> dict[str, np.random.Generator]:
    """A NumPy generator for each purpose of the epoch plan."""
    if not isinstance(seed, Integral) or seed < 0:
        raise UserError(f"seed is {seed!r}; it must be a whole number, at least 0")
    return {purpose: np.random.default_rng([seed, *purpose.encode()]) for purpose in PURPOSES}


def torch_generator(seed: int, purpose: str) -> torch.Generator:
    """A CPU generator of torch, for weights."""
    state = np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> 1))


def states(streams: Generators) -> dict[str, Any]:
    """Where each stream stands, as JSON can hold it."""
    return {purpose: stream.bit_generator.state for purpose, stream in streams.items()}


def restore(streams: Generators, saved: Mapping[str, Any]) -> None:
    """Set each stream to where `states` found it."""
    for purpose, stream in streams.items():
        stream.bit_generator.state = saved[purpose]
