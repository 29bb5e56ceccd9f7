"""Tasks and streams check what they are made of, and say what they got."""

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from ider import Stream, Task, UserError, split
from ider.data.datasets import digits
from ider.streams.stream import concatenate


def images(count: int = 3, shape: tuple[int, ...] = (1, 2, 2), value: int = 0) -> np.ndarray:
    return np.full((count, *shape), value, np.uint8)


def task(*labels: int, shape: tuple[int, ...] = (1, 2, 2), value: int = 0) -> Task:
    return Task(images(len(labels), shape, value), np.array(labels))


def test_a_task_takes_any_whole_labels_and_keeps_int64_in_contiguous_memory():
    for kind in (np.int8, np.uint8, np.int32, np.uint32, np.int64):
        made = Task(np.zeros((3, 2, 2, 1), np.uint8).transpose(0, 3, 1, 2), np.array([4, 0, 4], kind))
        assert made.labels.dtype == np.int64
        assert made.images.flags.c_contiguous
        assert made.images.shape == (3, 1, 2, 2)
        assert made.classes == (0, 4)
        assert len(made) == 3


def test_a_task_takes_lists_of_labels():
    assert Task(images(), [2, 1, 0]).labels.tolist() == [2, 1, 0]


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_at_the_end_are_recognised(channels: int) -> None:
    wrong = np.zeros((2, 8, 8, channels), np.uint8)
    with pytest.raises(UserError, match="have their channels last"):
        Task(wrong, np.zeros(2, int))
    assert Task(wrong.transpose(0, 3, 1, 2), np.zeros(2, int)).images.shape == (2, channels, 8, 8)


def test_a_task_shows_itself_in_one_line() -> None:
    assert repr(Task(np.zeros((3, 1, 8, 9), np.uint8), np.array([4, 0, 4]))) == "<Task: 3 images of 1x8x9, 2 classes>"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (images().astype(np.float32), ["float32", "(3, 1, 2, 2)", "uint8"]),
        (images().astype(np.int64), ["int64"]),
        (images()[:, 0], ["uint8", "(3, 2, 2)", "(N, channels, height, width)"]),
        (images()[0, 0, 0], ["(2,)"]),
        ([[1.5, 2.0]], ["float64", "(1, 2)"]),
    ],
)
def test_images_of_another_kind_are_refused_by_dtype_and_shape(wrong, said):
    with pytest.raises(UserError) as error:
        Task(wrong, np.zeros(len(wrong), np.int64))
    assert all(word in str(error.value) for word in said)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros(2, np.int64), ["3 images", "(2,)"]),
        (np.zeros(4, np.int64), ["3 images", "(4,)"]),
        (np.zeros(3), ["float64", "(3,)"]),
        (np.zeros(3, bool), ["bool"]),
        (np.zeros((3, 1), np.int64), ["int64", "(3, 1)"]),
        (["a", "b", "c"], ["<U1"]),
        (np.int64(0), ["()"]),
    ],
)
def test_labels_of_another_kind_or_number_are_refused_with_both_values(wrong, said):
    with pytest.raises(UserError) as error:
        Task(images(3), wrong)
    assert all(word in str(error.value) for word in said)


def test_negative_labels_are_refused():
    with pytest.raises(UserError, match="labels from 0"):
        task(0, -1, 2)


def test_an_empty_task_is_refused():
    with pytest.raises(UserError, match="at least one image"):
        Task(images(0), np.zeros(0, np.int64))


def test_a_stream_needs_tests():
    with pytest.raises(UserError, match="at least one task"):
        Stream((task(0),), (), ("a",))


def test_a_stream_needs_tasks():
    with pytest.raises(UserError, match="at least one task"):
        Stream((), (task(0),), ("a",))


@pytest.mark.parametrize("parts", [("tasks",), ("tests",), ("tasks", "tests")])
def test_images_of_two_shapes_are_refused_with_both(parts):
    other = {"tasks": (task(0), task(1)), "tests": (task(0), task(1))}
    for part in parts:
        other[part] = (task(0), task(1, shape=(3, 2, 2)))
    with pytest.raises(UserError) as error:
        Stream(**other, class_names=("a", "b"))
    assert "(1, 2, 2)" in str(error.value)
    assert "(3, 2, 2)" in str(error.value)


@pytest.mark.parametrize("which", ["tasks", "tests"])
def test_a_label_without_a_name_is_refused_with_both_numbers(which):
    parts = {"tasks": (task(0, 1),), "tests": (task(0, 1),)}
    parts[which] = (task(0, 7),)
    with pytest.raises(UserError, match="label 7 occurs, but the stream names 2 classes"):
        Stream(**parts, class_names=("a", "b"))


def test_joined_is_the_same_data_as_one_task_with_the_tests_apart():
    tasks, tests = (task(0, 1, value=1), task(2, value=2), task(3, 0, value=3)), (task(0), task(1, 2), task(3))
    stream = Stream(tasks, tests, ("a", "b", "c", "d"))
    joined = stream.joined()
    assert len(joined.tasks) == 1
    assert joined.tasks[0].labels.tolist() == [0, 1, 2, 3, 0]
    assert joined.tasks[0].images[:, 0, 0, 0].tolist() == [1, 1, 2, 3, 3]
    assert joined.tests is stream.tests
    assert joined.class_names == stream.class_names
    assert len(stream.tasks) == 3


def test_concatenate_keeps_images_and_labels_together():
    both = concatenate([task(4, 5, value=9), task(0, value=1)])
    assert both.labels.tolist() == [4, 5, 0]
    assert both.images.mean((1, 2, 3)).tolist() == [9, 9, 1]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_what_is_held_out_is_a_share_of_each_class_and_not_learnt(share: float) -> None:
    stream = split(digits(), 5)
    kept = stream.holding_out(share)
    for whole, learnt, out in zip(stream.tasks, kept.tasks, kept.held_out, strict=True):
        counts = np.bincount(whole.labels)
        np.testing.assert_array_equal(np.bincount(out.labels), np.floor(share * counts))
        rows = sorted(row.tobytes() for part in (learnt, out) for row in part.images)
        assert rows == sorted(row.tobytes() for row in whole.images)
    assert all(a.images is b.images for a, b in zip(stream.tests, kept.tests, strict=True))
    again = stream.holding_out(share)
    assert all((a.images == b.images).all() for a, b in zip(kept.held_out, again.held_out, strict=True))


def test_validating_puts_the_held_out_images_in_the_place_of_the_tests() -> None:
    stream = split(digits(), 5).holding_out(0.2)
    assert stream.validating().tests == stream.held_out
    nested = replace(stream, tests=tuple(accumulate(stream.tests, lambda *two: concatenate(two))), nested=True)
    assert [len(test) for test in nested.validating().tests] == np.cumsum(
        [len(out) for out in stream.held_out]
    ).tolist()
    with pytest.raises(UserError, match=r"set stream\.hold_out"):
        split(digits(), 5).validating()


def test_a_share_that_a_task_cannot_give_is_named() -> None:
    with pytest.raises(UserError, match=r"stream\.hold_out is 0\.001"):
        split(digits(), 5).holding_out(0.001)
