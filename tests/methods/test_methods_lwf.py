"""LwF: among which classes it compares what, how soft, and how that is scaled; against loops and numbers by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax
from support import (
    ByHand,
    LinearNet,
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

from ider.methods import LwF
from ider.nets import View
from ider.types import CURRENT, Needs, Teacher

CLASSES = 6
RNG = np.random.default_rng(13)
NEW, OLD = (RNG.normal(size=(CLASSES, CLASSES)) for _ in range(2))
X = RNG.normal(size=(7, CLASSES))
LATER = classes_of(CLASSES, [0, 1, 2], [3, 4], 1)
LABELS = np.array([3, 4, 4, 3, 3, 4, 3])


def a_batch(x=X, labels=LABELS, classes=LATER):
    return batch_of(torch.as_tensor(x), torch.tensor(labels), {CURRENT: len(x)}, classes=classes)


def published(new: np.ndarray, old: np.ndarray, temperature: float) -> float:
    """As published: the roots of the probabilities among the past classes, normalised again; no other factor."""
    soft = [softmax(logits[:, :3], 1) ** (1 / temperature) for logits in (new, old)]
    q, p = (one / one.sum(1, keepdims=True) for one in soft)
    return float(-np.mean(np.sum(p * np.log(q), 1)))


def test_in_the_first_task_it_is_a_cross_entropy_among_its_classes() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2, 0])
    terms = terms_of(LwF(), LinearNet(NEW), None, a_batch(labels=labels, classes=classes_of(CLASSES, [], [0, 1, 2], 0)))
    assert values(terms) == {"current": pytest.approx(ce((X @ NEW)[:, :3], labels), rel=1e-6)}


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_later_the_old_net_says_what_past_classes_should_look_like(temperature: float) -> None:
    method = LwF(distill_weight=0.7, temperature=temperature)
    terms = terms_of(method, LinearNet(NEW), LinearNet(OLD, teaches=True), a_batch())
    expected = {"current": ce((X @ NEW)[:, :5], LABELS), "distill": 0.7 * published(X @ NEW, X @ OLD, temperature)}
    assert values(terms) == pytest.approx(expected, rel=1e-6)


def test_the_distillation_by_hand() -> None:
    """Halved, (0, 2 ln 3) is (0, ln 3), of which the softmax is (1/4, 3/4); the answer's is (1/2, 1/2)."""
    x = np.eye(4)[:1]
    old, new = np.zeros((4, 4)), np.zeros((4, 4))
    old[0], new[0] = [0, 2 * math.log(3), 9, -9], [5, 5, -1, 3]
    classes = classes_of(4, [0, 1], [2], 1)
    step = a_batch(x, np.array([2]), classes)
    terms = terms_of(LwF(distill_weight=0.5), LinearNet(new), LinearNet(old, teaches=True), step)
    assert terms["distill"].item() == pytest.approx(0.5 * math.log(2))
    assert terms["current"].item() == pytest.approx(math.log(1 + 2 * math.exp(6)))


def test_the_gradient_is_the_gap_of_the_softened_softmaxes_by_the_temperature() -> None:
    """Not multiplied by the temperature's square; nothing for classes that are not past."""
    x = torch.tensor(X, requires_grad=True)
    term = terms_of(LwF(temperature=2.0), LinearNet(np.eye(6)), LinearNet(OLD, teaches=True), a_batch(x))["distill"]
    term.backward()
    q, p = softmax(X[:, :3] / 2, 1), softmax((X @ OLD)[:, :3] / 2, 1)
    expected = np.zeros_like(X)
    expected[:, :3] = (q - p) / 2 / len(X)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5, atol=1e-8)


def test_on_a_net_with_normalisation_the_old_one_uses_its_running_statistics_and_gets_no_gradient() -> None:
    net, old = two_nets(CLASSES)
    frozen = old.frozen("running")
    before = {name: value.clone() for name, value in frozen.state_dict().items()}
    x = np.random.default_rng(1).normal(size=(7, 1, 6, 6))
    terms = terms_of(LwF(), View(net), View(frozen, Teacher(statistics="running")), a_batch(x))
    new, by_hand = ByHand(net), ByHand(frozen, "running")
    logits = [one.head(one.trunk(x), one.prior(7)) for one in (new, by_hand)]
    expected = {"current": ce(logits[0][:, :5], LABELS), "distill": published(*logits, 2.0)}
    assert values(terms) == pytest.approx(expected, rel=1e-6)
    terms["distill"].backward()
    assert all(weight.grad is None for weight in frozen.parameters())
    assert all(torch.equal(value, before[name]) for name, value in frozen.state_dict().items())
    grad = net.head.weight.grad
    assert grad[:3].any(1).all()
    assert not grad[3:].any()


def test_what_it_asks_for() -> None:
    assert LwF().needs() == Needs(teacher=Teacher(statistics="running"))
    assert LwF(distill_weight=0.0).needs() == Needs()


def test_without_weight_the_old_net_is_not_asked() -> None:
    old = LinearNet(OLD, teaches=True)
    terms = terms_of(LwF(distill_weight=0.0), LinearNet(NEW), old, a_batch())
    assert values(terms) == {"current": pytest.approx(ce((X @ NEW)[:, :5], LABELS), rel=1e-6)}
    assert old.seen == []


def test_it_sees_nothing_but_the_task_and_the_net_as_it_was_at_its_start() -> None:
    witness = Witness(LwF())
    learner = tiny_learner(witness).learn(tiny_tasks(1)[0])
    before = {name: value.clone() for name, value in learner.net.state_dict().items()}
    learner.learn(tiny_tasks(2)[1])
    assert {tuple(sight.batch.images.sizes) for sight in witness.seen} == {(CURRENT,)}
    assert [sight.teacher is None for sight in witness.seen] == 8 * [True] + 8 * [False]
    last = witness.seen[-1].teacher
    assert not last.training
    assert all(torch.equal(value, before[name]) for name, value in last.state_dict().items())
