"""Checks that a method uses what it asks for: every draw, teacher, coin, stored field and module costs something."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from ider.contract.stage import LATER, PHASES, new_net, stage, total
from ider.contract.words import demand
from ider.protocols import Method
from ider.types import Batch, Outcome

T = TypeVar("T")


def parts(method: Method) -> None:
    """Every part that it asks for matters."""
    here = stage(method, LATER)
    images, views = here.batch.images.rows.requires_grad_(), here.batch.views
    if views is not None:
        views.images.rows.requires_grad_()
    total(here.terms(method)).backward()  # type: ignore[no-untyped-call]
    for name in here.batch.images.sizes:
        used = images.grad is not None and here.batch.images.like(images.grad)[name].any()
        what = "the current images" if name == "current" else f"the draw {name!r}"
        demand(used, f"it asks for {what}, but no term depends on these images: leave the draw out of needs()")
    if views is not None:
        demand(views.images.rows.grad is not None, "it asks for views, but no term depends on them")
    if here.batch.side is not None:
        moved = any(weight.grad is not None for weight in here.batch.side.parameters())
        demand(moved, "it asks for a module beside the net (side), but no term depends on its weights")


def nets(method: Method) -> None:
    """The teacher and the running means matter if it asks for them."""
    here = stage(method, LATER)
    value = total(here.terms(method))
    if here.needs.teacher is not None:
        other = dataclasses.replace(here, teacher=new_net(5, here.needs).frozen(here.needs.teacher.statistics))
        used = not torch.equal(total(other.terms(method)), value)
        demand(used, "it asks for a teacher, but no term depends on it: leave it out of needs()")
    for item in here.needs.averages:
        others = [here.averages | {item.name: new_net(seed, here.needs).averaged()} for seed in range(10, 14)]
        values = [total(dataclasses.replace(here, averages=nets).terms(method)) for nets in others]
        used = item.name == here.needs.predicts or any(not torch.equal(value, other) for other in values)
        demand(used, f"it asks for the average {item.name!r}, but no term depends on it, nor does it predict by it")


def chances(method: Method) -> None:
    """Coins, dice and stored fields matter if it asks for them."""
    needs = method.needs()
    for name in needs.coins:
        demand(_matters(method, name, _coin), f"it asks for a coin for {name!r}, but nothing depends on it")
    for name in needs.dice:
        demand(_matters(method, name, _dice), f"it asks for dice for {name!r}, but nothing depends on them")
    for item in needs.stores:
        used = _matters(method, item.name, _stored)
        demand(used, f"it stores the field {item.name!r}, but nothing depends on it: leave it out of needs().stores")


def second_input(method: Method) -> None:
    """The second input matters if, and only if, it asks for one.

    With a net whose label columns differ, a prior looks the same as with their mean in each column.
    """
    here, even = stage(method, LATER), stage(method, LATER)
    assert even.net.label is not None
    with torch.no_grad():
        even.net.label.weight.copy_(even.net.label.weight.mean(1, keepdim=True).expand_as(even.net.label.weight))
    fed = abs(total(here.terms(method)).item() - total(even.terms(method)).item()) > 1e-5
    asked = here.needs.second_input
    demand(fed or not asked, "needs().second_input is true, but it never feeds an answer back into the net")
    demand(asked or not fed, "it feeds an answer back into the net, but needs().second_input is false: set it to true")


def _matters(method: Method, name: str, change: Callable[[Batch, str, float], Batch]) -> bool:
    """Whether two values of something lead to two outcomes, in the first task or later."""
    for here in (stage(method, PHASES["first task"]), stage(method, LATER)):
        changed = [dataclasses.replace(here, batch=change(here.batch, name, value)) for value in (0.0, 1.0)]
        outcomes = zip(*(_all_of(some.outcome(method)) for some in changed), strict=True)
        if any(not torch.equal(one, other) for one, other in outcomes):
            return True
    return False


def _coin(batch: Batch, name: str, value: float) -> Batch:
    return dataclasses.replace(batch, coins=_with(batch.coins, name, lambda coin: torch.full_like(coin, value)))


def _dice(batch: Batch, name: str, value: float) -> Batch:
    return dataclasses.replace(batch, dice=_with(batch.dice, name, lambda dice: torch.full_like(dice, value)))


def _stored(batch: Batch, name: str, value: float) -> Batch:
    stored = _with(batch.stored, name, lambda parts: parts.like(parts.rows + value))
    return dataclasses.replace(batch, stored=stored)


def _with(held: Mapping[str, T], name: str, change: Callable[[T], T]) -> dict[str, T]:
    """The same with one thing changed, if it is there in this phase."""
    return {known: change(thing) if known == name else thing for known, thing in held.items()}


def _all_of(outcome: Outcome) -> Iterator[Tensor]:
    yield from outcome.terms.values()
    yield from outcome.kept.values()
    yield from (parts.rows for parts in outcome.revised.values())
    yield from outcome.state.values()
