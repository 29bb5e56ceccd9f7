"""iCaRL: binary targets, exemplars and their means, prediction by the nearest mean (spec 6.8)."""

from collections import Counter

import numpy as np
import pytest
import torch
from replay import a_learner, shown, tasks
from scipy.special import expit, log_expit
from support import LinearNet, batch_of, classes_of, terms_of

from ider import UserError
from ider.methods import ICaRL
from ider.methods.icarl import KNOWN, MEANS
from ider.types import CURRENT, Teacher

C = 7
RNG = np.random.default_rng(2)
X, W, OLD = (RNG.normal(size=shape) for shape in ((6, 4), (4, C), (4, C)))
Y = np.array([3, 4, 0, 2, 3, 1])  # a merged batch: rows of past classes are the memory's


def found(past: tuple[int, ...], current: tuple[int, ...], teacher: bool) -> dict[str, float]:
    classes = classes_of(C, past, current, bool(past))
    batch = batch_of(torch.tensor(X), torch.tensor(Y), {CURRENT: 6}, classes=classes)
    terms = terms_of(ICaRL(), LinearNet(W), LinearNet(OLD) if teacher else None, batch)
    return {name: term.item() for name, term in terms.items()}


def binary(targets: np.ndarray) -> float:
    """Mean over the batch and the first five classes, entry by entry."""
    z = X @ W
    each = [
        targets[row, c] * log_expit(z[row, c]) + (1 - targets[row, c]) * log_expit(-z[row, c])
        for row in range(6)
        for c in range(5)
    ]
    return -float(np.mean(each))


def test_in_the_first_task_targets_are_one_hot_among_the_classes_seen() -> None:
    assert found((), range(5), False) == {"binary": pytest.approx(binary(np.eye(5)[Y]), rel=1e-6)}


def test_past_classes_have_the_old_net_s_probabilities_as_targets_and_current_ones_their_labels() -> None:
    targets = np.concatenate([expit(X @ OLD)[:, :3], np.eye(5)[Y][:, 3:]], 1)
    assert not targets[[2, 3, 5], 3:].any()  # rows of the memory have soft targets only
    assert found((0, 1, 2), (3, 4), True) == {"binary": pytest.approx(binary(targets), rel=1e-6)}


def test_a_class_that_comes_again_is_learnt_from_its_labels() -> None:
    targets = np.concatenate([expit(X @ OLD)[:, :2], np.eye(5)[Y][:, 2:]], 1)
    assert found((0, 1, 2), (2, 3, 4), True) == {"binary": pytest.approx(binary(targets), rel=1e-6)}


def test_what_it_asks_for() -> None:
    needs = ICaRL().needs()
    assert needs.teacher == Teacher(statistics="running")
    assert (needs.memory, needs.policy, needs.learns_from) == ("tasks", "herding", "task and memory")
    assert (needs.draws, needs.exemplars, needs.disjoint) == ((), True, False)


def predicted(known: list[bool]) -> np.ndarray:
    features, means = torch.tensor(X), torch.tensor(RNG.normal(size=(C, 4)))
    state = {MEANS: means, KNOWN: torch.tensor(known)}
    logits = torch.tensor(X @ W)
    return ICaRL().predict(logits, features, state).numpy(), means.numpy(), logits.numpy()


def test_the_answer_is_minus_the_squared_distance_to_each_mean() -> None:
    answer, means, _ = predicted([True] * C)
    expected = [[-((x - mean) ** 2).sum() for mean in means] for x in X]
    np.testing.assert_allclose(answer, expected, rtol=1e-9)


def test_a_class_without_exemplars_is_as_far_as_the_farthest() -> None:
    known = [True, False, True, True, False, True, True]
    answer, means, _ = predicted(known)
    for row, x in zip(answer, X, strict=True):
        distances = [((x - mean) ** 2).sum() for mean in means]
        farthest = max(d for d, has in zip(distances, known, strict=True) if has)
        expected = [-d if has else -farthest for d, has in zip(distances, known, strict=True)]
        np.testing.assert_allclose(row, expected, rtol=1e-9)


def test_before_there_are_exemplars_the_net_answers() -> None:
    answer, _, logits = predicted([False] * C)
    np.testing.assert_array_equal(answer, logits)


def herd(features: np.ndarray, count: int) -> list[int]:
    mean, chosen = features.mean(0), []
    for _ in range(count):
        left = [row for row in range(len(features)) if row not in chosen]
        chosen.append(min(left, key=lambda row: np.linalg.norm(mean - features[[*chosen, row]].mean(0))))
    return chosen


@pytest.mark.parametrize("size", [6, 13, 20])
def test_after_each_task_the_memory_holds_a_herd_of_every_class_and_no_blank(size: int) -> None:
    learner, came = a_learner(ICaRL(), size=size, policy="herding"), tasks(2, 2, 2)
    before: dict[int, np.ndarray] = {}
    for number, task in enumerate(came):
        learner.learn(task)
        quota = size // (2 * (number + 1))
        labels = learner.slots.labels[: learner.slots.filled]
        images = learner.memory.images[: learner.slots.filled].numpy()
        assert Counter(labels.tolist()) == Counter(dict.fromkeys(range(2 * number + 2), quota))
        assert images.any((1, 2, 3)).all()
        features = shown(learner, task.images)[1]
        for label in task.classes:
            where = np.flatnonzero(task.labels == label)
            expected = task.images[where[herd(features[where].astype(np.float64), quota)]]
            np.testing.assert_array_equal(images[labels == label], expected)
        for label, old in before.items():
            np.testing.assert_array_equal(images[labels == label], old[:quota])
        before = {label: images[labels == label] for label in range(2 * number + 2)}


def test_means_are_exact_and_predict_the_nearest_class() -> None:
    learner = a_learner(ICaRL(), size=80, policy="herding")  # more than 32 a class: no running mean of batches
    for task in tasks(2, 1, each=40):
        learner.learn(task)
    labels = learner.slots.labels[: learner.slots.filled]
    assert sorted(Counter(labels.tolist()).values()) == [26, 26, 26]
    features = shown(learner, learner.memory.images[: len(labels)].numpy())[1]
    means = np.stack([features[labels == label].mean(0) for label in range(3)])
    np.testing.assert_allclose(learner.model.state[MEANS][:3].numpy(), means, rtol=1e-4, atol=1e-5)
    test = np.concatenate([task.images for task in tasks(2, 1, each=5, seed=9)])
    far = ((shown(learner, test)[1][:, None] - means) ** 2).sum(2)
    np.testing.assert_allclose(learner.answers(test).first[:, :3], -far, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(learner.predict(test), far.argmin(1))


@pytest.mark.parametrize(("size", "classes"), [(0, 0), (1, 0), (3, 4)])
def test_a_memory_without_a_slot_for_each_class_is_refused_before_the_first_step(size: int, classes: int) -> None:
    learner = a_learner(ICaRL(), size=size, policy="herding", classes=classes)
    message = rf"memory.size is {size}, but this method needs a sample of each of {classes or 2} classes"
    with pytest.raises(UserError, match=message):
        learner.learn(tasks(2)[0])
    assert learner.history == []


def test_a_memory_that_growing_classes_outgrow_is_refused_before_that_task() -> None:
    learner, (first, second) = a_learner(ICaRL(), size=3, policy="herding", classes=0), tasks(2, 2)
    learner.learn(first)
    with pytest.raises(UserError, match=r"memory.size is 3.*each of 4 classes; it must be at least 4"):
        learner.learn(second)
    assert learner.tasks_learned == 1
