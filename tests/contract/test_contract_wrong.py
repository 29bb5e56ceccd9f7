"""Methods that are wrong in one way each: the checks find it, and say what to do."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ider.contract import CHECKS, Finding, check
from ider.losses import cross_entropy
from ider.methods import METHODS
from ider.methods.base import Supervised
from ider.methods.er import REPLAY
from ider.protocols import Net
from ider.types import CURRENT, Answer, Average, Batch, Draw, Field, Needs, Outcome, Parts, Side, Teacher, Terms, Views

SHAPE = "terms are finite scalars that the net learns from"
PURE, DEVICE = "a step is pure", "a step stays on the device"
FORM, SETTINGS = (
    "a frozen dataclass, every field with a default and help",
    "every setting survives the configuration file",
)
KEPT, PARTS, NETS = (
    "what it stores is what it declares",
    "every part that it asks for matters",
    "teacher and averages matter",
)
CHANCES, SECOND = "coins, dice and stored fields matter", "the second input is used if asked for"


@dataclass(frozen=True, kw_only=True)
class Sane(Supervised):
    """The cross-entropy of the current batch; what is wrong below is put around it."""

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        return {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}

    def step(self, net: Net, teacher: Net | None, batch: Batch) -> Outcome:
        outcome = Supervised.step(self, net, teacher, batch)
        return dataclasses.replace(outcome, terms=self.spoilt(dict(outcome.terms), (net, teacher), batch))

    def spoilt(self, terms: Terms, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        return terms


def wrong(method: Any, title: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What one check says; the method is given a name for the while."""
    monkeypatch.setitem(METHODS, "wrong", method)
    findings = {finding.title: finding.wrong for finding in check(method)}
    assert list(findings) == list(CHECKS)
    assert findings[title], findings
    return findings[title]


SPOILT: dict[str, tuple[Any, str, str]] = {
    "nan": (
        lambda terms, nets, batch: {"bad": terms["current"] * float("nan")},
        SHAPE,
        r"the term 'bad' is nan; .* \[phase 'first step': the first task, 5 current rows, 0 rows of each draw\]",
    ),
    "nan later": (
        lambda terms, nets, batch: {"bad": terms["current"] / (0 if nets[1] is None else 1)},
        SHAPE,
        r"the term 'bad' is inf",
    ),
    "not scalar": (
        lambda terms, nets, batch: {"bad": terms["current"] + batch.images.rows.flatten(1).mean(1)},
        SHAPE,
        r"the term 'bad' has the shape \(5,\); take its mean",
    ),
    "a number": (lambda terms, nets, batch: {"bad": 1.0}, SHAPE, r"the term 'bad' is a float, not a tensor"),
    "detached": (
        lambda terms, nets, batch: {"bad": terms["current"].detach()},
        SHAPE,
        r"'bad' does not depend on the net",
    ),
    "double": (lambda terms, nets, batch: {"bad": terms["current"].double()}, SHAPE, r"'bad' is of torch.float64"),
    "none": (lambda terms, nets, batch: {}, SHAPE, r"there are no terms"),
    "torch's chance": (
        lambda terms, nets, batch: {"bad": terms["current"] * torch.rand(())},
        PURE,
        r"torch's random gen",
    ),
    "NumPy's chance": (
        lambda terms, nets, batch: {"bad": terms["current"] * float(np.random.rand())},  # noqa: NPY002
        PURE,
        r"draws from NumPy's random generator; ask for coins",
    ),
    "counts": (
        lambda terms, nets, batch: {"bad": terms["current"] * counted()},
        PURE,
        r"the same step twice gave .* for 'bad'; .*belongs into state\(\)",
    ),
    "in place": (
        lambda terms, nets, batch: {"bad": terms["current"] + 0 * batch.images.rows.mul_(0.5).sum()},
        PURE,
        r"it changes batch.images in place",
    ),
    "labels": (
        lambda terms, nets, batch: {"bad": terms["current"] + 0 * batch.labels.rows.fill_(0).sum()},
        PURE,
        r"it changes batch.labels in place",
    ),
    "item": (
        lambda terms, nets, batch: {"bad": terms["current"] * (2 if terms["current"].item() > 1 else 1)},
        DEVICE,
        r"it reads a value of a tensor.*\(line \d+: lambda terms.*item\(\) > 1.*no \.item\(\)",
    ),
    "if": (
        lambda terms, nets, batch: {"bad": terms["current"] if batch.classes.past.any() else terms["current"] * 2},
        DEVICE,
        r"it reads a value of a tensor",
    ),
    "mask": (
        lambda terms, nets, batch: {"bad": terms["current"] + batch.images.rows[batch.labels.rows > 0].sum()},
        DEVICE,
        r"makes a shape depend on one",
    ),
    "cpu": (lambda terms, nets, batch: {"bad": terms["current"].cpu() + 0}, DEVICE, r"it reads a value of a tensor"),
    "numpy": (
        lambda terms, nets, batch: {"bad": terms["current"] * float(batch.labels.rows.numpy().sum() >= 0)},
        DEVICE,
        r"it reads a value of a tensor",
    ),
    "another device": (
        lambda terms, nets, batch: {
            "bad": terms["current"] + (batch.labels.rows + torch.zeros(5)[: len(batch.labels.rows)]).sum()
        },
        DEVICE,
        r"it mixes devices.*make new tensors on that of the batch",
    ),
    "a copy": (
        lambda terms, nets, batch: {
            "bad": terms["current"] * torch.tensor([0.5], device=batch.labels.rows.device).sum()
        },
        DEVICE,
        r"it copies Python's numbers to the device \(line \d+: .*torch.tensor\(\[0\.5\]",
    ),
}
COUNTER: list[int] = []


def counted() -> int:
    COUNTER.append(0)
    return len(COUNTER)


@pytest.mark.parametrize("how", SPOILT)
def test_a_step_that_is_wrong_is_found(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, title, words = SPOILT[how]

    @dataclass(frozen=True, kw_only=True)
    class Spoilt(Sane):
        """Wrong in one way."""

        def spoilt(self, terms: Terms, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
            return spoil(terms, nets, batch)

    said = wrong(Spoilt(), title, monkeypatch)
    assert re.search(words, said), said


@dataclass(frozen=True, kw_only=True)
class Unfrozen(Sane):
    """Lets the teacher learn."""

    def needs(self) -> Needs:
        return Needs(teacher=Teacher())

    def spoilt(self, terms: Terms, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        if nets[1] is None:
            return terms
        for weight in nets[1].weights().values():
            weight.requires_grad_(True)
        old = nets[1].decode(nets[1].encode(batch.images)).logits.rows
        return terms | {"bad": old.square().mean()}


@dataclass(frozen=True, kw_only=True)
class Idle(Sane):
    """Asks for everything and uses nothing."""

    def needs(self) -> Needs:
        return Needs(
            draws=(Draw(REPLAY), Draw("other", later=True)),
            teacher=Teacher(),
            averages=(Average("mean", 0.9, 0.5),),
            stores=(Field("logits", per_class=True),),
            coins=(CURRENT,),
            second_input=True,
        )

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        return {"logits": first.logits[CURRENT]}


@dataclass(frozen=True, kw_only=True)
class Dicing(Sane):
    """Asks for dice and views and uses neither."""

    def needs(self) -> Needs:
        return Needs(draws=(Draw(REPLAY),), dice=(REPLAY,), views=Views(2, 2, 2))

    def spoilt(self, terms: Terms, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        if REPLAY not in batch.images:
            return terms
        answer = nets[0].decode(nets[0].encode(batch.images.pick(REPLAY))).logits
        return terms | {"replay": cross_entropy(answer[REPLAY], batch.labels[REPLAY])}


@dataclass(frozen=True, kw_only=True)
class Beside(Sane):
    """Asks for a module beside the net and does not use it."""

    def needs(self) -> Needs:
        return Needs(side=Side(0.1))

    def side(self, classes: int, features: int, tasks: int) -> torch.nn.Module:
        return torch.nn.Linear(features, features)


@dataclass(frozen=True, kw_only=True)
class Sideless(Sane):
    """Asks for a module beside the net and makes none."""

    def needs(self) -> Needs:
        return Needs(side=Side(0.1))


@dataclass(frozen=True, kw_only=True)
class Hoarding(Sane):
    """Keeps what it did not declare."""

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        return {"features": first.features[CURRENT]}


@dataclass(frozen=True, kw_only=True)
class Forgetful(Sane):
    """Declares what it does not keep."""

    def needs(self) -> Needs:
        return Needs(stores=(Field("logits", per_class=True),))


@dataclass(frozen=True, kw_only=True)
class Narrow(Sane):
    """Keeps one number where it declared one a class."""

    def needs(self) -> Needs:
        return Needs(stores=(Field("logits", per_class=True),))

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        return {"logits": first.logits[CURRENT].mean(1)}


@dataclass(frozen=True, kw_only=True)
class Secretive(Sane):
    """Feeds answers back without saying so."""

    def spoilt(self, terms: Terms, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        z = nets[0].encode(batch.images)
        first = nets[0].decode(z).logits
        again = nets[0].decode(z, first.like(first.rows.softmax(1))).logits
        return terms | {"again": cross_entropy(again[CURRENT], batch.labels[CURRENT])}


@dataclass(frozen=True, kw_only=True)
class Hasty(Sane):
    """Forgets that a draw is absent while the memory is empty."""

    def needs(self) -> Needs:
        return Needs(draws=(Draw(REPLAY),))

    def spoilt(self, terms: Terms, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        return terms | {"replay": batch.images[REPLAY].sum() + terms["current"]}


@dataclass(frozen=True, kw_only=True)
class Rough(Sane):
    """Computes where half precision has no digits left."""

    def spoilt(self, terms: Terms, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        logits = nets[0].decode(nets[0].encode(batch.images)).logits.rows
        return {"bad": terms["current"] + ((logits + 300) - 300).float().square().mean()}


@dataclass(frozen=True, kw_only=True)
class Silent(Sane):
    """One of its fields has no help."""

    weight: float = 1.0


@dataclass(kw_only=True)
class Soft(Supervised):
    """Not frozen."""

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        return {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}


@dataclass(frozen=True, kw_only=True)
class Listed(Sane):
    """Has a field that can change."""

    weights: list[float] = dataclasses.field(default_factory=list, metadata={"help": "weights"})


@dataclass(frozen=True, kw_only=True)
class Nameless(Sane):
    """Has a field that no file can hold."""

    weights: Any = dataclasses.field(default=None, metadata={"help": "weights"})


@dataclass(frozen=True, kw_only=True)
class Frozen(Sane):
    """Learns the head alone."""

    def step(self, net: Net, teacher: Net | None, batch: Batch) -> Outcome:
        with torch.no_grad():
            z = net.encode(batch.images)
        return Outcome(self.supervised(net.decode(z).logits, batch))


@dataclass(frozen=True, kw_only=True)
class Broken(Sane):
    """Its hook fails."""

    def after_task(self, desk: Any) -> None:
        desk.stored("features")


@dataclass(frozen=True, kw_only=True)
class Restless(Sane):
    """Changes a mode of the net."""

    def spoilt(self, terms: Terms, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        next(iter(nets[0].weights().values())).requires_grad_(False)
        return terms


@dataclass(frozen=True, kw_only=True)
class Leaky(Sane):
    """Replays what is held out."""

    def needs(self) -> Needs:
        return Needs(draws=(Draw(REPLAY),), memory="tasks", hold_out=0.1)


@dataclass(frozen=True, kw_only=True)
class Shifting(Sane):
    """Its epochs go through a memory that changes under it."""

    def needs(self) -> Needs:
        return Needs(learns_from="task and memory")


CASES: list[tuple[Any, str, str]] = [
    (Unfrozen, SHAPE, "a gradient reaches the weights of the teacher, such as ["),
    (Unfrozen, PURE, "it changes a mode of the net or the teacher"),
    (Restless, PURE, "it changes a mode of the net or the teacher"),
    (Idle, PARTS, "it asks for the draw 'replay', but no term depends on these images"),
    (Idle, NETS, "it asks for a teacher, but no term depends on it"),
    (Idle, CHANCES, "it asks for a coin for 'current', but nothing depends on it"),
    (Idle, SECOND, "needs().second_input is true, but it never feeds an answer back"),
    (Dicing, CHANCES, "it asks for dice for 'replay', but nothing depends on them"),
    (Dicing, PARTS, "it asks for views, but no term depends on them"),
    (Beside, PARTS, "it asks for a module beside the net (side), but no term depends on its weights"),
    (Sideless, "needs() is well-formed", "needs() asks for a side, but side() returns None"),
    (Leaky, "needs() is well-formed", "needs().hold_out keeps samples of the memory from training, but steps draw"),
    (Shifting, "needs() is well-formed", "needs().learns_from is 'task and memory', but the memory changes"),
    (Hoarding, KEPT, "Outcome.kept and needs().stores: 'features' is not declared"),
    (Forgetful, KEPT, "Outcome.kept and needs().stores: 'logits' is declared, but missing"),
    (Forgetful, CHANCES, "it stores the field 'logits', but nothing depends on it"),
    (Narrow, KEPT, "Outcome.kept['logits'] has the shape (5,), not (5, 5)"),
    (Secretive, SECOND, "it feeds an answer back into the net, but needs().second_input is false"),
    (Hasty, SHAPE, "it raises KeyError: 'replay' (line "),
    (Rough, "half precision gives the same terms", "compute with x.float()"),
    (Silent, FORM, "the field weight has no help: write weight: ... = option(default, 'what it is')"),
    (Soft, FORM, "it is not frozen: write @dataclass(frozen=True, kw_only=True)"),
    (Listed, FORM, "it cannot be hashed"),
    (Nameless, SETTINGS, "fields are int, float, str, bool, Literal"),
    (Frozen, SHAPE, "no gradient reaches "),
    (Broken, "a learner takes it through two tasks", "it raises KeyError: 'features' (line "),
]


@pytest.mark.parametrize(
    ("kind", "title", "words"), CASES, ids=[f"{case[0].__name__}, {case[1][:20]}" for case in CASES]
)
def test_a_method_that_is_wrong_is_found(kind: Any, title: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words in wrong(kind(), title, monkeypatch)


def test_what_is_around_the_wrong_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "sane", Sane())
    assert [finding for finding in check(Sane()) if finding.wrong] == []


def test_what_has_been_said_is_not_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "hasty", Hasty())
    said = [finding.wrong for finding in check(Hasty()) if finding.wrong]
    assert len(said) > 3
    assert sum("KeyError" in words for words in said) == 1
    assert "as above" in said


def test_a_finding_is_a_title_and_what_is_wrong() -> None:
    assert Finding("a title").wrong == ""
