"""Checks of a step in every phase of training: terms, purity, half precision, staying on the device, what it keeps."""

import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ider.contract.stage import Case, Stage, stage, total
from ider.contract.words import Wrong, at, demand, listed, place, same_names
from ider.protocols import Method
from ider.types import CURRENT

HALF = 0.03
"""bf16 keeps 8 bits; several layers and a small mean of squares lose a few of them."""
_READS = ("item", "meta tensor", "nonzero", "unique", "numpy")


def terms(method: Method, case: Case) -> None:
    """Its terms are named finite scalars that the whole net can learn from, and the teacher does not learn."""
    here = stage(method, case)
    found = here.terms(method)
    demand(found, "there are no terms: a step needs at least one loss")
    for name, term in found.items():
        demand(isinstance(name, str) and name, f"a term is named {name!r}; names are words")
        demand(isinstance(term, Tensor), f"the term {name!r} is a {type(term).__name__}, not a tensor")
        demand(term.shape == (), f"the term {name!r} has the shape {tuple(term.shape)}; take its mean or its sum")
        demand(term.dtype == torch.float32, f"the term {name!r} is of {term.dtype}; compute it in float32 (x.float())")
        demand(term.isfinite(), f"the term {name!r} is {term.item()}; look for a division by nothing or a log of zero")
        demand(term.requires_grad, f"the term {name!r} does not depend on the net: is it detached, or a constant?")
    total(found).backward()  # type: ignore[no-untyped-call]
    weights = dict(here.net.named_parameters())
    without = [name for name, weight in weights.items() if weight.grad is None]
    demand(not without, f"no gradient reaches {len(without)} of the net's weights, such as {listed(without[:1])}")
    broken = [name for name, weight in weights.items() if weight.grad is not None and not weight.grad.isfinite().all()]
    demand(not broken, f"the gradient of {listed(broken[:1])} is not finite; look for the root or norm of a zero")
    for net, who in ((here.teacher, "teacher"), *((net, f"average {name!r}") for name, net in here.averages.items())):
        learns = [name for name, weight in net.named_parameters() if weight.grad is not None] if net is not None else []
        demand(not learns, f"a gradient reaches the weights of the {who}, such as {learns[:1]}: they must stay frozen")


def purity(method: Method, case: Case) -> None:
    """A step changes nothing that it is given, nor itself, and the same step gives the same again."""
    here = stage(method, case)
    held, before = list(_tensors(here)), [tensor.clone() for _, tensor in _tensors(here)]
    switches, sizes, chance, own = _flags(here), dict(here.batch.images.sizes), _random_states(), repr(method)
    first = here.terms(method)
    for who, now, then in zip(("torch", "NumPy", "Python"), _random_states(), chance, strict=True):
        demand(now == then, f"it draws from {who}'s random generator; ask for coins, dice or noise in needs() instead")
    for (name, now), then in zip(held, before, strict=True):
        demand(torch.equal(now, then), f"it changes {name} in place; work on a new tensor, or return it in the Outcome")
    again = here.terms(method)
    demand(list(first) == list(again), f"the same step gave {list(first)} first, and then {list(again)}")
    for name in first:
        demand(
            torch.equal(first[name], again[name]),
            f"the same step twice gave {first[name].item():g} and {again[name].item():g} for {name!r}; it must be a "
            "function of what it is given (what it counts belongs into state())",
        )
    demand(_flags(here) == switches, "it changes a mode of the net or the teacher (train, tracking or requires_grad)")
    demand(here.batch.images.sizes == sizes, "it changes the sizes of the parts")
    demand(repr(method) == own, f"it changes itself, from {own} to {method!r}")
    demand(torch.is_grad_enabled(), "it leaves gradients switched off")


def half_precision(method: Method, case: Case) -> None:
    """In half precision its terms are the same to three percent."""
    full = stage(method, case).terms(method)
    here = stage(method, case)
    with torch.autocast("cpu", torch.bfloat16):
        half = here.terms(method)
    same_names(half, full, "terms in half precision")
    for name, term in half.items():
        demand(term.dtype == torch.float32, f"in half precision the term {name!r} is of {term.dtype}; use x.float()")
    one, other = total(full).item(), total(half).item()
    demand(
        abs(one - other) <= HALF * abs(one),
        f"the loss is {one:.4g}, but {other:.4g} in half precision; compute with x.float(), as ider.losses does",
    )
    total(half).backward()  # type: ignore[no-untyped-call]
    grads = [weight.grad for weight in here.net.parameters() if weight.grad is not None]
    demand(all(grad.isfinite().all() for grad in grads), "in half precision a gradient is not finite")


def on_device(method: Method, case: Case) -> None:
    """A step never waits for the host: on a GPU it is recorded, so it must not read a value nor make a tensor of one.

    It is run on tensors that have shapes but no values, where reading one is impossible, whatever this machine has.
    """
    stage(method, case).terms(method)  # what is wrong here too has nothing to do with the device
    here = stage(method, case).on_meta()
    try:
        with _Copies(method):
            total(here.terms(method)).backward()  # type: ignore[no-untyped-call]
    except Wrong:
        raise
    except Exception as error:
        text, where = str(error).partition("\n")[0], at(method, error)
        if "device" in text and not any(word in text.lower() for word in _READS):
            raise Wrong(f"it mixes devices{where}: make new tensors on that of the batch (device=x.device)") from error
        raise Wrong(
            f"it reads a value of a tensor, or makes a shape depend on one{where}, which a GPU cannot record: no "
            ".item(), .tolist(), .cpu(), `if tensor`, x[mask]; use torch.where and masks "
            f"[{type(error).__name__}: {text}]"
        ) from error


def bookkeeping(method: Method, case: Case) -> None:
    """What it leaves in the memory and in its own tensors is what it declared, row by row."""
    here = stage(method, case)
    outcome, needs = here.outcome(method), here.needs
    shapes = {item.name: (CURRENT, item.per_class) for item in needs.stores}
    if needs.memory == "steps":
        same_names(outcome.kept, shapes, "Outcome.kept and needs().stores")
    classes = here.net.classes
    for name, values in outcome.kept.items():
        shape = (case.current, classes) if shapes[name][1] else (case.current,)
        demand(values.shape == shape, f"Outcome.kept[{name!r}] has the shape {tuple(values.shape)}, not {shape}")
    for name, parts in outcome.revised.items():
        demand(name in shapes, f"Outcome.revised has {name!r}, which needs().stores does not name")
        for draw, size in parts.sizes.items():
            known = here.batch.images.sizes.get(draw)
            demand(
                draw != CURRENT and known == size, f"Outcome.revised[{name!r}] has {size} rows of {draw!r}, not {known}"
            )
    for name, tensor in outcome.state.items():
        demand(name in here.batch.state, f"Outcome.state has {name!r}, which state() does not make")
        was, new = tuple(here.batch.state[name].shape), tuple(tensor.shape)
        demand(was == new, f"Outcome.state[{name!r}] has the shape {new}, not {was}")


def _tensors(here: Stage) -> Iterator[tuple[str, Tensor]]:
    """Everything a loss may read and must not write (the net's running statistics excepted: they are meant to move)."""
    batch = here.batch
    named: dict[str, Any] = {
        "batch.images": batch.images.rows,
        "batch.labels": batch.labels.rows,
        "batch.classes.past": batch.classes.past,
        "batch.classes.current": batch.classes.current,
        **{f"batch.coins[{name!r}]": coin for name, coin in batch.coins.items()},
        **{f"batch.dice[{name!r}]": dice for name, dice in batch.dice.items()},
        **{f"batch.noise[{name!r}]": noise for name, noise in batch.noise.items()},
        **{f"batch.state[{name!r}]": values for name, values in batch.state.items()},
        **{f"batch.stored[{name!r}]": parts.rows for name, parts in batch.stored.items()},
    }
    if batch.views is not None:
        named["batch.views"] = batch.views.images.rows
    yield from named.items()
    yield from ((f"the net's {name}", weight) for name, weight in here.net.named_parameters())
    if batch.side is not None:
        yield from ((f"the side's {name}", weight) for name, weight in batch.side.named_parameters())
    for which, net in here.averages.items():
        yield from ((f"the {name} of the average {which!r}", weight) for name, weight in net.named_parameters())
    if here.teacher is not None:
        yield from ((f"the teacher's {name}", tensor) for name, tensor in here.teacher.state_dict().items())


def _flags(here: Stage) -> list[tuple[bool, bool, tuple[bool, ...]]]:
    nets = (here.net, *here.averages.values(), *(() if here.teacher is None else (here.teacher,)))
    return [
        (module.training, getattr(module, "tracking", True), tuple(w.requires_grad for w in module.parameters(False)))
        for net in nets
        for module in net.modules()
    ]


def _random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()  # noqa: NPY002


class _Copies(TorchFunctionMode):
    """Within, making a tensor of the device out of Python's numbers is wrong: it waits for the copy."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if function in (torch.tensor, torch.as_tensor, Tensor.new_tensor) and made.is_meta:
            frame = sys._getframe(1)
            raise Wrong(
                f"it copies Python's numbers to the device{place(frame.f_code.co_filename, frame.f_lineno)}, which a "
                "GPU cannot record: use the number itself, torch.full(..., device=...), or a tensor of state()"
            )
        return made
