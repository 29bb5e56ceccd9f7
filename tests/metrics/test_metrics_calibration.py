"""Calibration against torchmetrics, scikit-learn, definitions written out in exact arithmetic, and by hand."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.classification import MulticlassCalibrationError

from ider.errors import UserError
from ider.metrics import (
    ace,
    brier,
    confidence_and_correct,
    ece,
    ece_per_task,
    nll,
    overconfidence,
    reliability,
)

ALL = [ece, ace, nll, brier, overconfidence]


def answers(seed, samples=200, classes=5, sharpness=2.0):
    """Random probability rows and labels that follow them loosely."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(samples, classes)) * sharpness
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.where(rng.random(samples) < 0.5, p.argmax(axis=1), rng.integers(classes, size=samples))
    return p, labels


def binary(confidences, correct):
    """Two classes, the answer always class 0, with these confidences (>= 1/2)."""
    confidences = np.asarray(confidences, dtype=np.float64)
    return np.stack([confidences, 1 - confidences], axis=1), np.where(np.asarray(correct), 0, 1)


def brute_ece(p, y, bins):
    """The definition: for each bin (lo, hi], its share times |accuracy - mean confidence|; in exact fractions."""
    members = {b: [] for b in range(bins)}
    for row, label in zip(p.tolist(), y.tolist(), strict=True):
        confidence = max(row)
        home = [b for b in range(bins) if b / bins < confidence <= (b + 1) / bins] or [0]
        members[home[0]].append((Fraction(confidence), row.index(confidence) == label))
    total = Fraction(0)
    for group in (group for group in members.values() if group):
        accuracy = Fraction(sum(right for _, right in group), len(group))
        confidence = sum(c for c, _ in group) / len(group)
        total += Fraction(len(group), len(y)) * abs(accuracy - confidence)
    return float(100 * total)


def brute_ace(p, y, bins):
    """The authors' definition: quantile edges, outer ones 0 and 1, duplicates merged, [lo, hi), the last bin closed."""
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    edges = np.quantile(confidence, np.linspace(0, 1, bins + 1))
    edges[0], edges[-1] = 0, 1
    edges = sorted(set(edges.tolist()))
    total = 0.0
    for lo, hi in itertools.pairwise(edges):
        inside = (confidence >= lo) & ((confidence <= hi) if hi == edges[-1] else (confidence < hi))
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return 100 * total


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bins", [10, 15, 20])
def test_ece_equals_torchmetrics(seed, bins):
    p, y = answers(seed, classes=3 + seed)
    reference = MulticlassCalibrationError(num_classes=3 + seed, n_bins=bins, norm="l1")
    assert ece(p, y, bins) / 100 == pytest.approx(reference(torch.tensor(p), torch.tensor(y)).item(), abs=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 6), st.integers(1, 20), st.sampled_from([1, 2, 9]))
@settings(max_examples=80, deadline=None)
def test_ece_and_ace_equal_their_definitions(seed, samples, classes, bins, decimals):
    p, y = answers(seed, samples, classes)
    p = np.round(p, decimals)  # few decimals: many ties, many confidences on an edge
    assert ece(p, y, bins) == pytest.approx(brute_ece(p, y, bins), abs=1e-9)
    assert ace(p, y, bins) == pytest.approx(brute_ace(p, y, bins), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_nll_and_brier_equal_sklearn(seed):
    p, y = answers(seed, classes=4)
    assert nll(p, y) == pytest.approx(log_loss(y, p, labels=range(4)), abs=1e-6)
    # scikit-learn sums over classes too, unless told to halve it.
    assert brier(p, y) == pytest.approx(brier_score_loss(y, p, labels=range(4), scale_by_half=False), abs=1e-6)


def test_by_hand():
    p, y = binary([0.9, 0.9, 0.6, 0.6], [True, False, True, True])
    assert ece(p, y) == pytest.approx(100 * (0.5 * abs(0.5 - 0.9) + 0.5 * abs(1 - 0.6)))
    assert overconfidence(p, y) == pytest.approx(100 * (0.75 - 0.75))
    assert nll(p, y) == pytest.approx(-(math.log(0.9) + math.log(0.1) + 2 * math.log(0.6)) / 4)
    assert brier(p, y) == pytest.approx((2 * 0.01 + 2 * 0.81 + 2 * 2 * 0.16) / 4)
    assert ace(p, y, 2) == pytest.approx(40.0)  # median .75 parts the two groups


def test_equal_mass_bins_split_where_equal_width_bins_do_not():
    p, y = binary([0.91, 0.92, 0.93, 0.925], [True, True, False, False])
    assert ece(p, y) == pytest.approx(100 * (0.92125 - 0.5))
    # The edges .9175, .9225, .92625 put each sample in its own bin.
    assert ace(p, y, 4) == pytest.approx(100 * (0.09 + 0.08 + 0.93 + 0.925) / 4)


@pytest.mark.parametrize("k", range(8, 16))
def test_confidence_on_an_edge_belongs_below(k):
    p, y = binary([k / 15], [True])
    assert reliability(p, y)["count"] == [int(b == k - 1) for b in range(15)]
    above, y = binary([np.nextafter(k / 15, 2)], [True])
    assert reliability(above, y)["count"] == [int(b == min(k, 14)) for b in range(15)]


@pytest.mark.parametrize(
    ("confidence", "home"), [(0.0, 0), (1e-300, 0), (0.2, 2), (0.4, 5), (0.6, 8), (0.8, 11), (1.0, 14)]
)
def test_extreme_and_decimal_confidences(confidence, home):
    p, y = np.array([[confidence, 0.0]]), np.array([0])
    table = reliability(p, y)
    assert [b for b in range(15) if table["count"][b]] == [home]
    assert table["confidence"][home] == confidence
    assert ece(p, y) == pytest.approx(100 * (1 - confidence))


def test_equal_mass_edge_belongs_above():
    p, y = binary([0.6, 0.7, 0.8], [True, True, False])
    # Two bins: the median .7 starts the upper one.
    assert ace(p, y, 2) == pytest.approx(100 * (0.4 / 3 + abs(0.5 - 0.75) * 2 / 3))


@pytest.mark.parametrize("confidence", [0.5, 0.7, 1.0])
def test_ace_with_one_distinct_confidence_is_one_bin(confidence):
    p, y = binary([confidence] * 7, [True] * 3 + [False] * 4)
    assert ace(p, y) == pytest.approx(100 * abs(confidence - 3 / 7))
    assert ace(p, y) == pytest.approx(ece(p, y))


def test_one_sample():
    p, y = np.array([[0.1, 0.7, 0.2]]), np.array([1])
    assert ece(p, y) == ace(p, y) == pytest.approx(30.0)
    assert overconfidence(p, y) == pytest.approx(-30.0)
    assert nll(p, y) == pytest.approx(-math.log(0.7))
    assert brier(p, y) == pytest.approx(0.01 + 0.09 + 0.04)


def test_certain_and_right_is_perfect():
    p, y = np.eye(3)[[0, 1, 2, 2]], np.array([0, 1, 2, 2])
    assert [metric(p, y) for metric in ALL] == [0.0] * 5
    assert math.copysign(1, nll(p, y)) == 1  # not -0.0


def test_certain_and_wrong_is_worst_and_finite():
    p, y = np.eye(3)[[0, 1]], np.array([1, 2])
    assert ece(p, y) == ace(p, y) == overconfidence(p, y) == 100.0
    assert brier(p, y) == 2.0
    assert nll(p, y) == pytest.approx(-math.log(np.finfo(np.float64).tiny))


def test_tied_classes_answer_with_the_first():
    confidence, correct = confidence_and_correct(np.full((2, 4), 0.25), [0, 1])
    assert confidence.tolist() == [0.25, 0.25]
    assert correct.tolist() == [True, False]


def test_overconfidence_has_a_sign():
    assert overconfidence(*binary([0.9, 0.9], [True, False])) == pytest.approx(40.0)
    assert overconfidence(*binary([0.6, 0.6], [True, True])) == pytest.approx(-40.0)


def test_pooling_hides_what_the_mean_of_tasks_shows():
    sure, modest = binary([0.75] * 4, [True, True, False, False]), binary([0.75] * 4, [True] * 4)
    assert ece_per_task([sure[0], modest[0]], [sure[1], modest[1]]) == pytest.approx(25.0)
    pooled = ece(np.concatenate([sure[0], modest[0]]), np.concatenate([sure[1], modest[1]]))
    assert pooled == pytest.approx(0.0, abs=1e-9)


def test_ece_per_task_is_unweighted():
    small, large = binary([1.0], [False]), binary([1.0] * 9, [True] * 9)
    assert ece_per_task([small[0], large[0]], [small[1], large[1]]) == pytest.approx(50.0)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.integers(1, 30), st.integers(1, 15))
@settings(max_examples=60, deadline=None)
def test_pooled_ece_is_at_most_the_mean_of_equal_tasks(seeds, samples, bins):
    sets = [answers(seed, samples, 4) for seed in seeds]
    p, y = [p for p, _ in sets], [y for _, y in sets]
    mean = ece_per_task(p, y, bins)
    assert ece(np.concatenate(p), np.concatenate(y), bins) <= mean + 1e-9
    assert mean == pytest.approx(np.mean([ece(*one, bins) for one in sets]))


@given(st.integers(0, 10**6), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_order_of_samples_and_of_classes_is_irrelevant(seed, samples):
    p, y = answers(seed, samples, 4)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(samples), rng.permutation(4)
    renamed = np.argsort(columns)[y]
    for metric in ALL:
        assert metric(p[rows], y[rows]) == pytest.approx(metric(p, y), abs=1e-9)
        assert metric(p[:, columns], renamed) == pytest.approx(metric(p, y), abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_calibrated_by_construction(groups, bins):
    # Each group: k + m right and m wrong answers, all given with confidence (k + m) / (k + 2m) > 1/2.
    confidences, correct = [], []
    for k, m in groups:
        right, total = k + m, k + 2 * m
        confidences += [right / total] * total
        correct += [True] * right + [False] * m
    p, y = binary(confidences, correct)
    assert ece(p, y, bins) == pytest.approx(0.0, abs=1e-9)
    assert ace(p, y, bins) == pytest.approx(0.0, abs=1e-9)
    assert overconfidence(p, y) == pytest.approx(0.0, abs=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 50), st.integers(2, 6), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_bounds(seed, samples, classes, bins):
    p, y = answers(seed, samples, classes)
    bias = abs(overconfidence(p, y))
    assert bias - 1e-9 <= ece(p, y, bins) <= 100
    assert bias - 1e-9 <= ace(p, y, bins) <= 100
    assert ece(p, y, 1) == pytest.approx(bias, abs=1e-9)
    assert ace(p, y, 1) == pytest.approx(bias, abs=1e-9)
    assert 0 <= brier(p, y) <= 2
    assert nll(p, y) >= 0


@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from([1, 5, 15]))
@settings(max_examples=60, deadline=None)
def test_reliability_is_the_table_behind_ece(seed, samples, bins):
    p, y = answers(seed, samples, 3)
    table = reliability(p, y, bins)
    assert set(table) == {"count", "confidence", "accuracy"}
    assert all(len(column) == bins for column in table.values())
    count, confidence, accuracy = (np.array(table[name]) for name in ("count", "confidence", "accuracy"))
    assert count.sum() == samples
    assert 100 * (count * np.abs(accuracy - confidence)).sum() / samples == pytest.approx(ece(p, y, bins), abs=1e-9)
    assert not confidence[count == 0].any()
    assert not accuracy[count == 0].any()
    full = count > 0
    assert ((np.arange(bins) / bins - 1e-12 <= confidence) & (confidence <= np.arange(1, bins + 1) / bins + 1e-12))[
        full
    ].all()


def test_reliability_by_hand():
    p, y = binary([0.9, 0.92, 0.6], [True, False, True])
    table = reliability(p, y)
    assert table["count"] == [0] * 8 + [1] + [0] * 4 + [2, 0]
    assert isinstance(table["count"][0], int)
    assert table["confidence"] == pytest.approx([0] * 8 + [0.6] + [0] * 4 + [0.91, 0])
    assert table["accuracy"] == pytest.approx([0] * 8 + [1] + [0] * 4 + [0.5, 0])


def test_float32_and_lists_are_taken():
    p, y = answers(3, classes=4)
    for metric in ALL:
        assert metric(p.astype(np.float32), y.astype(np.uint8)) == pytest.approx(metric(p, y), abs=1e-3)
        assert metric(p.tolist(), y.tolist()) == metric(p, y)
        assert type(metric(p, y)) is float


@pytest.mark.parametrize(
    ("p", "y", "parts"),
    [
        (np.ones((3, 2)) / 2, [0, 1], ["(3, 2)", "(2,)"]),
        (np.ones(3), [0, 0, 0], ["(3,)"]),
        (np.ones((0, 2)), np.ones(0, dtype=int), ["empty", "(0, 2)"]),
        (np.ones((1, 0)), [0], ["empty", "(1, 0)"]),
        (np.ones((1, 2)) / 2, [2], ["0..1", "2..2"]),
        (np.ones((1, 2)) / 2, [-1], ["0..1", "-1..-1"]),
        (np.ones((1, 2)) / 2, [1.0], ["integers", "float64"]),
        ([[0.5, float("nan")]], [0], ["finite", "nan", "[0, 1]"]),
    ],
)
def test_wrong_input_is_named(p, y, parts):
    for metric in [*ALL, reliability]:
        with pytest.raises(UserError) as error:
            metric(p, y)
        assert all(part in str(error.value) for part in parts), str(error.value)


def test_wrong_bins_and_sets_are_named():
    p, y = answers(0)
    for metric in (ece, ace, reliability):
        with pytest.raises(UserError, match="bins must be at least 1, got 0"):
            metric(p, y, 0)
    with pytest.raises(UserError, match=r"got 2 of probabilities, 1 of labels"):
        ece_per_task([p, p], [y])
    with pytest.raises(UserError, match="got 0 of probabilities"):
        ece_per_task([], [])
