"""ER-ACE: which classes a current image competes with (spec 6.4), against the published mask as loops."""

import math

import numpy as np
import pytest
import torch
from support import LinearNet, batch_of, ce, classes_of, terms_of, tiny_learner, tiny_tasks, values

from ider import Task, UserError
from ider.methods import ERACE
from ider.types import CURRENT, Draw, Needs

CLASSES = 8
RNG = np.random.default_rng(5)
X = RNG.normal(size=(9, CLASSES))


def a_batch(x, labels, past, now, **sizes: int):
    count = sum(sizes.values())
    classes = classes_of(CLASSES, past, now, finished=int(bool(past)))
    return batch_of(torch.as_tensor(x[:count]), torch.tensor(labels[:count]), sizes, classes=classes)


def published(logits, labels, highest: int) -> float:
    """Row by row: the classes of the batch, and all from the highest class so far on, unless that is the last."""
    allowed = set(labels)
    if highest < CLASSES - 1:
        allowed |= set(range(highest, CLASSES))
    losses = [
        math.log(sum(math.exp(row[c]) for c in allowed)) - row[label] for row, label in zip(logits, labels, strict=True)
    ]
    return sum(losses) / len(losses)


NET = LinearNet(np.eye(CLASSES))


@pytest.mark.parametrize(
    ("past", "current", "labels"),
    [
        ([0, 1, 2], [3, 4], [3, 3, 3, 3, 3]),  # the batch lacks the highest class, which counts nonetheless
        ([0, 1, 2], [3, 4], [4, 3, 4, 3, 3]),
        ([0], [1, 2, 3], [1, 1, 2, 2, 1]),
        ([0, 1, 2, 3, 4, 5], [6, 7], [6, 7, 6, 7, 7]),  # the last task: nothing is to come
        ([0, 1, 2, 3, 4], [5, 6, 7], [5, 6, 5, 6, 6]),  # ... so that the highest class counts only if it is there
    ],
)
def test_current_images_compete_with_their_batch_and_with_what_is_to_come(past, current, labels) -> None:
    terms = terms_of(ERACE(), NET, None, a_batch(X, labels, past, current, current=5))
    assert values(terms) == {"current": pytest.approx(published(X[:5], labels, max(current)), rel=1e-6)}


def test_alone_in_its_batch_the_last_class_has_no_rival() -> None:
    terms = terms_of(ERACE(), NET, None, a_batch(X, [7] * 5, range(6), [6, 7], current=5))
    assert terms["current"].item() == 0


def test_by_hand() -> None:
    """Rivals of class 6: itself, and 7 as a class of the batch. Softmax of (0, ln 3) is (1/4, 3/4)."""
    x = np.full((2, CLASSES), 50.0)
    x[:, 6:] = [[0, math.log(3)], [0, 0]]
    terms = terms_of(ERACE(), NET, None, a_batch(x, [6, 7], range(6), [6, 7], current=2))
    assert terms["current"].item() == pytest.approx((math.log(4) + math.log(2)) / 2)


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1], [2, 2, 2, 2, 2], [0, 0, 0, 0, 0]])
def test_in_the_first_task_nothing_is_masked(labels) -> None:
    terms = terms_of(ERACE(), NET, None, a_batch(X, labels, [], [0, 1, 2], current=5))
    assert values(terms) == {"current": pytest.approx(ce(X[:5], np.array(labels)), rel=1e-6)}


def test_replayed_images_compete_with_all_classes_and_each_part_has_its_own_mean() -> None:
    labels = [3, 4, 3, 3, 4, 0, 4, 1, 2]
    terms = terms_of(ERACE(), NET, None, a_batch(X, labels, [0, 1, 2], [3, 4], current=5, replay=4))
    assert terms["current"].item() == pytest.approx(published(X[:5], labels[:5], 4), rel=1e-6)
    assert terms["replay"].item() == pytest.approx(ce(X[5:9], np.array(labels[5:])), rel=1e-6)


def test_no_current_image_moves_an_absent_old_class() -> None:
    x = torch.tensor(X, requires_grad=True)
    sizes = {CURRENT: 5, "replay": 4}
    step = batch_of(
        x, torch.tensor([3, 3, 3, 3, 3, 0, 4, 1, 2]), sizes, classes=classes_of(CLASSES, [0, 1, 2], [3, 4], 1)
    )
    torch.stack(list(terms_of(ERACE(), NET, None, step).values())).sum().backward()
    assert x.grad is not None
    assert not x.grad[:5, :3].any()
    assert x.grad[:5, 3:].all()
    assert x.grad[5:].all()


def test_classes_in_another_order_are_to_come_all_the_same() -> None:
    """Past 4 and 5, now 0 and 1: rivals are those of the batch, 2, 3, 6, 7 and the task's last; never a past class."""
    labels = [0, 0, 0]
    terms = terms_of(ERACE(), NET, None, a_batch(X, labels, [4, 5], [0, 1], current=3))
    rivals = [0, 1, 2, 3, 6, 7]
    assert terms["current"].item() == pytest.approx(ce(X[:3][:, rivals], np.array(labels)), rel=1e-6)


def test_what_it_asks_for() -> None:
    assert ERACE().needs() == Needs(draws=(Draw("replay", later=True),), disjoint=True)


def test_it_replays_from_the_second_task_on_and_remembers_from_the_first_step() -> None:
    learner = tiny_learner(ERACE()).learn(tiny_tasks(1)[0])
    assert learner.slots.offered == 40
    assert set(learner.slots.labels) == {0, 1}
    learner.learn(tiny_tasks(2)[1])
    assert [set(entry) - {"task", "epoch", "loss"} for entry in learner.history] == [
        {"current"},
        {"current"},
        {"current", "replay"},
        {"current", "replay"},
    ]


def test_classes_that_come_again_are_refused() -> None:
    first = tiny_tasks(1)[0]
    again = Task(first.images, first.labels + 1)
    with pytest.raises(UserError, match=r"classes \[1\] come again"):
        tiny_learner(ERACE()).learn(first).learn(again)
