"""What a memory keeps that is filled between tasks: quotas of any capacity, herding by exhaustion, fair lots."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ider.memory.selection import SELECTIONS, Candidates, Selection, balanced, class_quota, herd, herding, task_quota

ALARM = 1e-6
quick = settings(deadline=None, max_examples=150)
each = pytest.mark.parametrize("policy", SELECTIONS.values(), ids=SELECTIONS)


def candidates(old: list[int], new: list[int], task_of: dict[int, int], seed: int = 0) -> Candidates:
    features = np.random.default_rng(seed).normal(size=(len(new), 3))
    return Candidates(np.array(old, np.int64), np.array(new, np.int64), task_of, lambda: features)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Candidates, int]:
    """Some tasks have gone by; what the memory holds of them may have been cut short, but fits into it."""
    tasks = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    bounds = np.cumsum([0, *tasks])
    task_of = {label: task for task, size in enumerate(tasks) for label in range(bounds[task], bounds[task] + size)}
    past, present = range(bounds[-2]), range(bounds[-2], bounds[-1])
    new = [label for label in present for _ in range(draw(st.integers(1, 9)))]
    old = draw(st.lists(st.sampled_from(past), max_size=15)) if past else []
    capacity = draw(st.integers(len(old), 40))
    return candidates(old, draw(st.permutations(new)), task_of), capacity


def kept(choice: tuple[np.ndarray, np.ndarray], given: Candidates) -> Counter[int]:
    """How many of each class there are afterwards."""
    stay, enter = choice
    return Counter([*given.old[stay].tolist(), *given.new[enter].tolist()])


@each
@quick
@given(situation=situations(), seed=st.integers(0, 9))
def test_a_choice_fits_names_nothing_twice_and_keeps_the_order_of_slots(
    policy: Selection, situation: tuple[Candidates, int], seed: int
) -> None:
    given, capacity = situation
    stay, enter = policy(given, capacity, np.random.default_rng(seed))
    assert len(stay) + len(enter) <= capacity
    assert len(set(enter.tolist())) == len(enter)
    assert (np.diff(stay) > 0).all()
    assert stay.dtype == enter.dtype == np.int64
    assert set(stay.tolist()) <= set(range(len(given.old)))
    assert set(enter.tolist()) <= set(range(len(given.new)))
    again = policy(given, capacity, np.random.default_rng(seed))
    assert all(np.array_equal(*two) for two in zip((stay, enter), again, strict=True))


@quick
@given(situation=situations())
def test_herding_keeps_the_first_of_old_classes_and_as_many_of_new_ones(situation: tuple[Candidates, int]) -> None:
    given, capacity = situation
    quota = capacity // len(given.task_of)
    choice = herding(given, capacity, np.random.default_rng(0))
    expected, met = [], Counter()
    for slot, label in enumerate(given.old.tolist()):
        met[label] += 1
        expected += [slot] if met[label] <= quota else []
    assert choice[0].tolist() == expected
    have = Counter([*given.old.tolist(), *given.new.tolist()])
    assert kept(choice, given) == +Counter({label: min(quota, have[label]) for label in given.task_of})


def by_exhaustion(features: np.ndarray, count: int) -> list[int]:
    """Try every candidate at every place."""
    mean, chosen = features.mean(0), []
    for _ in range(count):
        left = [row for row in range(len(features)) if row not in chosen]
        distance = [np.linalg.norm(mean - features[[*chosen, row]].mean(0)) for row in left]
        chosen.append(left[int(np.argmin(distance))])
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_herding_is_greedy_and_a_shorter_herd_is_the_beginning_of_a_longer_one(seed: int) -> None:
    features = np.random.default_rng(seed).normal(size=(17, 6))
    whole = herd(features, 17)
    assert whole.tolist() == by_exhaustion(features, 17)
    assert sorted(whole.tolist()) == list(range(17))
    for count in range(17):
        assert herd(features, count).tolist() == whole[:count].tolist()


def test_herding_by_hand() -> None:
    """On a line with the mean 3: first 4; with it 1 gives 2.5 and 0 gives 2; with both 0 gives 1.7 and 10 gives 5."""
    line = np.array([[0.0], [1], [4], [10], [0]])
    assert line.mean() == 3
    assert herd(line, 3).tolist() == [2, 1, 0]


def test_the_exemplars_of_a_class_depend_on_no_other_class() -> None:
    given = candidates([], [0, 1, 0, 1, 0, 1, 0, 1, 1], {0: 0, 1: 0})
    _, enter = herding(given, 6, np.random.default_rng(0))
    features = given.features()
    for label, picked in ((0, enter[:3]), (1, enter[3:])):
        where = np.flatnonzero(given.new == label)
        assert picked.tolist() == where[by_exhaustion(features[where], 3)].tolist()


@quick
@given(situation=situations(), seed=st.integers(0, 9))
def test_class_quota_gives_what_is_left_over_to_new_classes(situation: tuple[Candidates, int], seed: int) -> None:
    given, capacity = situation
    quota = capacity // len(given.task_of)
    choice = class_quota(given, capacity, np.random.default_rng(seed))
    counts, have = kept(choice, given), Counter(given.new.tolist())
    for label, count in Counter(given.old.tolist()).items():
        assert counts[label] == min(quota, count)
    room = capacity - len(choice[0])
    share, extra = divmod(room, len(have))
    assert all(min(share, have[label]) <= counts[label] <= share + 1 for label in have)
    assert sum(counts[label] > share for label in have) <= extra
    if min(have.values()) > share:
        assert len(choice[1]) == room


def test_class_quota_by_hand() -> None:
    """Seven slots, four classes: one each for the old ones, five for the new ones, one of which gets three."""
    given = candidates([0, 0, 0, 1, 1, 0, 1], [2] * 6 + [3] * 6, {0: 0, 1: 0, 2: 1, 3: 1})
    lucky = Counter()
    for seed in range(400):
        stay, enter = class_quota(given, 7, np.random.default_rng(seed))
        assert stay.tolist() == [0, 3]
        counts = Counter(given.new[enter].tolist())
        assert sorted(counts.values()) == [2, 3]
        lucky[max(counts, key=lambda label: counts[label])] += 1
    assert stats.binomtest(lucky[2], 400).pvalue > ALARM


@pytest.mark.parametrize("policy", [class_quota, task_quota, balanced])
def test_new_samples_are_drawn_fairly(policy: Selection) -> None:
    given, taken = candidates([], [0] * 6 + [1] * 6, {0: 0, 1: 0}), Counter()
    for seed in range(1000):
        taken.update(policy(given, 4, np.random.default_rng(seed))[1].tolist())
    assert sum(taken.values()) == 4000
    assert stats.chisquare([taken[row] for row in range(12)]).pvalue > ALARM


@quick
@given(situation=situations(), seed=st.integers(0, 9))
def test_task_quota_keeps_the_first_of_each_task(situation: tuple[Candidates, int], seed: int) -> None:
    given, capacity = situation
    quota = capacity // (max(given.task_of.values()) + 1)
    stay, enter = task_quota(given, capacity, np.random.default_rng(seed))
    expected, met = [], Counter()
    for slot, label in enumerate(given.old.tolist()):
        met[given.task_of[label]] += 1
        expected += [slot] if met[given.task_of[label]] <= quota else []
    assert stay.tolist() == expected
    assert len(enter) == min(quota, len(given.new))


def sampled_greedily(labels: list[int], capacity: int) -> Counter[int]:
    """GDumb's sampler: a class below its share takes a slot, if need be one of the largest class."""
    counts: Counter[int] = Counter()
    classes = len(set(labels))
    for label in labels:
        if capacity and (sum(counts.values()) < capacity or counts[label] < capacity // classes):
            if sum(counts.values()) == capacity:
                counts[max(counts, key=lambda other: counts[other])] -= 1
            counts[label] += 1
    return counts


@quick
@given(situation=situations(), seed=st.integers(0, 9))
def test_balanced_is_as_even_as_the_samples_allow(situation: tuple[Candidates, int], seed: int) -> None:
    given, capacity = situation
    choice = balanced(given, capacity, np.random.default_rng(seed))
    labels = [*given.old.tolist(), *given.new.tolist()]
    counts, have = kept(choice, given), Counter(labels)
    assert sum(counts.values()) == min(capacity, len(labels))
    for one, other in product(have, have):
        assert counts[one] >= counts[other] - 1 or counts[one] == have[one]
    greedy = sampled_greedily(labels, capacity)
    share = capacity // len(have)
    assert all(counts[label] >= min(share, have[label]) for label in have)
    assert all(greedy[label] >= min(share, have[label]) for label in have)


FEWER = {  # samples kept in all, with 0 to 5 slots for four classes that came two a task
    "herding": [0, 0, 0, 0, 4, 4],
    "class-quota": [0, 1, 2, 3, 4, 5],
    "task-quota": [0, 0, 2, 2, 4, 4],
    "balanced": [0, 1, 2, 3, 4, 5],
}


@pytest.mark.parametrize("capacity", range(6))
@pytest.mark.parametrize("name", SELECTIONS)
def test_fewer_slots_than_classes(name: str, capacity: int) -> None:
    given = candidates([0, 1][:capacity], [2] * 3 + [3] * 2, {0: 0, 1: 0, 2: 1, 3: 1})
    found = kept(SELECTIONS[name](given, capacity, np.random.default_rng(0)), given)
    assert sum(found.values()) == FEWER[name][capacity]


@each
def test_a_class_that_comes_again_competes_with_its_own_past(policy: Selection) -> None:
    given = candidates([0, 0, 1, 1], [1, 1, 1, 2, 2, 2], {0: 0, 1: 0, 2: 1})
    found = kept(policy(given, 6, np.random.default_rng(0)), given)
    assert sum(found.values()) == 6
    if policy is not task_quota:
        assert found == Counter({0: 2, 1: 2, 2: 2})
