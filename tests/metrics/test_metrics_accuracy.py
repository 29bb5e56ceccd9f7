"""Stream accuracy against numbers by hand, the released code's loop, and the relations between the conventions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ider.errors import UserError
from ider.metrics import bwt, faa, ff_code, ff_paper, fwt

THREE = [[90.0], [60.0, 80.0], [70.0, 50.0, 85.0]]
PERCENT = st.floats(0, 100, allow_nan=False)


@st.composite
def matrices(draw, least=1, most=6):
    tasks = draw(st.integers(least, most))
    return [draw(st.lists(PERCENT, min_size=t + 1, max_size=t + 1)) for t in range(tasks)]


def released_forgetting(matrix, before=None):
    """The released loop, written out: rows padded with zeros, the pre-training entry appended to the row above it."""
    tasks = len(matrix)
    rows = [list(row) for row in matrix]
    if before is not None:
        for i in range(1, tasks):
            rows[i - 1].append(before[i])
    table = np.array([row + [0.0] * (tasks - len(row)) for row in rows])
    return np.mean([table[:, j].max() - table[-1, j] for j in range(tasks - 1)])


def test_by_hand():
    assert faa(THREE) == pytest.approx((70 + 50 + 85) / 3)
    assert ff_code(THREE) == pytest.approx((20 + 30) / 2)
    assert ff_paper(THREE) == pytest.approx((20 + 30) / 2)
    assert bwt(THREE) == pytest.approx((-20 - 30) / 2)


def test_the_two_forgettings_differ_where_an_old_task_improves_at_the_end():
    matrix = [[60.0], [50.0, 80.0], [70.0, 40.0, 90.0]]
    assert ff_code(matrix) == pytest.approx((0 + 40) / 2)
    assert ff_paper(matrix) == pytest.approx((-10 + 40) / 2)
    assert bwt(matrix) == pytest.approx((10 - 40) / 2)


def test_peak_after_learning_counts_for_forgetting_but_not_for_backward_transfer():
    matrix = [[50.0], [80.0, 70.0], [60.0, 70.0, 90.0]]
    assert ff_paper(matrix) == ff_code(matrix) == pytest.approx((20 + 0) / 2)
    assert bwt(matrix) == pytest.approx((10 + 0) / 2)


def test_before_enters_the_code_maximum_from_the_second_task_on():
    before = [99.0, 95.0, 99.0]
    assert ff_code(THREE, before) == pytest.approx((20 + 45) / 2)
    assert ff_code(THREE, [0.0, 0.0, 0.0]) == ff_code(THREE)
    assert ff_code(THREE, [float("nan"), 95.0, 0.0]) == ff_code(THREE, before)


def test_one_task():
    assert faa([[81.5]]) == 81.5
    assert ff_code([[81.5]]) == ff_code([[81.5]], [3.0]) == ff_paper([[81.5]]) == 0.0
    assert bwt([[81.5]]) is None
    assert fwt([10.0], [9.0]) is None


def test_joint_is_one_long_row():
    joint = [[70.0, 75.0, 71.0]]
    assert faa(joint) == pytest.approx(72.0)
    assert ff_code(joint) == ff_code(joint, [1.0, 2.0, 3.0]) == ff_paper(joint) == 0.0
    assert bwt(joint) is None


def test_forward_transfer_skips_the_first_task():
    assert fwt([50.0, 0.0, 4.0], [11.0, 9.0, 10.0]) == pytest.approx((-9 - 6) / 2)
    assert fwt([float("nan"), 0.0], [12.0, 10.0]) == pytest.approx(-10.0)


@given(matrices(least=2), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_equals_the_released_loop(matrix, random):
    before = [random.uniform(0, 100) for _ in matrix]
    assert ff_code(matrix) == pytest.approx(released_forgetting(matrix), abs=1e-9)
    assert ff_code(matrix, before) == pytest.approx(released_forgetting(matrix, before), abs=1e-9)


@given(matrices())
@settings(max_examples=60, deadline=None)
def test_relations(matrix):
    assert 0 <= faa(matrix) <= 100 + 1e-9
    assert ff_code(matrix) >= 0
    assert ff_paper(matrix) <= ff_code(matrix) + 1e-9
    transfer = bwt(matrix)
    assert (transfer is None) == (len(matrix) == 1)
    # The peak is at least the accuracy right after learning, so forgetting is at least the loss since then.
    assert transfer is None or ff_paper(matrix) >= -transfer - 1e-9


@given(matrices(least=2), PERCENT)
@settings(max_examples=60, deadline=None)
def test_a_shift_of_all_accuracies_moves_faa_alone(matrix, shift):
    moved = [[value + shift for value in row] for row in matrix]
    assert faa(moved) == pytest.approx(faa(matrix) + shift, abs=1e-9)
    assert ff_code(moved) == pytest.approx(ff_code(matrix), abs=1e-9)
    assert ff_paper(moved) == pytest.approx(ff_paper(matrix), abs=1e-9)
    assert bwt(moved) == pytest.approx(bwt(matrix), abs=1e-9)


@given(matrices(least=2), st.lists(PERCENT, min_size=6, max_size=6))
@settings(max_examples=60, deadline=None)
def test_before_never_lowers_forgetting(matrix, before):
    assert ff_code(matrix, before[: len(matrix)]) >= ff_code(matrix) - 1e-9


def test_nothing_forgotten_when_accuracy_only_rises():
    rising = [[10.0], [20.0, 30.0], [40.0, 50.0, 60.0]]
    assert ff_code(rising) == 0.0
    assert ff_paper(rising) == pytest.approx(-20.0)
    assert bwt(rising) == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: faa([]), ["at least one row", "0"]),
        (lambda: faa([[]]), ["at least one row"]),
        (lambda: ff_code([[1.0], [1.0]]), ["row 1", "2 entries", "(1,)"]),
        (lambda: bwt([[1.0, 2.0], [1.0, 2.0]]), ["row 0", "1 entries", "(2,)"]),
        (lambda: ff_paper([[1.0], [float("nan"), 2.0]]), ["row 1", "finite", "nan"]),
        (lambda: ff_code(THREE, [1.0, 2.0]), ["before", "expected 3", "got 2"]),
        (lambda: fwt([1.0, 2.0], [1.0]), ["got 2 and 1"]),
        (lambda: fwt([1.0, float("inf")], [1.0, 2.0]), ["before", "inf"]),
    ],
)
def test_wrong_input_is_named(call, parts):
    with pytest.raises(UserError) as error:
        call()
    assert all(part in str(error.value) for part in parts), str(error.value)
