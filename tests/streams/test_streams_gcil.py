"""The `gcil` stream: the published phases, no image twice, labels in order of appearance, nested tests."""

import numpy as np
import pytest

from ider import Stream, Task, UserError, gcil
from ider.data.datasets import Dataset, Split
from ider.streams.gcil import Sampler, draw_phases

# Section 3.3 of the specification: obtained from the reference sampler alone, seeded with 1993 before the first phase.
UNIFORM_CLASSES = [34, 40, 25, 30, 1, 38, 11, 20, 16, 28, 6, 50, 47, 3, 28, 39, 17, 15, 41, 17]
UNIFORM_IMAGES = [1000] * 4 + [500] + [1000] * 9 + [993] + [1000] * 4 + [971]
UNIFORM_SEEN = [34, 66, 76, 80, 81, 90, 92, 93, 94, 94, 95, 98, 98, 98, 98, 99, 99, 99, 100, 100]
LONGTAIL_CLASSES = [34, 40, 39, 38, 37, 35, 1, 13, 38, 7, 41, 23, 48, 39, 29, 40, 41, 20, 14, 47]
LONGTAIL_IMAGES = [1000] * 6 + [354] + [1000] * 9 + [974, 976, 1000, 958]
LONGTAIL_SEEN = [34, 66, 77, 86, 90, 93, 93, 95, 96, 97, 97, 98, 98, 99, 100, 100, 100, 100, 100, 100]

SORTED = np.repeat(np.arange(100), 500)


def phases(labels: np.ndarray, weights: str = "uniform") -> tuple[list[int], list[int], list[int]]:
    drawn = list(draw_phases(labels, Sampler(weights=weights)))
    seen = [len({label for chosen, _ in drawn[: phase + 1] for label in chosen}) for phase in range(len(drawn))]
    return [len(chosen) for chosen, _ in drawn], [len(indices) for _, indices in drawn], seen


def test_the_uniform_phases_are_the_published_ones() -> None:
    assert phases(SORTED) == (UNIFORM_CLASSES, UNIFORM_IMAGES, UNIFORM_SEEN)


def test_the_uniform_phases_do_not_depend_on_the_order_of_the_file() -> None:
    shuffled = np.random.default_rng(0).permutation(SORTED)
    assert phases(shuffled) == (UNIFORM_CLASSES, UNIFORM_IMAGES, UNIFORM_SEEN)


def test_the_longtail_phases_are_the_published_ones() -> None:
    assert phases(SORTED, "longtail") == (LONGTAIL_CLASSES, LONGTAIL_IMAGES, LONGTAIL_SEEN)


@pytest.fixture(scope="module")
def stream() -> Stream:
    """20 classes of 50 + 5 images, each of which says its own number."""

    def part(count: int) -> Split:
        labels = np.repeat(np.arange(20), count)
        images = np.zeros((len(labels), 1, 2, 2), np.uint8)
        images[:, 0, 0, 0], images[:, 0, 0, 1] = labels, np.arange(len(labels)) % 251
        images[:, 0, 1, 0] = np.arange(len(labels)) // 251
        return Split(images, labels)

    dataset = Dataset(part(50), part(5), tuple(f"class {number}" for number in range(20)))
    return gcil(dataset, Sampler(samples=60, most_classes=8), phases=10)


def number_of(images: np.ndarray) -> np.ndarray:
    return images[:, 0, 0, 1].astype(int) + 251 * images[:, 0, 1, 0].astype(int)


def test_no_image_comes_twice(stream: Stream) -> None:
    numbers = np.concatenate([number_of(task.images) for task in stream.tasks])
    assert len(set(numbers.tolist())) == len(numbers)


def test_labels_count_up_in_order_of_appearance_and_name_their_class(stream: Stream) -> None:
    seen = 0
    for task in stream.tasks:
        new = sorted(set(task.labels.tolist()) - set(range(seen)))
        assert new == list(range(seen, seen + len(new)))
        seen += len(new)
        originals = [stream.class_names[label] for label in task.labels]
        assert originals == [f"class {pixel}" for pixel in task.images[:, 0, 0, 0]]


def test_the_test_set_of_a_phase_is_all_of_every_class_so_far(stream: Stream) -> None:
    assert stream.nested
    seen: set[int] = set()
    for task, test in zip(stream.tasks, stream.tests, strict=True):
        seen |= set(task.labels.tolist())
        assert np.bincount(test.labels).tolist() == [5] * len(seen)
        assert (stream.tests[-1].images[: len(test)] == test.images).all()
        assert [stream.class_names[label] for label in test.labels] == [f"class {p}" for p in test.images[:, 0, 0, 0]]


def test_groups_are_the_classes_that_came_first_with_each_phase(stream: Stream) -> None:
    groups = stream.groups()
    assert sum(groups, ()) == tuple(range(stream.classes))
    for group, task in zip(groups, stream.tasks, strict=True):
        assert set(group) <= set(task.labels.tolist())


def test_groups_stay_where_nothing_of_a_class_was_held_out_at_first() -> None:
    """Three images of class 2 give none to hold out; more of them come in the second phase."""
    counts = [{0: 10, 1: 10, 2: 3}, {0: 10, 2: 10, 3: 10}]
    labels = [np.repeat(list(count), list(count.values())) for count in counts]
    tasks = tuple(Task(np.zeros((len(each), 1, 2, 2), np.uint8), each) for each in labels)
    tests = tuple(Task(np.zeros((count, 1, 2, 2), np.uint8), np.arange(count)) for count in (3, 4))
    stream = Stream(tasks, tests, tuple("abcd"), nested=True).holding_out(0.2)
    assert stream.validating().tests[0].classes == (0, 1)
    assert stream.validating().groups() == stream.groups() == ((0, 1, 2), (3,))


def test_impossible_streams_are_refused() -> None:
    few = np.repeat(np.arange(4), 10)
    with pytest.raises(UserError, match=r"used up after \d+ of 50 phases"):
        list(draw_phases(few, Sampler(samples=20), 50))
    with pytest.raises(UserError, match="2 samples cannot show"):
        list(draw_phases(SORTED, Sampler(samples=2), 20))
