"""The calibrators on a linear net that can be followed by hand: what is kept, what is pushed where, what is fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ider import UserError
from ider.calibration import RC, TCIL, Labelled, Temperature
from ider.calibration.base import ALL_RIGHT
from ider.calibration.solver import COLDEST, best_temperature
from ider.calibration.tcil import balanced, bisect, targets_of
from ider.engine.answers import log_softmax


@dataclass
class Linear:
    """A sight of a net whose logits are pixels times weights; it notes by how much what is pushed."""

    memory: Labelled
    held_out: Sequence[Labelled]
    newest: np.ndarray
    weights: np.ndarray
    shifts: list[tuple[Labelled, np.ndarray]] = field(default_factory=list)

    def rng(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng([7, *purpose.encode()])

    def scores(self, samples: Labelled, shift: np.ndarray | None = None) -> Mapping[str, np.ndarray]:
        if shift is not None:
            self.shifts.append((samples, shift))
        x = self.features(samples) if shift is None else self.features(samples) + shift
        found = log_softmax(x @ self.weights)
        return {"first": found, "second": found, "mean": found}

    def features(self, samples: Labelled) -> np.ndarray:
        return samples.images.reshape(len(samples), -1) / 255.0

    def slopes(self, samples: Labelled, targets: np.ndarray) -> np.ndarray:
        p = np.exp(self.scores(samples)["first"])
        return (p - np.eye(p.shape[1])[targets]) @ self.weights.T


def some(rng: np.random.Generator, labels: Sequence[int]) -> Labelled:
    return Labelled(rng.integers(0, 256, (len(labels), 1, 2, 3), dtype=np.uint8), np.array(labels, np.int64))


def sight(memory: Sequence[int], held_out: Sequence[Sequence[int]], newest: Sequence[int], seed: int = 0) -> Linear:
    rng = np.random.default_rng(seed)
    classes = 1 + max(max(part, default=0) for part in (memory, newest, *held_out))
    parts = [some(rng, labels) for labels in (memory, *held_out)]
    return Linear(parts[0], parts[1:], np.array(newest, np.int64), 4 * rng.normal(size=(6, classes)))


def learnt(seed: int, newest: Sequence[int]) -> Linear:
    """A net of five classes that is right on all it remembers, and wrong on a tenth of what was held out."""
    view, rng = sight([], [[4]], newest, seed), np.random.default_rng(seed)
    memory, held_out = (some(rng, [0] * count) for count in (40, 60))
    answers = [view.scores(part)["first"].argmax(1) for part in (memory, held_out)]
    answers[1][:6] = (answers[1][:6] + 1) % 5
    known, apart = (Labelled(part.images, found) for part, found in zip((memory, held_out), answers, strict=True))
    return Linear(known, [apart, apart], view.newest, view.weights)


def grid_search(scores: np.ndarray, labels: np.ndarray) -> float:
    """The likeliest temperature in 0.01..100, to 1e-5 of itself, by trying."""
    low, high = np.log(0.01), np.log(100)
    for _ in range(8):
        taus = np.linspace(low, high, 41)
        losses = [F.cross_entropy(torch.from_numpy(scores * np.exp(-t)), torch.from_numpy(labels)).item() for t in taus]
        best = int(np.argmin(losses))
        low, high = taus[max(best - 1, 0)], taus[min(best + 1, 40)]
    return float(np.exp(taus[best]))


def rows(samples: Labelled) -> set[bytes]:
    return {image.tobytes() for image in samples.images}


@pytest.mark.parametrize(("on", "used"), [("memory", (12, 0)), ("newest", (0, 9)), ("all", (0, 29))])
def test_temperature_is_fitted_on_what_it_says(on, used):
    view = sight([0, 1, 2] * 4, [[0, 1] * 10, [2] * 8 + [0]], [2])
    found = Temperature(on=on).calibrate(view)
    parts = {"memory": [view.memory], "newest": view.held_out[-1:], "all": view.held_out}[on]
    scores = np.concatenate([view.scores(part)["first"] for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    assert found.temperatures["first"] == pytest.approx(grid_search(scores, labels), rel=1e-4)
    assert (found.remembered, found.held_out) == used
    assert set(found.temperatures) == {"first", "second", "mean"}


@pytest.mark.parametrize("later", [0.4, 0.25, 0.0, 1.0])
def test_the_buffer_holds_all_of_the_first_task_and_a_share_of_each_later_one(later):
    sizes = [17, 20, 5, 13, 1]
    view = sight([], [[task] * size for task, size in enumerate(sizes)], [4])
    before: set[bytes] = set()
    for tasks in range(1, len(sizes) + 1):
        so_far = Linear(view.memory, view.held_out[:tasks], view.newest, view.weights)
        kept = RC(later=later).buffer(so_far)
        assert len(kept) == sizes[0] + sum(int(np.floor(later * size + 1e-9)) for size in sizes[1:tasks])
        assert np.bincount(kept.labels, minlength=1)[0] == sizes[0]
        assert before <= rows(kept)  # what was not kept does not come in later, nothing is evicted
        assert rows(kept) <= set().union(*map(rows, so_far.held_out))
        before = rows(kept)


def test_replayed_calibration_is_the_likeliest_temperature_on_its_buffer():
    view = sight([], [[0, 1] * 20, [2, 3] * 15], [2, 3])
    kept = RC().buffer(view)
    found = RC().calibrate(view)
    scores = view.scores(kept)["first"]
    assert found.temperatures["first"] == pytest.approx(grid_search(scores, kept.labels), rel=1e-4)
    assert (found.remembered, found.held_out, found.details[ALL_RIGHT]) == (0, 40 + 12, [])


def test_a_buffer_of_bounded_size_never_takes_back_what_it_gave_up():
    sizes = [17, 20, 25, 13]
    view = sight([], [[task] * size for task, size in enumerate(sizes)], [3])
    gone: set[bytes] = set()
    seen: set[bytes] = set()
    for tasks in range(1, len(sizes) + 1):
        kept = RC(later=1.0, capacity=12).buffer(Linear(view.memory, view.held_out[:tasks], view.newest, view.weights))
        assert len(kept) == 12
        assert not rows(kept) & gone
        seen |= rows(kept)
        gone = set().union(*map(rows, view.held_out[:tasks])) - rows(kept)
    assert len(seen) > 12


@pytest.mark.parametrize("wanted", [0.3, 1.0, 1.9])
def test_the_bisection_ends_after_ten_evaluations_at_the_distance_sought(wanted):
    asked: list[float] = []

    def temperature_at(distance: float) -> float:
        asked.append(distance)
        return 2 * distance**2

    found = bisect(temperature_at, wanted)
    assert len(asked) == 10
    assert found == pytest.approx(np.sqrt(wanted / 2), abs=1e-3)


@pytest.mark.parametrize(("wanted", "end"), [(-1.0, 0.0), (9.0, 1.0)])
def test_a_temperature_that_is_never_reached_leads_to_the_nearest_end(wanted, end):
    assert bisect(lambda distance: distance, wanted) == pytest.approx(end, abs=1e-3)


def test_old_images_aim_at_the_nearest_other_class_and_new_ones_at_the_farthest():
    features = np.array([[0.0], [2.0], [5.0], [5.5], [20.0], [6.0]])
    labels = np.array([0, 0, 1, 1, 4, 4])  # means 1, 5.25 and 13; classes 2 and 3 have no image
    is_new = np.array([False, False, False, False, True, True])
    assert targets_of(features, labels, is_new).tolist() == [1, 1, 0, 0, 0, 0]
    assert targets_of(features, labels, ~is_new).tolist() == [4, 4, 4, 4, 1, 1]
    assert targets_of(features[:2], labels[:2], is_new[:2]) is None


def test_the_whole_of_t_cil_by_hand():
    view = learnt(13, newest=[3, 4])
    assert np.bincount(view.memory.labels).tolist() == [0, 4, 2, 5, 29]  # class 0 has no image
    found = TCIL(images=0).calibrate(view)
    is_new = np.isin(view.memory.labels, [3, 4])
    x, weights = view.features(view.memory), torch.from_numpy(view.weights)
    means = {c: x[view.memory.labels == c].mean(0) for c in (1, 2, 3, 4)}
    targets = []
    for row, label in zip(x, view.memory.labels, strict=True):
        far = {c: np.linalg.norm(row - mean) for c, mean in means.items() if c != label}
        targets.append(max(far, key=far.get) if label in (3, 4) else min(far, key=far.get))
    pixels = torch.from_numpy(x).requires_grad_()
    F.cross_entropy(pixels @ weights, torch.tensor(targets)).backward()
    sign = pixels.grad.sign().numpy()

    wanted = grid_search(view.scores(view.held_out[1])["first"], view.held_out[1].labels)
    assert found.details["newest"]["first"] == pytest.approx(wanted, rel=1e-4)
    low, high = 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2
        at = grid_search(log_softmax((x - middle * sign)[is_new] @ view.weights), view.memory.labels[is_new])
        low, high = (middle, high) if at < wanted else (low, middle)
    distance = found.details["distance"]["first"]
    assert distance == (low + high) / 2
    assert 0.01 < distance < 0.99  # neither end
    expected = grid_search(log_softmax((x - distance * sign) @ view.weights), view.memory.labels)
    assert found.temperatures["first"] == pytest.approx(expected, rel=1e-4)
    assert (found.remembered, found.held_out) == (40, 60)
    pushed = [(samples, shift) for samples, shift in view.shifts if len(samples) == is_new.sum()]
    assert len(pushed) == 3 * 10  # ten an answer, of the new images alone
    assert all(set(samples.labels) == {3, 4} for samples, _ in pushed)


def test_in_the_first_task_all_classes_are_new():
    view = sight([0, 1, 2, 0, 1, 2], [[0, 1, 2] * 9], [0, 1, 2], seed=2)
    TCIL(images=0).calibrate(view)
    assert all(len(samples) == 6 for samples, _ in view.shifts)
    samples, shift = view.shifts[-1]
    features = view.features(samples)
    targets = targets_of(features, samples.labels, np.ones(6, bool))
    np.testing.assert_array_equal(np.sign(shift), -np.sign(view.slopes(samples, targets)))


@pytest.mark.parametrize("memory", [[], [0, 0, 1], [3, 3]])
def test_without_new_images_to_push_or_a_class_to_push_to_the_held_out_ones_decide(memory):
    view = sight(memory, [[0, 1], [2, 3] * 20], [3], seed=1)
    found = TCIL(images=0).calibrate(view)
    scores = view.scores(view.held_out[1])["first"]
    assert found.temperatures["first"] == best_temperature(scores, view.held_out[1].labels)
    assert (found.remembered, found.held_out) == (0, 40)
    assert "distance" not in found.details
    assert view.shifts == []


def test_new_images_that_are_all_right_when_held_out_give_no_distance():
    view = sight([0, 1, 2] * 3, [[0, 1], [2] * 8], [2])
    x = view.features(view.held_out[1])
    view.weights[:, 2] = 40 * np.linalg.lstsq(x, np.ones(8), rcond=None)[0]
    found = TCIL().calibrate(view)
    assert found.details["newest"]["first"] == COLDEST
    assert found.details["distance"]["first"] < 1e-3


@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_the_same_sight_gives_the_same_temperatures(solver):
    one, two = (
        TCIL(solver=solver, images=20).calibrate(sight([0, 1, 2] * 5, [[0, 1], [2, 1] * 30], [2])) for _ in "ab"
    )
    assert one == two
    assert one.held_out == 20


@pytest.mark.parametrize(("count", "expected"), [(0, [30, 5, 2]), (6, [2, 2, 2]), (9, [4, 3, 2]), (99, [30, 5, 2])])
def test_the_held_out_images_used_are_balanced(count, expected):
    samples = some(np.random.default_rng(0), [0] * 30 + [1] * 5 + [2] * 2)
    found = np.bincount(balanced(samples, count, np.random.default_rng(1)).labels)
    assert sorted(found, reverse=True) == sorted(expected, reverse=True)
    assert rows(balanced(samples, count, np.random.default_rng(1))) <= rows(samples)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RC(later=1.5), r"calibration\.later is 1\.5; it must lie in 0\.\.1"),
        (lambda: RC(capacity=-1), r"calibration\.capacity is -1"),
        (lambda: Temperature(on="test"), r"calibration\.on 'test'"),
        (lambda: TCIL(solver="adam"), r"calibration\.solver 'adam'"),
    ],
)
def test_settings_are_checked(make, words):
    with pytest.raises(UserError, match=words):
        make()
