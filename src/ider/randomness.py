"""All randomness of a run comes from its seed, through one named and independent stream a purpose."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    return {purpose: generator(seed, purpose) for purpose in PURPOSES}


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A NumPy generator for one purpose, at its beginning."""
    return np.random.default_rng([seed, *purpose.encode()])


@contextmanager
def torch_seeded(seed: int, purpose: str) -> Iterator[None]:
    """Within, torch draws from the run's seed, on the CPU; the global generator is as before afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch_generator(seed, purpose).get_state())
        yield


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
