"""Ranking of right and wrong answers against scikit-learn, definitions written out, and by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from ider.errors import UserError
from ider.metrics import aupr_error, aupr_success, aurc, auroc_error, e_aurc, fpr95, idempotence_gap

RANKED = [aurc, e_aurc, auroc_error, fpr95, aupr_success, aupr_error]
# Few distinct confidences: most samples are tied with others.
TIED = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=40)
UNTIED = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40, unique_by=lambda pair: pair[0])


def split(pairs):
    return np.array([c for c, _ in pairs], dtype=np.float64), np.array([right for _, right in pairs])


def random_case(seed, samples=300, decimals=12):
    rng = np.random.default_rng(seed)
    confidence = np.round(rng.random(samples), decimals)
    return confidence, rng.random(samples) < 0.3 + 0.5 * confidence


@pytest.mark.parametrize("decimals", [1, 2, 12])
@pytest.mark.parametrize("seed", range(4))
def test_equals_sklearn(seed, decimals):
    confidence, correct = random_case(seed, decimals=decimals)
    assert auroc_error(confidence, correct) == pytest.approx(roc_auc_score(correct, confidence), abs=1e-6)
    assert auroc_error(confidence, correct) == pytest.approx(roc_auc_score(~correct, -confidence), abs=1e-6)
    fpr, tpr, _ = roc_curve(correct, confidence, drop_intermediate=False)
    assert fpr95(confidence, correct) == pytest.approx(fpr[np.abs(tpr - 0.95).argmin()], abs=1e-6)
    precision, recall, _ = precision_recall_curve(correct, confidence)
    assert aupr_success(confidence, correct) == pytest.approx(auc(recall, precision), abs=1e-6)
    assert aupr_error(confidence, correct) == pytest.approx(average_precision_score(~correct, -confidence), abs=1e-6)


@given(TIED)
@settings(max_examples=60, deadline=None)
def test_ties_equal_sklearn(pairs):
    confidence, correct = split(pairs)
    assume(0 < correct.sum() < correct.size)
    assert auroc_error(confidence, correct) == pytest.approx(roc_auc_score(correct, confidence), abs=1e-9)
    precision, recall, _ = precision_recall_curve(correct, confidence)
    assert aupr_success(confidence, correct) == pytest.approx(auc(recall, precision), abs=1e-9)
    assert aupr_error(confidence, correct) == pytest.approx(average_precision_score(~correct, -confidence), abs=1e-9)


@given(TIED)
@settings(max_examples=60, deadline=None)
def test_auroc_is_the_chance_of_a_right_order(pairs):
    right, wrong = [c for c, good in pairs if good], [c for c, good in pairs if not good]
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(right, wrong)]
    expected = sum(wins) / len(wins) if wins else None
    assert auroc_error(*split(pairs)) == (None if expected is None else pytest.approx(expected, abs=1e-12))


@given(TIED)
@settings(max_examples=60, deadline=None)
def test_fpr95_is_the_nearest_point(pairs):
    confidence, correct = split(pairs)
    assume(0 < correct.sum() < correct.size)
    points = [(0, 0)] + [
        (int((correct & (confidence >= c)).sum()), int((~correct & (confidence >= c)).sum())) for c in confidence
    ]
    _, wrong = min((abs(20 * tp - 19 * int(correct.sum())), fp) for tp, fp in points)
    assert fpr95(confidence, correct) == wrong / (~correct).sum()


@given(TIED)
@settings(max_examples=60, deadline=None)
def test_aurc_is_the_mean_risk_of_the_surest(pairs):
    ranked = sorted(pairs, key=lambda pair: -pair[0])  # stable, as AURC is
    risks = [sum(not right for _, right in ranked[:k]) / k for k in range(1, len(ranked) + 1)]
    assert aurc(*split(pairs)) == pytest.approx(sum(risks) / len(risks), abs=1e-12)


def test_by_hand():
    confidence, correct = [0.6, 0.9, 0.8, 0.7], [True, True, False, True]
    assert aurc(confidence, correct) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert e_aurc(confidence, correct) == pytest.approx(
        (0 + 1 / 2 + 1 / 3 + 1 / 4) / 4 - (0.25 + 0.75 * math.log(0.75))
    )
    assert auroc_error(confidence, correct) == pytest.approx(1 / 3)
    assert fpr95(confidence, correct) == 1.0
    assert aupr_error(confidence, correct) == pytest.approx(1 / 3)
    # Precision 1, 1, 1/2, 2/3, 3/4 at recall 0, 1/3, 1/3, 2/3, 1.
    assert aupr_success(confidence, correct) == pytest.approx((1 + (1 / 2 + 2 / 3) / 2 + (2 / 3 + 3 / 4) / 2) / 3)


def test_fpr95_takes_the_nearest_point_and_not_the_first_above():
    # 100 right answers: .94 at the first threshold without an error, .97 at the next, which lets one of two through.
    confidence = [0.9] * 94 + [0.8] * 3 + [0.8] + [0.1] * 3 + [0.1]
    correct = [True] * 94 + [True] * 3 + [False] + [True] * 3 + [False]
    assert fpr95(confidence, correct) == 0.0


def test_fpr95_between_equally_near_points_takes_the_smaller():
    # Ten right answers: 9/10 and 10/10 are both .05 away; each further threshold lets an error through.
    confidence = [0.9] * 9 + [0.9] + [0.5] + [0.5] + [0.1]
    correct = [True] * 9 + [False] + [True] + [False] + [False]
    assert fpr95(confidence, correct) == pytest.approx(1 / 3)


def test_equal_confidences_keep_their_order_in_aurc():
    assert aurc([0.5, 0.5], [True, False]) == 0.25
    assert aurc([0.5, 0.5], [False, True]) == 0.75


def test_nothing_to_tell_apart():
    confidence, mixed = [0.5] * 4, [True, False, True, False]
    assert auroc_error(confidence, mixed) == 0.5
    assert fpr95(confidence, mixed) == 1.0
    assert aupr_error(confidence, mixed) == 0.5
    assert aupr_success(confidence, mixed) == pytest.approx(0.75)  # from (0, 1) to (1, 1/2)


@pytest.mark.parametrize("samples", [1, 3])
def test_all_correct(samples):
    confidence, correct = np.linspace(0.5, 1, samples), np.ones(samples, dtype=bool)
    values = [metric(confidence, correct) for metric in RANKED]
    assert values == [0.0, 0.0, None, None, 1.0, None]


@pytest.mark.parametrize("samples", [1, 3])
def test_all_wrong(samples):
    confidence, correct = np.linspace(0.5, 1, samples), np.zeros(samples, dtype=bool)
    values = [metric(confidence, correct) for metric in RANKED]
    assert values == [1.0, None, None, None, None, 1.0]


@pytest.mark.parametrize("right", [1, 5, 500])
@pytest.mark.parametrize("wrong", [1, 5, 500])
def test_perfect_and_inverted_order(right, wrong):
    correct = np.array([True] * right + [False] * wrong)
    surest_first = np.arange(right + wrong)[::-1].astype(float)
    assert auroc_error(surest_first, correct) == aupr_error(surest_first, correct) == 1.0
    assert aupr_success(surest_first, correct) == 1.0
    assert fpr95(surest_first, correct) == 0.0
    assert e_aurc(surest_first, correct) == pytest.approx(0, abs=1 / (right + wrong))
    assert auroc_error(-surest_first, correct) == 0.0
    assert fpr95(-surest_first, correct) == 1.0


@given(UNTIED, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_of_samples_is_irrelevant_without_ties(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    for metric in RANKED:
        assert metric(*split(shuffled)) == metric(*split(pairs))


@given(TIED)
@settings(max_examples=60, deadline=None)
def test_only_the_order_of_confidences_counts(pairs):
    confidence, correct = split(pairs)
    for metric in RANKED:
        assert metric(np.exp(3 * confidence) - 7, correct) == metric(confidence, correct)


@given(TIED)
@settings(max_examples=60, deadline=None)
def test_bounds_and_mirror(pairs):
    confidence, correct = split(pairs)
    values = [metric(confidence, correct) for metric in RANKED]
    assert all(value is None or -1e-12 <= value <= 1 + 1e-12 for value in values)
    assert all(value is None or type(value) is float for value in values)
    area, mirrored = auroc_error(confidence, correct), auroc_error(-confidence, correct)
    assert (area is None) == (mirrored is None) == (correct.all() or not correct.any())
    assert area is None or area + mirrored == pytest.approx(1.0)


@given(TIED)
@settings(max_examples=60, deadline=None)
def test_no_order_beats_the_perfect_one(pairs):
    _, correct = split(pairs)
    best = aurc(correct.astype(float), correct)
    assert best <= aurc(*split(pairs)) + 1e-12


def test_idempotence_gap_by_hand():
    first, second = [[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]
    assert idempotence_gap(first, second) == pytest.approx(math.sqrt(2) / 2)
    assert idempotence_gap(first, first) == 0.0


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_idempotence_gap_is_a_mean_distance(seed, samples, classes):
    rng = np.random.default_rng(seed)
    first, second = rng.dirichlet(np.ones(classes), samples), rng.dirichlet(np.ones(classes), samples)
    gap = idempotence_gap(first, second)
    expected = sum(math.dist(a, b) for a, b in zip(first, second, strict=True)) / samples
    assert gap == pytest.approx(expected, abs=1e-12)
    assert gap == idempotence_gap(second, first)
    assert 0 <= gap <= math.sqrt(2) + 1e-9


@pytest.mark.parametrize(
    ("confidence", "correct", "parts"),
    [
        ([0.5, 0.6], [True], ["(2,)", "(1,)"]),
        ([[0.5]], [[True]], ["(1, 1)"]),
        ([], [], ["nothing to rank", "(0,)"]),
        ([0.5, float("nan")], [True, False], ["finite", "nan", "[1]"]),
        ([0.5, 0.6], [2, 0], ["true or false", "0..2"]),
    ],
)
def test_wrong_input_is_named(confidence, correct, parts):
    for metric in RANKED:
        with pytest.raises(UserError) as error:
            metric(confidence, correct)
        assert all(part in str(error.value) for part in parts), str(error.value)


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), ["(2, 3)", "(2, 4)"]),
        (np.ones((0, 3)), np.ones((0, 3)), ["(0, 3)"]),
        (np.ones(3), np.ones(3), ["(3,)"]),
        ([[0.5]], [[float("inf")]], ["second", "inf"]),
        ([[float("nan")]], [[0.5]], ["first", "nan"]),
    ],
)
def test_wrong_answer_pairs_are_named(first, second, parts):
    with pytest.raises(UserError) as error:
        idempotence_gap(first, second)
    assert all(part in str(error.value) for part in parts), str(error.value)
