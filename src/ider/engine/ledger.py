"""How training goes: its place, and the losses of past epochs, which are read when their copies have arrived."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ider.errors import RunError

Entry = dict[str, float]


@dataclass(frozen=True)
class Progress:
    """Where training stands: `step` of `steps` done in `epoch` (from 0) of `epochs`, in `task` (from 0)."""

    task: int
    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float | None
    """The mean loss of the epoch before; reading the running one would hold the device up."""


class Ledger:
    """A list of entries, one an epoch, of which the last may still be on its way from the device."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        self._entries = entries or []
        self._owed: _Owed | None = None

    @property
    def latest(self) -> float | None:
        """The loss of the last epoch that is known."""
        return self._entries[-1]["loss"] if self._entries else None

    def settle(self) -> list[Entry]:
        """All entries, the last one waited for."""
        owed, self._owed = self._owed, None
        if owed is not None:
            self._entries.append(owed.entry())
        return self._entries

    def note(self, place: Mapping[str, int], totals: Mapping[str, Tensor], steps: int) -> None:
        """Take down the sums over an epoch's `steps` and set them to zero; this waits for the epoch before only."""
        self.settle()
        self._owed = _Owed(place, totals, steps)
        for total in totals.values():
            total.zero_()


class _Owed:
    """An entry on its way from the device."""

    def __init__(self, place: Mapping[str, int], totals: Mapping[str, Tensor], steps: int) -> None:
        self.place, self.names, self.steps = place, sorted(totals), steps
        sums = torch.stack([totals[name] for name in self.names])
        self.sums = sums.to("cpu", non_blocking=True)
        self.arrived: torch.cuda.Event | None = None
        if sums.is_cuda:
            self.arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.arrived.record()

    def entry(self) -> Entry:
        """The mean of each loss, which must be a number."""
        if self.arrived is not None:
            self.arrived.synchronize()
        terms = {name: total / self.steps for name, total in zip(self.names, self.sums.tolist(), strict=True)}
        entry = {**self.place, "loss": sum(terms.values()), **terms}
        if not all(map(_is_number, terms.values())):
            raise RunError(
                f"the loss became {entry['loss']} in epoch {self.place['epoch'] + 1} of task {self.place['task'] + 1}, "
                f"{terms}; a smaller train.lr usually helps"
            )
        return entry


def _is_number(value: float) -> bool:
    return abs(value) < float("inf")
