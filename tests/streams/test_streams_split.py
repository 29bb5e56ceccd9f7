"""The `split` stream: every sample in exactly one task, labels renumbered by the class order, tests apart."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ider.data.datasets import Dataset, Split, digits
from ider.errors import UserError
from ider.streams import Stream, StreamConfig, build, split

quick = settings(deadline=None, max_examples=60)


def dataset_of(train: list[int], test: list[int], classes: int) -> Dataset:
    """Images whose first pixels spell the number of the sample (test samples from 128 on) and its original label."""

    def part(labels: list[int], start: int) -> Split:
        numbers = np.arange(start, start + len(labels))
        pixels = np.stack([numbers, np.array(labels, int)], 1).astype(np.uint8)
        return Split(pixels.reshape(-1, 1, 1, 2), np.array(labels, np.int64))

    return Dataset(part(train, 0), part(test, 128), tuple(f"class {label}" for label in range(classes)))


@st.composite
def datasets(draw, classes):
    """At least one training and one test image of each class, in any order."""
    more = st.lists(st.integers(0, classes - 1), max_size=30)
    train, test = (draw(st.permutations([*range(classes), *draw(more)])) for _ in range(2))
    return dataset_of(train, test, classes)


@st.composite
def splits(draw):
    """A dataset, how to split it, and the sizes that this must give."""
    if draw(st.booleans()):
        size, tasks = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        return draw(datasets(size * tasks)), tasks, [size] * tasks
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    left_out = draw(st.integers(0, 2))
    return draw(datasets(sum(sizes) + left_out)), draw(st.sampled_from([list, tuple]))(sizes), sizes


order_seeds = st.one_of(st.just(-1), st.integers(0, 2**40))


def spelt(stream: Stream, parts: str) -> list[list[tuple[int, int, int]]]:
    """For each task the (number, original label, new label) of its samples."""
    return [
        [
            (int(number), int(old), int(new))
            for (number, old), new in zip(part.images[:, 0, 0], part.labels, strict=True)
        ]
        for part in getattr(stream, parts)
    ]


@quick
@given(splits(), order_seeds)
def test_every_sample_is_in_exactly_one_task_with_its_image(case, seed):
    dataset, tasks, sizes = case
    stream = split(dataset, tasks, seed)
    kept_names = set(stream.class_names)
    for parts, part, start in (("tasks", dataset.train, 0), ("tests", dataset.test, 128)):
        found = [(number, old) for rows in spelt(stream, parts) for number, old, _ in rows]
        expected = [
            (start + number, old)
            for number, old in enumerate(part.labels.tolist())
            if dataset.class_names[old] in kept_names
        ]
        assert sorted(found) == expected
    assert len(stream.tasks) == len(stream.tests) == len(sizes)
    if sum(sizes) == len(dataset.class_names):
        assert sum(map(len, stream.tasks)) == len(dataset.train.labels)
        assert sum(map(len, stream.tests)) == len(dataset.test.labels)


@quick
@given(splits(), order_seeds)
def test_labels_are_renumbered_one_to_one_and_ascend_task_by_task(case, seed):
    dataset, tasks, sizes = case
    stream = split(dataset, tasks, seed)
    bounds = np.cumsum([0, *sizes]).tolist()
    spans = [tuple(range(low, high)) for low, high in zip(bounds, bounds[1:], strict=False)]
    assert [task.classes for task in stream.tasks] == spans
    assert [test.classes for test in stream.tests] == spans
    pairs = {(old, new) for parts in ("tasks", "tests") for rows in spelt(stream, parts) for _, old, new in rows}
    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs}) == sum(sizes)


@quick
@given(splits(), order_seeds)
def test_class_names_follow_their_classes(case, seed):
    dataset, tasks, sizes = case
    stream = split(dataset, tasks, seed)
    assert stream.classes == len(stream.class_names) == sum(sizes)
    for parts in ("tasks", "tests"):
        for rows in spelt(stream, parts):
            assert all(stream.class_names[new] == dataset.class_names[old] for _, old, new in rows)


@quick
@given(splits())
def test_the_natural_order_leaves_labels_as_they_are(case):
    dataset, tasks, sizes = case
    for stream in (split(dataset, tasks), split(dataset, tasks, -1)):
        assert all(old == new for parts in ("tasks", "tests") for rows in spelt(stream, parts) for _, old, new in rows)
        assert stream.class_names == dataset.class_names[: sum(sizes)]


@quick
@given(splits(), st.integers(0, 2**40))
def test_an_order_seed_always_gives_the_same_stream(case, seed):
    dataset, tasks, _ = case
    one, other = split(dataset, tasks, seed), split(dataset, tasks, seed)
    assert one.class_names == other.class_names
    assert spelt(one, "tasks") == spelt(other, "tasks")
    assert spelt(one, "tests") == spelt(other, "tests")


def test_order_seeds_give_different_orders_and_reach_every_class_first():
    dataset = dataset_of(list(range(6)), list(range(6)), 6)
    orders = {split(dataset, 6, seed).class_names for seed in range(60)}
    assert len(orders) > 50
    assert {order[0] for order in orders} == set(dataset.class_names)


@quick
@given(splits(), order_seeds)
def test_a_dataset_is_left_as_it_was(case, seed):
    dataset, tasks, _ = case
    before = [array.copy() for part in (dataset.train, dataset.test) for array in (part.images, part.labels)]
    split(dataset, tasks, seed)
    after = [array for part in (dataset.train, dataset.test) for array in (part.images, part.labels)]
    assert all((old == new).all() for old, new in zip(before, after, strict=True))


def test_a_single_task_holds_everything_in_the_order_of_the_dataset():
    dataset = digits()
    stream = split(dataset, 1)
    assert (stream.tasks[0].images == dataset.train.images).all()
    assert (stream.tests[0].labels == dataset.test.labels).all()


@pytest.mark.parametrize("tasks", [0, -1, 4, 7, 13])
def test_an_impossible_number_of_tasks_names_both_numbers_and_the_possible_ones(tasks):
    dataset = dataset_of(list(range(12)), list(range(12)), 12)
    if tasks == 4:
        assert len(split(dataset, tasks).tasks) == 4
        return
    with pytest.raises(UserError) as error:
        split(dataset, tasks)
    message = str(error.value)
    assert "12 classes" in message
    assert f"{tasks} equal tasks" in message
    assert "[1, 2, 3, 4, 6, 12]" in message
    assert ("stream.sizes=" in message) == (1 < tasks < 12)


def test_sizes_that_an_error_proposes_deal_out_all_classes() -> None:
    dataset = dataset_of(list(range(7)), list(range(7)), 7)
    with pytest.raises(UserError, match=re.escape("stream.sizes=[3,2,2]")):
        split(dataset, 3)
    assert len(split(dataset, [3, 2, 2]).class_names) == 7


@pytest.mark.parametrize("sizes", [[], [2, 0, 1], [3, -1], [5, 4, 4], (13,)])
def test_impossible_task_sizes_name_the_sizes_and_the_number_of_classes(sizes):
    dataset = dataset_of(list(range(12)), list(range(12)), 12)
    with pytest.raises(UserError) as error:
        split(dataset, sizes)
    assert str(list(sizes)) in str(error.value)
    assert "12 classes" in str(error.value)


def test_a_negative_order_seed_is_a_users_mistake():
    with pytest.raises(UserError, match="-2"):
        split(digits(), 5, -2)


def test_the_number_of_tasks_may_be_a_numpy_integer():
    assert len(split(digits(), np.int64(5)).tasks) == 5


def test_the_named_benchmark_is_the_split_of_its_dataset():
    stream, expected = build(StreamConfig(tasks=5, order_seed=3)), split(digits(), 5, 3)
    assert stream.class_names == expected.class_names
    for one, other in zip((*stream.tasks, *stream.tests), (*expected.tasks, *expected.tests), strict=True):
        assert (one.images == other.images).all()
        assert (one.labels == other.labels).all()
    assert [len(part) for part in (stream.tasks, stream.tests)] == [5, 5]
    assert sum(map(len, stream.tasks)) == 1258
    assert sum(map(len, stream.tests)) == 539


def test_an_unknown_dataset_suggests_the_near_one():
    with pytest.raises(UserError, match="unknown dataset 'digit'; did you mean 'digits'"):
        build(StreamConfig(data="digit"))
