"""LUCIR: all terms by loops, imprinted classes, what learns, and the tuning of the head after a task (spec 6.10)."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from replay import a_learner, shown, tasks
from scipy.special import log_softmax
from support import Hand, batch_of, classes_of, terms_of
from torch import nn

from ider.methods import LUCIR
from ider.nets.heads import CosineHead
from ider.types import CURRENT, Answer, Parts, Samples, Teacher

C, PAST, NEW = 8, (0, 1, 2), (3, 4)
RNG = np.random.default_rng(6)
X = RNG.normal(size=(9, 5))
Y = np.array([3, 4, 0, 2, 3, 1, 4, 0, 3])
W = RNG.normal(size=(C, 5))
TURN = RNG.normal(size=(5, 5))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


class CosineNet:
    """Features are the images, turned by a matrix; a cosine head on them."""

    def __init__(self, turn: np.ndarray, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> None:
        self.turn = torch.tensor(turn, dtype=dtype)
        self.head = CosineHead(torch.tensor(W, dtype=dtype))
        with torch.no_grad():
            self.head.scale.fill_(scale)

    def encode(self, images: Parts) -> Parts:
        return images

    def decode(self, z: Parts, y: Parts | None = None, keep: torch.Tensor | None = None) -> Answer:
        features = z.rows @ self.turn
        return Answer(z.like(self.head(features)), z.like(features))

    def weights(self) -> dict[str, torch.Tensor]:
        return {f"head.{name}": weight for name, weight in self.head.named_parameters()}


def margin(cosines: np.ndarray, labels: np.ndarray, width: float, rivals: int, past: int = 3) -> float:
    """Row by row: the true cosine against the largest among the columns from `past` on."""
    short = []
    for row, label in zip(cosines, labels, strict=True):
        if label < past:
            short += [max(0.0, width - row[label] + other) for other in sorted(row[past:], reverse=True)[:rivals]]
    return float(np.mean(short)) if short else 0.0


def a_batch(finished: int, rows: slice = slice(None)) -> Any:
    labels, classes = torch.tensor(Y[rows]), classes_of(C, PAST if finished else (), NEW, finished)
    return batch_of(torch.tensor(X[rows]), labels, {CURRENT: len(labels)}, classes=classes)


@pytest.mark.parametrize("finished", [1, 2, 4])
@pytest.mark.parametrize("rivals", [1, 2, 4])
def test_all_terms_by_loops(finished: int, rivals: int) -> None:
    method = LUCIR(feature_weight=3.0, margin_weight=0.7, margin=0.6, rivals=rivals)
    terms = terms_of(method, CosineNet(np.eye(5), 2.5), CosineNet(TURN), a_batch(finished))
    cosines = unit(X) @ unit(W).T
    expected = {
        "current": -log_softmax(2.5 * cosines, 1)[np.arange(9), Y].mean(),
        "features": 3.0 * finished**0.5 * np.mean([1 - unit(x) @ unit(x @ TURN) for x in X]),
        "margin": 0.7 * margin(cosines, Y, 0.6, rivals),
    }
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-5)
    assert expected["margin"] > 0


def test_the_first_task_is_a_cross_entropy_over_all_classes() -> None:
    terms = terms_of(LUCIR(), CosineNet(np.eye(5)), None, a_batch(0))
    expected = -log_softmax(unit(X) @ unit(W).T, 1)[np.arange(9), Y].mean()
    assert {name: term.item() for name, term in terms.items()} == {"current": pytest.approx(expected, rel=1e-5)}


def test_without_old_rows_there_is_no_margin_to_keep() -> None:
    terms = terms_of(LUCIR(), CosineNet(np.eye(5)), CosineNet(TURN), a_batch(1, slice(0, 2)))
    assert terms["margin"].item() == 0


def test_fewer_rivals_than_asked_for_are_all_there_are() -> None:
    """The last task brings a single class: one rival, and a mean over that one."""
    classes = classes_of(C, range(7), (7,), 1)
    batch = batch_of(torch.tensor(X), torch.tensor(Y), {CURRENT: 9}, classes=classes)
    batch.images.rows.requires_grad_()
    term = terms_of(LUCIR(), CosineNet(np.eye(5)), CosineNet(TURN), batch)["margin"]
    assert term.item() == pytest.approx(margin(unit(X) @ unit(W).T, Y, 0.5, 1, past=7), rel=1e-5)
    (gradient,) = torch.autograd.grad(term, batch.images.rows)
    assert gradient.isfinite().all()
    assert gradient.any()


def test_the_scale_does_not_matter_to_the_margin() -> None:
    net = CosineNet(np.eye(5), 4.0)
    term = terms_of(LUCIR(), net, CosineNet(TURN), a_batch(1))["margin"]
    term.backward()
    assert term.item() == pytest.approx(margin(unit(X) @ unit(W).T, Y, 0.5, 2), rel=1e-5)
    assert abs(net.head.scale.grad.item()) < 1e-7  # single precision


def test_what_it_asks_for() -> None:
    needs = LUCIR().needs()
    assert needs.teacher == Teacher(statistics="running")
    assert (needs.head, needs.memory, needs.policy, needs.learns_from) == (
        "cosine",
        "tasks",
        "herding",
        "task and memory",
    )
    assert (needs.draws, needs.disjoint) == ((), True)


class Desk(Hand):
    """A head, features of the task's images, and a fit that notes rates and losses."""

    def answers(self, samples: Samples, augmented: bool = False, statistics: str = "running") -> Answer:
        assert (augmented, statistics) == (True, "running")
        parts = Parts(samples.images, {CURRENT: len(samples)})
        return Answer(parts, parts)

    def choose(self) -> str:
        return "choice"

    def refill(self, choice: str) -> None:
        self.calls.append(choice)

    def fit(
        self,
        samples: Samples,
        optimiser: torch.optim.SGD,
        epochs: int,
        loss: Callable[..., Any],
        statistics: str,
        schedule: Any,
    ) -> None:
        self.calls += ["fit", statistics, str(epochs)]
        for _ in range(25):
            (group,) = optimiser.param_groups
            self.rates.append(group["lr"])
            self.momentum, self.moved = group["momentum"], group["params"]
            optimiser.zero_grad()
            value = loss(Parts(samples.images, {CURRENT: len(samples)}), samples.labels)
            self.losses.append(value.item())
            value.backward()
            self.gradients = [None if weight.grad is None else weight.grad.clone() for weight in self.moved]
            optimiser.step()
            schedule.step()


def a_desk(past: tuple[int, ...] = PAST, rows: slice | list[int] = slice(None)) -> Desk:
    net = CosineNet(np.eye(5), 2.0, torch.float32)
    samples = Samples(torch.tensor(X[rows]).float(), torch.tensor(Y[rows]))
    return Desk(
        net=net,
        head=net.head,
        classes=classes_of(C, past, NEW, len(past)),
        task=samples,
        remembered=lambda: samples,
        rates=[],
        losses=[],
    )


def test_new_classes_begin_as_their_mean_direction_at_the_mean_length_of_the_past() -> None:
    new = [row for row, label in enumerate(Y) if label in NEW]
    desk = a_desk(rows=new)
    before = desk.head.weight.detach().clone()
    LUCIR().before_task(desk)
    weight = desk.head.weight.detach().numpy()
    length = np.mean([np.linalg.norm(W[c]) for c in PAST])
    for c in NEW:
        mean = np.mean([unit(X[row]) for row in new if Y[row] == c], axis=0)
        np.testing.assert_allclose(weight[c], length * unit(mean), rtol=1e-5)
        assert np.linalg.norm(weight[c]) == pytest.approx(length)
    others = [c for c in range(C) if c not in NEW]
    assert torch.equal(desk.head.weight[others], before[others])
    assert desk.head.learning.tolist() == [c in NEW for c in range(C)]


def test_the_classes_of_the_first_task_begin_as_drawn() -> None:
    desk = a_desk(past=())
    LUCIR().before_task(desk)
    np.testing.assert_array_equal(desk.head.weight.detach().numpy(), W.astype(np.float32))
    assert desk.head.learning.tolist() == [c in NEW for c in range(C)]


@pytest.mark.parametrize("past", [(), PAST])
def test_tuning_is_the_same_loss_on_the_memory_with_a_milestone_in_steps(past: tuple[int, ...]) -> None:
    desk = a_desk(past)
    LUCIR().before_task(desk)
    before = desk.head.weight.detach().clone()
    start = unit(X) @ unit(before.numpy()).T
    LUCIR(margin=0.6, margin_weight=0.7).after_task(desk)
    assert desk.calls == ["choice", "fit", "batch", "20"]
    expected = -log_softmax(2.0 * start, 1)[np.arange(9), Y].mean()
    expected += 0.7 * margin(start, Y, 0.6, 2, past=len(past))
    assert desk.losses[0] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(desk.rates, [0.01] * 10 + [0.001] * 15, rtol=1e-9)
    assert desk.momentum == 0.9
    assert [weight is mine for weight, mine in zip(desk.moved, desk.head.parameters(), strict=True)] == [True, True]
    others = [c for c in range(C) if c not in NEW]
    assert torch.equal(desk.head.weight[others], before[others])
    assert (desk.head.weight[list(NEW)] != before[list(NEW)]).any(1).all()
    assert desk.head.scale != 2


def test_in_a_learner_new_classes_are_imprinted() -> None:
    """Without augmentation and with a rate of zero the imprint can still be read after the first step."""
    learner, (first, second) = a_learner(LUCIR(fit_epochs=0), augmented=False, lr=0.0), tasks(2, 2)
    learner.learn(first)
    _, features = shown(learner, second.images)
    old = learner.net.head.weight.detach().clone()
    next(learner.learning(second))
    weight, length = learner.net.head.weight.detach(), old[:2].norm(dim=1).mean().item()
    for c in (2, 3):
        mean = unit(features[second.labels == c]).mean(0)
        np.testing.assert_allclose(weight[c].numpy(), length * unit(mean), rtol=1e-4, atol=1e-5)
    assert torch.equal(weight[[0, 1, 4, 5]], old[[0, 1, 4, 5]])


def moving(net: nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    """The weights and statistics that are not as they were; of the head's vectors by class."""
    moved = {name for name, values in net.state_dict().items() if not torch.equal(values, before[name])}
    if "head.weight" in moved:
        moved.remove("head.weight")
        rows = (net.head.weight != before["head.weight"]).any(1)
        moved |= {f"class {c}" for c in rows.nonzero().flatten().tolist()}
    return moved


def test_of_the_head_only_the_present_classes_and_the_scale_learn_and_tuning_moves_nothing_else() -> None:
    learner = a_learner(LUCIR(fit_epochs=2), momentum=0.9)
    for number, task in enumerate(tasks(2, 2, 2)):
        new = {f"class {c}" for c in task.classes}
        start: dict[str, torch.Tensor] = {}
        for _ in learner.learning(task):
            now = {name: values.clone() for name, values in learner.net.state_dict().items()}
            if start:
                assert {name for name in moving(learner.net, start) if name.startswith("class")} == new
            start = start or now
        trained = moving(learner.net, start)
        assert {"head.scale", "lower.0.conv.weight", "upper.0.norm.running_mean"} <= trained
        assert moving(learner.net, now) == {"head.scale", *new}
        assert learner.tasks_learned == number + 1


def test_the_teacher_is_the_net_before_its_head_is_tuned() -> None:
    learner = a_learner(LUCIR(fit_epochs=2))
    for _ in learner.learning(tasks(2)[0]):
        before = {name: values.clone() for name, values in learner.net.state_dict().items()}
    assert moving(learner.teacher, before) == set()
    assert not learner.teacher.training


def test_a_learner_keeps_a_herd_of_each_class() -> None:
    learner = a_learner(LUCIR(), size=15)
    for task in tasks(2, 2, 1):
        learner.learn(task)
    assert Counter(learner.slots.labels[: learner.slots.filled].tolist()) == Counter(dict.fromkeys(range(5), 3))
