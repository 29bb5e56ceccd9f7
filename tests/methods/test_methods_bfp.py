"""BFP: whose logits and features each term compares (spec 6.11), and how the projection moves, against NumPy."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from support import (
    ByHand,
    LinearNet,
    Sight,
    Witness,
    batch_of,
    ce,
    terms_of,
    tiny_learner,
    tiny_tasks,
    two_nets,
    values,
)
from torch import nn

from ider.methods import BFP, DERPP
from ider.nets import View
from ider.types import CURRENT, Draw, Field, Needs, Side, Teacher

CLASSES, FEATURES, PIXELS = 4, 3, 6
RNG = np.random.default_rng(11)
NEW, OLD = ({"head": RNG.normal(size=(FEATURES, CLASSES)), "body": RNG.normal(size=(PIXELS, FEATURES))} for _ in "ab")
X, Y, STORED = RNG.normal(size=(18, PIXELS)), RNG.integers(0, CLASSES, 18), RNG.normal(size=(12, CLASSES))
SIZES = {CURRENT: 6, "recalled": 5, "replay": 4, "projected": 3}
ROWS = {CURRENT: slice(0, 6), "recalled": slice(6, 11), "replay": slice(11, 15), "projected": slice(15, 18)}


def a_side() -> nn.Linear:
    torch.manual_seed(4)
    return nn.Linear(FEATURES, FEATURES, dtype=torch.float64)


def a_batch(side: nn.Module | None, **sizes: int):
    rows = np.concatenate([np.arange(18)[ROWS[name]] for name in sizes])
    stored = {"logits": torch.tensor(STORED[: len(rows) - sizes[CURRENT]])}
    return batch_of(torch.tensor(X[rows]), torch.tensor(Y[rows]), sizes, stored=stored, side=side)


def logits(net: dict[str, np.ndarray], name: str) -> np.ndarray:
    return X[ROWS[name]] @ net["body"] @ net["head"]


def distance(side: nn.Linear, *names: str) -> float:
    """Row by row: how far the projected feature is from the old one."""
    A, b = side.weight.detach().numpy(), side.bias.detach().numpy()
    lengths = []
    for name in names:
        for x in X[ROWS[name]]:
            left = A @ (x @ NEW["body"]) + b - x @ OLD["body"]
            lengths.append(math.sqrt(sum(value**2 for value in left)))
    return sum(lengths) / len(lengths) / math.sqrt(FEATURES)


def test_in_the_first_task_it_is_derpp() -> None:
    sizes = {name: SIZES[name] for name in (CURRENT, "recalled", "replay")}
    step = a_batch(a_side(), **sizes)
    bfp = BFP(logit_weight=0.3, replay_weight=0.7)
    same = DERPP(logit_weight=0.3, replay_weight=0.7)
    assert values(terms_of(bfp, LinearNet(**NEW), None, step)) == values(terms_of(same, LinearNet(**NEW), None, step))


def test_from_the_second_task_on_the_old_net_answers_for_the_same_views() -> None:
    side, old = a_side(), LinearNet(**OLD, teaches=True)
    method = BFP(logit_weight=0.3, replay_weight=0.7, feature_weight=2.0)
    terms = terms_of(method, LinearNet(**NEW), old, a_batch(side, **SIZES))
    gap = logits(NEW, "recalled") - logits(OLD, "recalled")
    assert values(terms) == pytest.approx(
        {
            "current": ce(logits(NEW, CURRENT), Y[ROWS[CURRENT]]),
            "replay": 0.7 * ce(logits(NEW, "replay"), Y[ROWS["replay"]]),
            "recalled": 0.3 * float((gap**2).sum() / gap.size),
            "features": 2.0 * distance(side, CURRENT, "projected"),
        },
        rel=1e-6,
    )
    assert old.seen == [{name: SIZES[name] for name in (CURRENT, "recalled", "projected")}]


def test_stored_logits_count_in_the_first_task_only() -> None:
    step, other = a_batch(a_side(), **SIZES), a_batch(a_side(), **SIZES)
    other.stored["logits"].rows.add_(1)
    later = [values(terms_of(BFP(), LinearNet(**NEW), LinearNet(**OLD, teaches=True), one)) for one in (step, other)]
    first = [values(terms_of(BFP(), LinearNet(**NEW), None, one)) for one in (step, other)]
    assert later[0] == later[1]
    assert first[0]["recalled"] != first[1]["recalled"]


def test_the_distance_by_hand() -> None:
    """What is left is (3, 0, 4, 0) and (0, 0, 0, 2): the mean of 5 and 2, by the root of 4 dimensions."""
    side = nn.Linear(4, 4, dtype=torch.float64)
    with torch.no_grad():
        side.weight.copy_(2 * torch.eye(4))
        side.bias.copy_(torch.tensor([1.0, 0, 0, 0]))
    x = torch.tensor([[2.0, 0, 4, 0], [-1, 0, 0, 2]], dtype=torch.float64)
    step = batch_of(x, torch.tensor([0, 1]), {CURRENT: 1, "projected": 1}, side=side)
    old = LinearNet(np.eye(4), teaches=True)
    assert terms_of(BFP(), LinearNet(np.eye(4)), old, step)["features"].item() == pytest.approx((5 + 2) / 2 / 2)


def test_an_empty_memory_leaves_the_features_of_current_images() -> None:
    side = a_side()
    terms = terms_of(BFP(), LinearNet(**NEW), LinearNet(**OLD, teaches=True), a_batch(side, current=6))
    assert values(terms) == pytest.approx(
        {"current": ce(logits(NEW, CURRENT), Y[:6]), "features": distance(side, CURRENT)}, rel=1e-6
    )


STORES, TEACHER, SIDE = (Field("logits", per_class=True),), Teacher(statistics="running"), Side(0.1, 0.9)
FIRST = (Draw("recalled"), Draw("replay"))
LAST = Draw("projected", later=True)


@pytest.mark.parametrize(
    ("weights", "needs"),
    [
        ({}, Needs(draws=(*FIRST, LAST), stores=STORES, teacher=TEACHER, side=SIDE)),
        ({"logit_weight": 0.0}, Needs(draws=(FIRST[1], LAST), teacher=TEACHER, side=SIDE)),
        ({"replay_weight": 0.0}, Needs(draws=(FIRST[0], LAST), stores=STORES, teacher=TEACHER, side=SIDE)),
        ({"feature_weight": 0.0}, Needs(draws=FIRST, stores=STORES, teacher=TEACHER)),
        ({"feature_weight": 0.0, "logit_weight": 0.0}, Needs(draws=(FIRST[1],))),
        (
            {"projection_lr": 0.2, "projection_momentum": 0.5},
            Needs((*FIRST, LAST), TEACHER, stores=STORES, side=Side(0.2, 0.5)),
        ),
    ],
)
def test_what_weighs_nothing_is_not_asked_for_and_its_term_is_absent(weights: dict[str, float], needs: Needs) -> None:
    method = BFP(**weights)
    assert method.needs() == dataclasses.replace(needs, policy="class-balanced")
    sizes = {CURRENT: 6} | {draw.name: SIZES[draw.name] for draw in needs.draws}
    # The teacher is there even if it is not asked for: +id may have done so.
    found = method.step(LinearNet(**NEW), LinearNet(**OLD, teaches=True), a_batch(a_side(), **sizes))
    whole = values(terms_of(BFP(), LinearNet(**NEW), LinearNet(**OLD, teaches=True), a_batch(a_side(), **SIZES)))
    gone = {name.split("_")[0] for name, weight in weights.items() if not weight}
    names = {"logit": "recalled", "replay": "replay", "feature": "features"}
    left = {name: value for name, value in whole.items() if name not in {names[word] for word in gone}}
    assert values(dict(found.terms)) == pytest.approx(left)
    assert set(found.kept) == {item.name for item in needs.stores}


def on_real_nets(statistics: str = "running"):
    net, old = two_nets(CLASSES)
    frozen = old.frozen(statistics)
    rng = np.random.default_rng(2)
    torch.manual_seed(6)
    side = nn.Linear(net.features_out, net.features_out, dtype=torch.float64)
    images, labels = torch.tensor(rng.normal(size=(18, 1, 6, 6))), torch.tensor(rng.integers(0, CLASSES, 18))
    stored = {"logits": torch.zeros(12, CLASSES, dtype=torch.float64)}
    step = batch_of(images, labels, SIZES, stored=stored, side=side)
    return net, frozen, step


def test_on_a_net_with_normalisation_against_numpy() -> None:
    """The net normalises each part by itself, the old one by its running statistics."""
    net, frozen, step = on_real_nets()
    terms = values(terms_of(BFP(), View(net), View(frozen, TEACHER), step))
    new, old = ByHand(net), ByHand(frozen, "running")
    x = {name: step.images[name].numpy() for name in SIZES}
    prior = {name: new.prior(size) for name, size in SIZES.items()}
    logits = {name: new.head(new.trunk(x[name]), prior[name]) for name in SIZES}
    gap = logits["recalled"] - old.head(old.trunk(x["recalled"]), prior["recalled"])
    h, h_old = (
        np.concatenate([one.features(one.trunk(x[name]), prior[name]) for name in (CURRENT, "projected")])
        for one in (new, old)
    )
    A, b = (weight.detach().numpy() for weight in step.side.parameters())
    left = h @ A.T + b - h_old
    assert terms == pytest.approx(
        {
            "current": ce(logits[CURRENT], step.labels[CURRENT].numpy()),
            "replay": 0.5 * ce(logits["replay"], step.labels["replay"].numpy()),
            "recalled": 0.1 * float((gap**2).mean()),
            "features": float(np.sqrt((left**2).sum(1)).mean() / np.sqrt(h.shape[1])),
        },
        rel=1e-6,
    )


def test_the_teacher_gets_no_gradient_and_does_not_move_but_the_net_and_the_projection_do() -> None:
    net, frozen, step = on_real_nets()
    before = {name: value.clone() for name, value in frozen.state_dict().items()}
    terms = terms_of(BFP(), View(net), View(frozen, TEACHER), step)
    (terms["features"] + terms["recalled"]).backward()
    assert all(weight.grad is None for weight in frozen.parameters())
    assert all(torch.equal(value, before[name]) for name, value in frozen.state_dict().items())
    assert all(weight.grad is not None and weight.grad.any() for weight in step.side.parameters())
    assert net.lower[0].conv.weight.grad.any()


@pytest.mark.parametrize("same", [True, False])
def test_the_identity_projects_a_net_onto_itself_if_both_normalise_alike(same: bool) -> None:
    net, _, step = on_real_nets()
    with torch.no_grad():
        step.side.weight.copy_(torch.eye(net.features_out))
        step.side.bias.zero_()
        net.decode(net.encode(torch.randn(20, 1, 6, 6, dtype=torch.float64)))
    frozen = net.frozen("running")
    found = terms_of(BFP(), View(net.train(not same)), View(frozen, TEACHER), step)["features"].item()
    assert found == pytest.approx(0, abs=1e-12) if same else found > 0.01


def projection_gradient(sight: Sight) -> tuple[np.ndarray, np.ndarray]:
    """Of the mean length of what is left, by the root of the dimension, by hand: unit vectors times features."""
    names = [name for name in (CURRENT, "projected") if name in sight.batch.images.sizes]
    features = []
    for net in (sight.net, sight.teacher):
        with torch.no_grad():
            parts = [net.features(net.encode(sight.batch.images[name])) for name in names]
        features.append(torch.cat(parts).double().numpy())
    h, h_old = features
    A, b = (weight.detach().double().numpy() for weight in sight.side.parameters())
    left = h @ A.T + b - h_old
    units = left / np.linalg.norm(left, axis=1, keepdims=True) / len(h) / np.sqrt(h.shape[1])
    return units.T @ h, units.sum(0)


def test_the_projection_moves_by_an_sgd_of_its_own_that_begins_anew_with_each_task() -> None:
    """v <- 0.5 v + g, A <- A - 0.2 v: whatever the net's learning rate, which falls half way."""
    witness = Witness(BFP(projection_lr=0.2, projection_momentum=0.5))
    learner = tiny_learner(witness, classes=6, milestones=(0.5,), decay=0.01)
    fresh = []
    for number, task in enumerate(tiny_tasks(3)):
        witness.seen.clear()
        after = [copy.deepcopy(learner.model.side.state_dict()) for _ in learner.learning(task)]
        start = [weight.detach().double().numpy() for weight in witness.seen[0].side.parameters()]
        fresh.append(start[0])
        if number == 0:
            assert all(torch.equal(after[-1][name], value) for name, value in witness.seen[0].side.state_dict().items())
            continue
        now, speed = start, [np.zeros_like(one) for one in start]
        for sight, found in zip(witness.seen, after, strict=True):
            speed = [0.5 * v + g for v, g in zip(speed, projection_gradient(sight), strict=True)]
            now = [one - 0.2 * v for one, v in zip(now, speed, strict=True)]
            for mine, theirs in zip(now, found.values(), strict=True):
                np.testing.assert_allclose(theirs.numpy(), mine, rtol=1e-3, atol=1e-5)
        assert np.abs(now[0] - start[0]).max() > 0.01
    bound = learner.net.features_out**-0.5
    for one in fresh:
        assert np.abs(one).max() <= bound
        assert np.abs(one).mean() == pytest.approx(bound / 2, rel=0.05)
    assert len({one.tobytes() for one in fresh}) == 3


def test_the_old_net_is_that_of_the_task_before_in_eval_mode() -> None:
    witness = Witness(BFP())
    learner = tiny_learner(witness).learn(tiny_tasks(1)[0])
    before = copy.deepcopy(learner.net.state_dict())
    assert all(sight.teacher is None for sight in witness.seen)
    witness.seen.clear()
    learner.learn(tiny_tasks(2)[1])
    for sight in witness.seen:
        assert not any(module.training for module in sight.teacher.modules())
        assert all(torch.equal(value, before[name]) for name, value in sight.teacher.state_dict().items())
        assert set(sight.batch.images.sizes) == set(SIZES)
    slots = [[sight.batch.slots[name].tolist() for sight in witness.seen] for name in list(SIZES)[1:]]
    assert slots[0] != slots[1] != slots[2] != slots[0]


def test_it_gives_the_projection_the_width_of_the_features() -> None:
    side = BFP().side(classes=7, features=5, tasks=1)
    assert [tuple(weight.shape) for weight in side.parameters()] == [(5, 5), (5,)]
