"""BiC: weights of both terms, the corrected old net, and the fit of the correction (spec 6.9)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from replay import a_learner, shown, tasks
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from support import Hand, LinearNet, batch_of, classes_of, terms_of

from ider.methods import BiC
from ider.methods.bic import GAIN, OFFSET, OLD_GAIN, OLD_OFFSET
from ider.types import CURRENT, Parts, Samples, Teacher

C, PAST, NEW = 7, (0, 1, 2), (3, 4)
RNG = np.random.default_rng(4)
X, W, OLD = (RNG.normal(size=shape) for shape in ((9, 4), (4, C), (4, C)))
Y = np.array([3, 4, 0, 2, 3, 1, 4, 4, 3])


def state() -> dict[str, torch.Tensor]:
    """The old net's correction is of its last task, class 2; the present one is not looked at."""
    made = {name: values.clone() for name, values in BiC().state({}, C, 4).items()}
    made[OLD_GAIN][2], made[OLD_OFFSET][2] = 0.6, -0.4
    made[GAIN].fill_(9.0)
    return made


@pytest.mark.parametrize("finished", [1, 2, 4])
@pytest.mark.parametrize("temperature", [1.0, 2.0, 3.5])
def test_both_terms_from_the_second_task_on(finished: int, temperature: float) -> None:
    classes = classes_of(C, PAST, NEW, finished)
    batch = batch_of(torch.tensor(X), torch.tensor(Y), {CURRENT: 9}, classes=classes, state=state())
    method = BiC(temperature=temperature)
    terms = terms_of(method, LinearNet(W), LinearNet(OLD), batch)
    old = X @ OLD
    old[:, 2] = 0.6 * old[:, 2] - 0.4
    target, now = softmax(old[:, :3] / temperature, 1), log_softmax((X @ W)[:, :3] / temperature, 1)
    share = 1 / (finished + 1)
    expected = {
        "current": -(1 - share) * log_softmax((X @ W)[:, :5], 1)[np.arange(9), Y].mean(),
        "distill": -share * temperature**2 * (target * now).sum(1).mean(),
    }
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-5)


def test_the_first_task_is_a_cross_entropy_among_its_classes() -> None:
    classes = classes_of(C, (), range(5), 0)
    batch = batch_of(torch.tensor(X), torch.tensor(Y), {CURRENT: 9}, classes=classes, state=state())
    terms = terms_of(BiC(), LinearNet(W), None, batch)
    expected = -log_softmax((X @ W)[:, :5], 1)[np.arange(9), Y].mean()
    assert {name: term.item() for name, term in terms.items()} == {"current": pytest.approx(expected, rel=1e-5)}


def test_what_it_asks_for() -> None:
    needs = BiC(held_out=0.2).needs()
    assert needs.teacher == Teacher(statistics="running")
    assert (needs.memory, needs.policy, needs.learns_from) == ("tasks", "task-quota", "task and memory")
    assert (needs.hold_out, needs.draws, needs.disjoint) == (0.2, (), True)


@pytest.mark.parametrize("times", [1, 2])
def test_from_a_task_s_beginning_only_the_old_net_is_corrected(times: int) -> None:
    """Also if a task was given up before its first step, and another one begun."""
    desk = a_desk()
    BiC(fit_epochs=3, fit_lr=0.01).after_task(desk)
    gain, offset = desk.state[GAIN].clone(), desk.state[OFFSET].clone()
    assert (gain != 1).any()
    for _ in range(times):
        BiC().before_task(desk)
    assert torch.equal(desk.state[OLD_GAIN], gain)
    assert torch.equal(desk.state[OLD_OFFSET], offset)
    assert (desk.state[GAIN] == 1).all()
    assert (desk.state[OFFSET] == 0).all()


class Desk(Hand):
    """Held-out samples whose images are features of a fixed net; two batches an epoch, always the same."""

    net = LinearNet(W)

    def fit(self, samples: Samples, optimiser: torch.optim.Optimizer, epochs: int, loss: Callable[..., Any]) -> None:
        self.calls.append("fit")
        for _ in range(epochs):
            for rows in (slice(0, 5), slice(5, 9)):
                optimiser.zero_grad()
                images = samples.images[rows]
                loss(Parts(images, {CURRENT: len(images)}), samples.labels[rows]).backward()
                optimiser.step()

    def choose(self) -> str:
        return "choice"

    def refill(self, choice: str) -> None:
        self.calls.append(choice)


def a_desk() -> Desk:
    samples = Samples(torch.tensor(X), torch.tensor(Y))
    held = {name: values.clone() for name, values in BiC().state({}, C, 4).items()}
    return Desk(state=held, classes=classes_of(C, PAST, NEW, 1), held_out=samples)


def loss_and_slope(gain: float, offset: float, rows: slice) -> tuple[float, np.ndarray]:
    """Cross-entropy among the classes seen of corrected logits, and its derivatives by gain and offset."""
    z = (X[rows] @ W)[:, :5]
    corrected = z.copy()
    corrected[:, 3:] = gain * corrected[:, 3:] + offset
    labels = Y[rows]
    wrong = softmax(corrected, 1) - np.eye(5)[labels]
    slope = np.array([(wrong[:, 3:] * z[:, 3:]).sum(), wrong[:, 3:].sum()]) / len(labels)
    return -log_softmax(corrected, 1)[np.arange(len(labels)), labels].mean(), slope


def adam(epochs: int, rate: float) -> np.ndarray:
    """Adam from its paper, in double precision."""
    at, m, v, step = np.array([1.0, 0.0]), np.zeros(2), np.zeros(2), 0
    for _ in range(epochs):
        for rows in (slice(0, 5), slice(5, 9)):
            step += 1
            slope = loss_and_slope(*at, rows)[1]
            m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
            at = at - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return at


def test_the_correction_is_fitted_by_adam() -> None:
    desk = a_desk()
    BiC(fit_epochs=30, fit_lr=0.01).after_task(desk)
    assert desk.calls == ["fit", "choice"]
    gain, offset = adam(30, 0.01)
    np.testing.assert_allclose(desk.state[GAIN].numpy(), np.where(np.isin(range(C), NEW), gain, 1), rtol=1e-4)
    np.testing.assert_allclose(desk.state[OFFSET].numpy(), np.where(np.isin(range(C), NEW), offset, 0), rtol=1e-4)
    assert abs(gain - 1) > 0.05
    assert abs(offset) > 0.05


def test_fitted_for_long_it_comes_to_the_best_correction() -> None:
    desk = a_desk()
    BiC(fit_epochs=1500, fit_lr=0.003).after_task(desk)
    everything = slice(0, 9)
    best = minimize(lambda at: loss_and_slope(*at, everything)[0], [1.0, 0.0])
    found = desk.state[GAIN][3].item(), desk.state[OFFSET][3].item()
    assert loss_and_slope(*found, everything)[0] == pytest.approx(best.fun, abs=5e-3)
    assert loss_and_slope(1, 0, everything)[0] > best.fun + 0.05


def test_without_held_out_samples_nothing_is_corrected() -> None:
    desk = a_desk()
    desk.held_out = Samples(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    desk.fit = lambda *_: desk.calls.append("fit")
    BiC().after_task(desk)
    assert (desk.state[GAIN] == 1).all()
    assert (desk.state[OFFSET] == 0).all()


def test_prediction_is_corrected_by_class() -> None:
    held = state()
    held[GAIN][:], held[OFFSET][:] = torch.arange(C), 10.0
    logits = torch.tensor(X @ W)
    found = BiC().predict(logits, logits, held).numpy()
    np.testing.assert_allclose(found, np.arange(C) * (X @ W) + 10, rtol=1e-6)


def test_a_learner_corrects_the_newest_task_alone_and_only_until_the_next_one() -> None:
    learner = a_learner(BiC(held_out=0.5, fit_epochs=20, fit_lr=0.05), size=24)
    first, second, third = tasks(2, 2, 2, each=15)
    images = np.concatenate([task.images for task in tasks(2, 2, 2, each=3, seed=9)])
    learner.learn(first)
    np.testing.assert_allclose(learner.answers(images).first, shown(learner, images)[0], rtol=1e-4, atol=1e-5)
    learner.learn(second)
    gain, offset = (learner.model.state[name].clone() for name in (GAIN, OFFSET))
    corrected = (gain != 1) & (offset != 0)
    assert corrected.tolist() == [False, False, True, True, False, False]
    assert gain[2] == gain[3]
    assert offset[2] == offset[3]
    raw = shown(learner, images)[0]
    expected = np.where(corrected.numpy(), gain.numpy() * raw + offset.numpy(), raw)
    np.testing.assert_allclose(learner.answers(images).first, expected, rtol=1e-4, atol=1e-5)
    steps = learner.learning(third)
    next(steps)
    np.testing.assert_allclose(learner.answers(images).first, shown(learner, images)[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(learner.model.state[OLD_GAIN], gain)
    assert torch.equal(learner.model.state[OLD_OFFSET], offset)
    for _ in steps:
        pass
    assert ((learner.model.state[GAIN] != 1) & (learner.model.state[OFFSET] != 0)).tolist() == [False] * 4 + [True] * 2


def test_the_fit_moves_nothing_but_the_correction() -> None:
    learner = a_learner(BiC(held_out=0.5, fit_epochs=3), size=24)
    first, second = tasks(2, 2, each=15)
    learner.learn(first)
    for _ in learner.learning(second):
        before = {name: values.clone() for name, values in learner.net.state_dict().items()}
    assert (learner.model.state[GAIN][2:4] != 1).all()
    assert learner.net.training
    for name, values in learner.net.state_dict().items():
        assert torch.equal(values, before[name]), name
