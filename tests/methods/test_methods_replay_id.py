"""`+id` on the replay methods (spec 6.12 and 6.13): whole steps derived anew, in NumPy and pass by pass.

The second answer to a part has its own cross-entropy; what else the method compares is compared once, from the prior.
"""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import softmax
from support import (
    Array,
    ByHand,
    Witness,
    batch_of,
    ce,
    classes_of,
    terms_of,
    tiny_learner,
    tiny_tasks,
    two_nets,
    values,
)
from torch import Tensor, nn

from ider.methods import BFP, DER, DERPP, ERACE, METHODS, Idempotent
from ider.nets import TwoInputNet, View
from ider.types import CURRENT, Batch, Draw, Field, Needs, Side, Teacher

CLASSES = 5
SIZE = {CURRENT: 7, "recalled": 5, "replay": 6, "projected": 3, "distill": 4}
RIVALS = [3, 4]
"""Of a current image of ER-ACE in a later task: the class of the batch, which is also the task's last, and the next."""


def a_step(name: str, later: bool = True, empty: bool = False) -> Batch:
    """Classes 0 and 1 are past, 2 and 3 current, 4 is to come; the batch holds class 3 alone."""
    needs = METHODS[name].needs()
    draws = [] if empty else [draw.name for draw in needs.draws if later or not draw.later]
    sizes = {part: SIZE[part] for part in (CURRENT, *draws)}
    rng, count = np.random.default_rng(1), sum(sizes.values())
    labels = np.concatenate([np.full(SIZE[CURRENT], 3), rng.integers(0, 4, count - SIZE[CURRENT])])
    stored = {"logits": torch.tensor(rng.normal(size=(count - SIZE[CURRENT], CLASSES)))} if needs.stores else {}
    torch.manual_seed(8)
    features = two_nets(CLASSES)[0].features_out
    return batch_of(
        torch.tensor(rng.normal(size=(count, 1, 6, 6))),
        torch.tensor(labels),
        sizes,
        classes=classes_of(CLASSES, *(([0, 1], [2, 3], 1) if later else ([], [2, 3], 0))),
        stored=stored,
        side=nn.Linear(features, features, dtype=torch.float64) if needs.side else None,
    )


class Derivation:
    """The step of the specification in NumPy: every part goes through the net alone, as often as it is written."""

    def __init__(self, net: TwoInputNet, old: TwoInputNet | None, step: Batch, statistics: str) -> None:
        self.net, self.old = ByHand(net), None if old is None else ByHand(old, statistics)
        self.step = step
        self.x = {name: step.images[name].numpy() for name in step.images.sizes}
        self.y = {name: step.labels[name].numpy() for name in step.labels.sizes}

    def first(self, name: str, net: ByHand | None = None) -> Array:
        net = net or self.net
        return net.head(net.trunk(self.x[name]), net.prior(len(self.x[name])))

    def features(self, name: str, net: ByHand) -> Array:
        return net.features(net.trunk(self.x[name]), net.prior(len(self.x[name])))

    def cross_entropies(self, term: str, name: str, weight: float, among: list[int] | None = None) -> dict[str, float]:
        y1 = self.first(name)
        y2 = self.net.head(self.net.trunk(self.x[name]), softmax(y1, 1))
        chosen = list(range(CLASSES)) if among is None else among
        labels = np.array([chosen.index(label) for label in self.y[name]])
        return {
            f"first/{term}": weight * ce(y1[:, chosen], labels),
            f"second/{term}": weight * ce(y2[:, chosen], labels),
        }

    def fixed_points(self) -> dict[str, float]:
        found = {}
        for name, weight in ((CURRENT, 0.4), ("distill", 0.5)):
            if self.old is not None and name in self.x:
                a1 = self.first(name)
                a2 = self.old.head(self.old.trunk(self.x[name]), softmax(a1, 1))
                found[f"fixed_point/{name}"] = weight * float(((a1 - a2) ** 2).mean())
        return found

    def recalled(self, weight: float) -> dict[str, float]:
        gap = self.first("recalled") - self.step.stored["logits"]["recalled"].numpy()
        return {"recalled": weight * float((gap**2).mean())}

    def projected(self) -> dict[str, float]:
        assert self.step.side is not None
        A, b = (weight.detach().numpy() for weight in self.step.side.parameters())
        assert self.old is not None
        parts = [name for name in (CURRENT, "projected") if name in self.x]
        h, h_old = (np.concatenate([self.features(name, net) for name in parts]) for net in (self.net, self.old))
        lengths = np.sqrt(((h @ A.T + b - h_old) ** 2).sum(1))
        return {"features": float(lengths.mean() / np.sqrt(h.shape[1]))}


def derived(name: str, net: TwoInputNet, old: TwoInputNet | None, step: Batch) -> dict[str, float]:
    by_hand = Derivation(net, old, step, "running" if name == "bfp+id" else "batch")
    among = RIVALS if name == "er-ace+id" and old is not None else None
    found = by_hand.cross_entropies("current", CURRENT, 0.5, among) | by_hand.fixed_points()
    if "replay" in step.images:
        weight = {"er-ace+id": 0.5, "derpp+id": 0.25, "bfp+id": 0.5}[name]
        found |= by_hand.cross_entropies("replay", "replay", weight)
    if "recalled" in step.images:
        found |= by_hand.recalled({"der+id": 0.3, "derpp+id": 0.1}[name])
    if name == "bfp+id" and old is not None:
        found |= by_hand.projected()
    return found


NAMES = ["er-ace+id", "der+id", "derpp+id", "bfp+id"]
each = pytest.mark.parametrize("name", NAMES)


def ours(name: str, net: TwoInputNet, old: TwoInputNet | None, step: Batch) -> dict[str, Tensor]:
    need = METHODS[name].needs().teacher
    assert need is not None
    teacher = None if old is None else View(old.frozen(need.statistics), need)
    return terms_of(METHODS[name], View(net), teacher, step)


@pytest.mark.parametrize("empty", [False, True])
@each
def test_a_later_step_is_that_of_the_specification(name: str, empty: bool) -> None:
    net, old = two_nets(CLASSES)
    step = a_step(name, empty=empty)
    expected = derived(name, net, old, step)
    assert values(ours(name, net, old, step)) == pytest.approx(expected, rel=1e-6)
    assert min(expected.values()) > 1e-3
    terms = {
        "er-ace+id": {"first/replay", "second/replay"},
        "der+id": {"recalled"},
        "derpp+id": {"recalled", "first/replay", "second/replay"},
        "bfp+id": {"first/replay", "second/replay"},
    }[name]
    always = {"first/current", "second/current", "fixed_point/current"} | ({"features"} if name == "bfp+id" else set())
    assert set(expected) == always | (set() if empty else terms | {"fixed_point/distill"})


@pytest.mark.parametrize("empty", [False, True])
@each
def test_a_step_of_the_first_task_is_that_of_the_specification(name: str, empty: bool) -> None:
    net, _ = two_nets(CLASSES)
    step = a_step(name, later=False, empty=empty)
    found = values(ours(name, net, None, step))
    assert found == pytest.approx(derived(name, net, None, step), rel=1e-6)
    assert not {"fixed_point/current", "fixed_point/distill", "features"} & set(found)


def pass_by_pass(name: str, net: TwoInputNet, old: TwoInputNet, step: Batch) -> Tensor:
    """The same with torch, nothing shared: L_ice + L_rep-ice + L_ide, and what DER++ or BFP add."""
    old = old.eval() if name == "bfp+id" else old.train()

    def from_prior(some: TwoInputNet, x: Tensor) -> Tensor:
        return some.decode(some.encode(x), torch.full((len(x), CLASSES), 1 / CLASSES, dtype=x.dtype))

    def both(x: Tensor, y: Tensor) -> Tensor:
        y1 = from_prior(net, x)
        return F.cross_entropy(y1, y) + F.cross_entropy(net.decode(net.encode(x), y1.softmax(1)), y)

    def fixed_point(x: Tensor) -> Tensor:
        a1 = from_prior(net, x)
        return F.mse_loss(a1, old.decode(old.encode(x), a1.softmax(1)))

    x, y = ({part: some[part] for part in some.sizes} for some in (step.images, step.labels))
    loss = 0.5 * both(x[CURRENT], y[CURRENT]) + 0.4 * fixed_point(x[CURRENT]) + 0.5 * fixed_point(x["distill"])
    if name == "derpp+id":
        logits = F.mse_loss(from_prior(net, x["recalled"]), step.stored["logits"]["recalled"])
        return loss + 0.5 * 0.5 * both(x["replay"], y["replay"]) + 0.1 * logits
    prior = [torch.full((len(x[part]), CLASSES), 1 / CLASSES, dtype=x[part].dtype) for part in (CURRENT, "projected")]
    images = [x[CURRENT], x["projected"]]
    h = torch.cat([net.features(net.encode(one), u) for one, u in zip(images, prior, strict=True)])
    with torch.no_grad():
        h_old = old.features(old.encode(torch.cat(images)), torch.cat(prior))
    left = step.side(h) - h_old  # type: ignore[misc]
    return loss + 0.5 * both(x["replay"], y["replay"]) + (left.norm(dim=1) / left.shape[1] ** 0.5).mean()


@pytest.mark.parametrize("name", ["derpp+id", "bfp+id"])
def test_the_gradient_is_that_of_the_step_pass_by_pass(name: str) -> None:
    net, old = two_nets(CLASSES)
    apart, step = copy.deepcopy(net), a_step(name)
    other = a_step(name)
    torch.stack(list(ours(name, net, old, step).values())).sum().backward()
    pass_by_pass(name, apart, copy.deepcopy(old), other).backward()
    modules = [(net, apart)] + ([(step.side, other.side)] if step.side is not None else [])
    for mine, theirs in modules:
        for (where, weight), same in zip(mine.named_parameters(), theirs.parameters(), strict=True):
            assert weight.grad is not None, where
            assert weight.grad.any(), where
            torch.testing.assert_close(weight.grad, same.grad, rtol=1e-5, atol=1e-7, msg=where)
    assert (step.side is not None) == (name == "bfp+id")


@each
def test_further_terms_come_once_whatever_the_weight_of_an_answer(name: str) -> None:
    net, old = two_nets(CLASSES)
    method, step = METHODS[name], a_step(name)
    teacher = View(old.frozen(method.needs().teacher.statistics), method.needs().teacher)
    found = [
        values(
            terms_of(
                Idempotent(base=method.base, answer_weight=weight, teacher_statistics=method.teacher_statistics),
                View(net),
                teacher,
                step,
            )
        )
        for weight in (0.5, 1.0)
    ]
    for term, value in found[0].items():
        answer = term.startswith(("first/", "second/"))
        assert found[1][term] == pytest.approx((2 if answer else 1) * value, rel=1e-6), term


@each
def test_without_a_second_input_and_a_fixed_point_it_is_the_method_underneath(name: str) -> None:
    """A net that ignores its second input has one answer, so the halves of two cross-entropies make a whole one."""
    net, old = two_nets(CLASSES)
    with torch.no_grad():
        net.label.weight.zero_()
    base = METHODS[name].base
    plain = Idempotent(
        base=base, current_weight=0.0, memory_weight=0.0, teacher_statistics=METHODS[name].teacher_statistics
    )
    step = a_step(name)
    kept = {part: step.images.sizes[part] for part in step.images.sizes if part != "distill"}
    rows = sum(kept.values())
    step = batch_of(
        step.images.rows[:rows],
        step.labels.rows[:rows],
        kept,
        classes=step.classes,
        stored={field: step.stored[field].rows[: rows - SIZE[CURRENT]] for field in step.stored},
        side=step.side,
    )
    teacher = View(old.frozen("running"), Teacher(statistics="running"))
    whole, halves = (values(terms_of(one, View(net), teacher, step)) for one in (base, plain))
    joined: dict[str, float] = {}
    for term, value in halves.items():
        name = term.removeprefix("first/").removeprefix("second/")
        joined[name] = joined.get(name, 0.0) + value
    assert joined == pytest.approx(whole, rel=1e-6)


LOGITS = (Field("logits", per_class=True),)
EARLIER = {"recalled": Draw("recalled"), "replay": Draw("replay"), "distill": Draw("distill", later=True)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "er-ace+id",
            Needs((Draw("replay", later=True), EARLIER["distill"]), Teacher(), disjoint=True, second_input=True),
        ),
        ("der+id", Needs((EARLIER["recalled"], EARLIER["distill"]), Teacher(), stores=LOGITS, second_input=True)),
        ("derpp+id", Needs(tuple(EARLIER.values()), Teacher(), stores=LOGITS, second_input=True)),
        (
            "bfp+id",
            Needs(
                (EARLIER["replay"], Draw("projected", later=True), EARLIER["distill"]),
                Teacher(statistics="running"),
                side=Side(0.1, 0.9),
                second_input=True,
                policy="class-balanced",
            ),
        ),
    ],
)
def test_what_they_ask_for(name: str, expected: Needs) -> None:
    assert METHODS[name].needs() == expected


def test_the_combinations_are_the_methods_with_their_weights() -> None:
    assert METHODS["er-ace+id"] == Idempotent(base=ERACE())
    assert METHODS["der+id"] == Idempotent(base=DER(logit_weight=0.3))
    assert METHODS["derpp+id"] == Idempotent(base=DERPP(logit_weight=0.1, replay_weight=0.5))
    base = BFP(logit_weight=0.0, replay_weight=1.0, feature_weight=1.0, projection_lr=0.1, projection_momentum=0.9)
    assert METHODS["bfp+id"] == Idempotent(base=base, teacher_statistics="running")


def test_the_teacher_of_bfp_id_is_in_eval_mode_from_the_first_step_of_a_task() -> None:
    witness = Witness(METHODS["bfp+id"])
    learner = tiny_learner(witness)
    for task in tiny_tasks(2):
        learner.learn(task)
    teachers: list[Any] = [sight.teacher for sight in witness.seen]
    assert teachers[:8] == [None] * 8
    assert not any(module.training for teacher in teachers[8:] for module in teacher.modules())
    assert "logits" not in learner.memory.fields
