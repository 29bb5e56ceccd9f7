"""The temperature found is the likeliest one: against scaled logits, exact frequencies and a grid in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from ider import RunError
from ider.calibration.solver import (
    COLDEST,
    HOTTEST,
    best_temperature,
    descended_temperature,
    softened,
    warranted_temperature,
)


def loss(scores, labels, temperature):
    """The mean negative log-likelihood, by an outside library."""
    return F.cross_entropy(torch.from_numpy(scores) / temperature, torch.from_numpy(labels)).item()


def drawn(seed, count=200, classes=6, spread=3.0):
    """Logits, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    scores = spread * rng.normal(size=(count, classes))
    labels = np.array([rng.choice(classes, p=row) for row in softened(scores, 0.0)])
    return scores, labels


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 2.5, 40.0])
def test_scaled_logits_have_the_scale_as_their_temperature(scale):
    scores = np.log(np.array([[5.0, 3.0, 2.0], [1.0, 8.0, 1.0]])).repeat(10, axis=0)
    labels = np.array([0] * 5 + [1] * 3 + [2] * 2 + [0] + [1] * 8 + [2])  # exactly as often as the logits say
    assert best_temperature(scale * scores, labels) == pytest.approx(scale, rel=1e-10)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.1, 10), st.integers(2, 60), st.integers(2, 12))
def test_a_grid_in_float64_finds_nothing_better(seed, scale, count, classes):
    scores, labels = drawn(seed, count, classes)
    scores *= scale
    found = best_temperature(scores, labels)
    grid = np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), 2001))
    losses = np.array([loss(scores, labels, temperature) for temperature in grid])
    assert loss(scores, labels, found) <= losses.min() + 1e-12
    if losses.argmin() not in (0, len(grid) - 1) and np.ptp(losses) > 1e-6:
        assert grid[losses.argmin() - 1] <= found <= grid[losses.argmin() + 1]


def test_it_does_not_depend_on_what_is_added_to_all_logits_of_an_image():
    scores, labels = drawn(3)
    shifted = scores + np.random.default_rng(0).normal(size=(len(scores), 1)) * 100
    assert best_temperature(shifted, labels) == pytest.approx(best_temperature(scores, labels), rel=1e-9)


def test_where_the_likelihood_has_no_maximum_the_temperature_is_bounded():
    scores = np.array([[4.0, 0.0], [0.0, 3.0]])
    assert best_temperature(scores, np.array([0, 1])) == COLDEST
    assert best_temperature(scores, np.array([1, 0])) == HOTTEST
    assert best_temperature(1e6 * scores, np.array([0, 1])) == COLDEST  # nothing but 0 and 1, in float64 too


def test_what_says_nothing_leaves_the_answers_as_they_are():
    assert best_temperature(np.zeros((0, 3)), np.zeros(0, np.int64)) == 1.0
    assert warranted_temperature(np.zeros((0, 3)), np.zeros(0, np.int64)) == 1.0
    assert best_temperature(np.zeros((4, 1)), np.zeros(4, np.int64)) == 1.0  # a single class
    assert warranted_temperature(np.zeros((4, 1)), np.zeros(4, np.int64)) == 1.0
    assert best_temperature(np.full((4, 3), 7.0), np.array([0, 1, 2, 0])) == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_a_failed_run(value):
    scores, labels = drawn(0, 5)
    scores[2, 1] = value
    with pytest.raises(RunError, match="not finite"):
        best_temperature(scores, labels)


@pytest.mark.parametrize("count", [1, 6, 30, 500])
@pytest.mark.parametrize("scale", [0.2, 1.0, 10.0])
def test_all_right_is_no_surer_than_so_many_right_answers_warrant(count, scale):
    rng = np.random.default_rng(count)
    scores = scale * (rng.normal(size=(count, 5)) + 6 * np.eye(5)[np.arange(count) % 5])
    labels = scores.argmax(1)
    found = warranted_temperature(scores, labels)
    assert softened(scores, np.log(found)).max(1).mean() == pytest.approx(1 - 0.5 / (count + 1), abs=1e-9)
    assert warranted_temperature(2 * scores, labels) == pytest.approx(2 * found, rel=1e-9)


def test_with_one_error_the_likelihood_decides():
    scores, labels = drawn(1, 30)
    labels = scores.argmax(1)
    labels[4] = (labels[4] + 1) % 6
    assert warranted_temperature(scores, labels) == best_temperature(scores, labels)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_descent_of_t_cil_is_that_of_its_release(seed):
    scores, labels = drawn(seed, 100)
    temperature = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([temperature], lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [50], 0.1)
    for _ in range(100):  # a hundred images are one batch
        optimiser.zero_grad()
        F.cross_entropy(torch.from_numpy(scores) / temperature, torch.from_numpy(labels)).backward()
        optimiser.step()
        schedule.step()
    assert descended_temperature(scores, labels, np.random.default_rng(0)) == pytest.approx(
        temperature.item(), rel=1e-9
    )
