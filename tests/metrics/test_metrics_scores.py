"""The summary of one evaluation: which metric is per task, which is pooled, and what it refuses."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ider.metrics as metrics
from ider.errors import UserError
from ider.metrics import Scored, score

KEYS = [
    "accuracy",
    "ece",
    "ece_pooled",
    "ace",
    "nll",
    "brier",
    "overconfidence",
    "aurc",
    "e_aurc",
    "auroc_error",
    "fpr95",
]


def task(seed, samples=50, classes=4):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 0.5), samples).astype(np.float32)
    labels = np.where(rng.random(samples) < 0.5, p.argmax(axis=1), rng.integers(classes, size=samples))
    return Scored(p, labels)


def test_exported_names():
    accuracy = "faa ff_code ff_paper bwt fwt"
    calibration = "ece ece_per_task ace nll brier overconfidence reliability confidence_and_correct"
    uncertainty = "aurc e_aurc auroc_error fpr95 aupr_success aupr_error idempotence_gap"
    assert sorted(metrics.__all__) == sorted(f"{accuracy} {calibration} {uncertainty} score Scored".split())
    assert all(getattr(metrics, name).__doc__ for name in metrics.__all__)


def test_ece_is_per_task_and_the_rest_pooled():
    tests = [task(0, 30), task(1, 80)]
    p, y = np.concatenate([t.probabilities for t in tests]), np.concatenate([t.labels for t in tests])
    ranked = metrics.confidence_and_correct(p, y)
    values = score(tests)
    assert list(values) == KEYS
    assert values["ece"] == metrics.ece_per_task([t.probabilities for t in tests], [t.labels for t in tests])
    assert values["ece_pooled"] == metrics.ece(p, y) != values["ece"]
    for name in ("ace", "nll", "brier", "overconfidence"):
        assert values[name] == getattr(metrics, name)(p, y)
    for name in ("aurc", "e_aurc", "auroc_error", "fpr95"):
        assert values[name] == getattr(metrics, name)(*ranked)


def test_by_hand():
    sure = Scored(np.array([[0.75, 0.25]] * 2), np.array([0, 1]))
    modest = Scored(np.array([[0.25, 0.75]] * 2), np.array([1, 1]))
    values = score([sure, modest])
    assert values["ece"] == pytest.approx(25.0)
    assert values["ece_pooled"] == values["ace"] == pytest.approx(0.0, abs=1e-9)
    assert values["overconfidence"] == pytest.approx(0.0, abs=1e-9)
    assert values["brier"] == pytest.approx((3 * 2 * 0.0625 + 2 * 0.5625) / 4)
    assert values["auroc_error"] == 0.5
    assert values["fpr95"] == 1.0


def test_undefined_is_none():
    right = score([Scored(np.eye(2), np.array([0, 1]))])
    assert right["auroc_error"] is None
    assert right["fpr95"] is None
    assert right["e_aurc"] == right["aurc"] == 0.0
    wrong = score([Scored(np.eye(2), np.array([1, 0]))])
    assert wrong["auroc_error"] is None
    assert wrong["fpr95"] is None
    assert wrong["e_aurc"] is None
    assert wrong["aurc"] == 1.0


def test_a_task_may_be_all_right_as_long_as_the_pool_is_not():
    easy, hard = Scored(np.eye(2), np.array([0, 1])), Scored(np.array([[0.6, 0.4]]), np.array([1]))
    values = score([easy, hard])
    assert values["auroc_error"] == 1.0
    assert values["fpr95"] == 0.0


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_finite_and_mean_of_tasks_at_least_pooled(seeds, samples):
    values = score([task(seed, samples) for seed in seeds])
    assert all(value is None or np.isfinite(value) for value in values.values())
    assert values["ece_pooled"] <= values["ece"] + 1e-9
    assert abs(values["overconfidence"]) <= values["ece_pooled"] + 1e-9


def test_one_task_scores_alike_per_task_and_pooled():
    values = score([task(5)])
    assert values["ece"] == values["ece_pooled"]


def test_inputs_are_left_alone():
    one = task(6)
    before = one.probabilities.copy(), one.labels.copy()
    score([one])
    assert (one.probabilities == before[0]).all()
    assert (one.labels == before[1]).all()
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.labels = before[1]


GOOD = Scored(np.array([[0.5, 0.5]]), np.array([1]))


@pytest.mark.parametrize(
    ("bad", "parts"),
    [
        (Scored(np.full((3, 2), 0.5), np.array([0, 1])), ["test set 1", "(3, 2)", "(2,)"]),
        (Scored(np.ones((0, 2)), np.ones(0, dtype=int)), ["test set 1", "empty", "(0, 2)"]),
        (Scored(np.full((1, 2), 0.5), np.array([2])), ["test set 1", "0..1", "2..2"]),
        (Scored(np.full((1, 2), 0.5), np.array([-1])), ["test set 1", "0..1", "-1..-1"]),
        (Scored(np.full((1, 2), 0.5), np.array([0.0])), ["test set 1", "integers", "float64"]),
        (Scored(np.array([[np.nan, 0.5]]), np.array([0])), ["test set 1", "finite", "nan"]),
        (Scored(np.array([[-1.5, 2.5]]), np.array([0])), ["test set 1", "0..1", "-1.5..2.5"]),
        (Scored(np.array([[0.5, 0.5], [0.5, 0.2]]), np.array([0, 0])), ["test set 1", "row 1", "0.7"]),
        (Scored(np.full((1, 4), 0.25), np.array([0])), ["same classes", "[2, 4]"]),
    ],
)
def test_wrong_input_is_named(bad, parts):
    with pytest.raises(UserError) as error:
        score([GOOD, bad])
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_no_test_set_is_an_error():
    with pytest.raises(UserError, match="got 0"):
        score([])
