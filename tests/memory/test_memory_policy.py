"""Memory policies: who is accepted, which slot is overwritten, and that the host's books agree with the traffic.

Statistical bounds use fixed seeds; their false-alarm rate, had the seed been random, is `ALARM` a test.
"""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ider.memory.policy import DISCARD, EMPTY, POLICIES, Policy, Slots, class_balanced, reservoir

ALARM = 1e-6
quick = settings(deadline=None, max_examples=60)
both = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
label_lists = st.lists(st.integers(0, 4), max_size=50).map(lambda found: np.array(found, np.int64))


def within_binomial_bounds(counts: np.ndarray, trials: int, chance: np.ndarray) -> None:
    """Every count within the two-sided quantiles of its binomial, at a rate of `ALARM` for all of them together."""
    tail = ALARM / (2 * len(counts))
    low, high = stats.binom.ppf(tail, trials, chance), stats.binom.isf(tail, trials, chance)
    assert (low <= counts).all()
    assert (counts <= high).all()


def is_uniform(counts: np.ndarray) -> None:
    """A chi-square test against equal chances."""
    assert stats.chisquare(counts).pvalue > ALARM


def offer_in_chunks(policy: Policy, slots: Slots, labels: np.ndarray, size: int, rng: np.random.Generator):
    """All targets and the slots afterwards, the labels offered `size` at a time."""
    targets = []
    for start in range(0, len(labels), size):
        found, slots = policy(slots, labels[start : start + size], rng)
        targets.append(found)
    return np.concatenate(targets), slots


@pytest.mark.parametrize("size", [1, 7, 60])
def test_reservoir_keeps_every_position_equally_often(size):
    capacity, count, trials = 9, 60, 1500
    rng = np.random.default_rng(1)
    positions = np.arange(count)
    kept = np.zeros(count, np.int64)
    for _ in range(trials):
        _, slots = offer_in_chunks(reservoir, Slots.empty(capacity), positions, size, rng)
        assert len(set(slots.labels)) == capacity
        kept[slots.labels] += 1
    within_binomial_bounds(kept, trials, np.full(count, capacity / count))
    # The sum is fixed, so the counts are correlated by -1/(count - 1): this much makes it a chi-square statistic.
    chance = capacity / count
    statistic = (((kept - trials * chance) ** 2) / (trials * chance * (1 - chance))).sum() * (count - 1) / count
    assert stats.chi2.sf(statistic, count - 1) > ALARM


@both
@pytest.mark.parametrize("size", [1, 13, 80])
def test_sample_n_is_accepted_with_chance_capacity_over_n_plus_1(policy, size):
    capacity, count, trials = 8, 80, 1200
    rng = np.random.default_rng(2)
    labels = np.arange(count) % 5
    accepted = np.zeros(count, np.int64)
    for _ in range(trials):
        targets, _ = offer_in_chunks(policy, Slots.empty(capacity), labels, size, rng)
        accepted += targets != DISCARD
    assert (accepted[:capacity] == trials).all()
    numbers = np.arange(capacity, count)
    within_binomial_bounds(accepted[capacity:], trials, capacity / (numbers + 1))


@both
def test_sample_n_is_accepted_independently_of_its_label(policy):
    capacity, offered, trials = 6, 30, 4000
    rng = np.random.default_rng(3)
    slots = Slots(np.array([0, 0, 0, 0, 0, 1]), offered)
    counts = [sum(policy(slots, np.array([label]), rng)[0][0] != DISCARD for _ in range(trials)) for label in (0, 1, 2)]
    within_binomial_bounds(np.array(counts), trials, np.full(3, capacity / (offered + 1)))


def test_reservoir_overwrites_every_slot_equally_often():
    capacity, offered = 12, 40
    rng = np.random.default_rng(4)
    slots = Slots(np.zeros(capacity, np.int64), offered)
    targets = np.concatenate([reservoir(slots, np.zeros(1, np.int64), rng)[0] for _ in range(8000)])
    is_uniform(np.bincount(targets[targets != DISCARD], minlength=capacity))


@both
@quick
@given(capacity=st.integers(0, 20), labels=label_lists, size=st.integers(1, 60))
def test_slots_fill_in_order_before_anything_is_overwritten(policy, capacity, labels, size):
    targets, slots = (
        offer_in_chunks(policy, Slots.empty(capacity), labels, size, np.random.default_rng(0))
        if len(labels)
        else policy(Slots.empty(capacity), labels, np.random.default_rng(0))
    )
    fills = min(capacity, len(labels))
    assert targets[:fills].tolist() == list(range(fills))
    assert slots.filled == fills
    assert (slots.labels[:fills] != EMPTY).all()
    assert (slots.labels[fills:] == EMPTY).all()


@both
@quick
@given(
    capacity=st.integers(0, 12), before=label_lists, labels=label_lists, size=st.integers(1, 60), seed=st.integers(0, 9)
)
def test_labels_afterwards_are_those_of_the_targets_applied_one_by_one(policy, capacity, before, labels, size, seed):
    rng = np.random.default_rng(seed)
    _, slots = policy(Slots.empty(capacity), before, rng)
    kept, offered = slots.labels.tolist(), slots.offered
    for start in range(0, len(labels), size):
        chunk = labels[start : start + size]
        targets, slots = policy(slots, chunk, rng)
        assert len(targets) == len(chunk)
        for target, label in zip(targets.tolist(), chunk.tolist(), strict=True):
            assert target == DISCARD or 0 <= target < capacity
            if target != DISCARD:
                kept[target] = label
        assert slots.labels.tolist() == kept
    assert slots.capacity == len(kept) == capacity
    assert slots.offered == offered + len(labels)
    assert slots.filled == min(capacity, offered + len(labels))


@quick
@given(capacity=st.integers(1, 12), before=label_lists, labels=label_lists, seed=st.integers(0, 9))
def test_class_balanced_takes_slots_of_the_largest_classes_only(capacity, before, labels, seed):
    rng = np.random.default_rng(seed)
    _, slots = class_balanced(Slots.empty(capacity), before, rng)
    kept = slots.labels.tolist()
    targets, _ = class_balanced(slots, labels, rng)
    for number, (target, label) in enumerate(zip(targets.tolist(), labels.tolist(), strict=True), slots.offered):
        if number >= capacity and target != DISCARD:
            assert kept.count(kept[target]) == max(kept.count(name) for name in kept)
        if target != DISCARD:
            kept[target] = label


@quick
@given(capacity=st.integers(2, 12), labels=label_lists, seed=st.integers(0, 9))
def test_class_balanced_never_lets_the_one_largest_class_grow(capacity, labels, seed):
    rng = np.random.default_rng(seed)
    slots = Slots.empty(capacity)
    for label in labels:
        before, full = np.bincount(slots.labels[: slots.filled], minlength=5), slots.filled == capacity
        _, slots = class_balanced(slots, np.array([label]), rng)
        after = np.bincount(slots.labels[: slots.filled], minlength=5)
        if full and (before == before.max()).sum() == 1:
            assert after[before.argmax()] <= before.max()


@pytest.mark.parametrize("classes", [3, 7, 10])
@pytest.mark.parametrize("size", [1, 32, 4000])
def test_class_balanced_evens_out_a_uniform_stream(classes, size):
    # By induction no gap is ever above 2 once balanced: an accepted sample of a tied largest class opens one of 2 at
    # most, and that class alone shrinks from then on.
    rng = np.random.default_rng(5)
    labels = rng.integers(0, classes, 4000)
    _, slots = offer_in_chunks(class_balanced, Slots.empty(50), labels, size, rng)
    counts = np.bincount(slots.labels, minlength=classes)
    assert counts.sum() == 50
    assert counts.max() - counts.min() <= 2


def test_class_balanced_gives_a_late_class_a_slot_for_every_accepted_sample():
    labels = np.array([0] * 4000 + [1] * 400)
    targets, slots = class_balanced(Slots.empty(40), labels, np.random.default_rng(6))
    accepted = int((targets[4000:] != DISCARD).sum())
    assert 0 < accepted <= 20  # below a half of the memory class 0 remains the largest and makes all the room
    assert (slots.labels == 1).sum() == accepted
    _, slots = class_balanced(slots, np.ones(100_000, np.int64), np.random.default_rng(7))
    assert sorted(np.bincount(slots.labels)) in ([20, 20], [19, 21])


def searching(slots: Slots, labels: np.ndarray, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Class-balanced by search, from the reservoir's and the same random numbers: targets and labels afterwards."""
    targets, kept = reservoir(slots, labels, rng)[0].tolist(), slots.labels.tolist()
    fills = max(0, min(len(labels), slots.capacity - slots.offered))
    for place in range(fills):
        kept[targets[place]] = int(labels[place])
    held = {name: [slot for slot, label in enumerate(kept) if label == name] for name in {*kept, *labels.tolist()}}
    held.pop(EMPTY, None)
    accepted = [place for place in range(fills, len(labels)) if targets[place] != DISCARD]
    for place, choice in zip(accepted, rng.random(len(accepted)), strict=True):
        most = max(len(found) for found in held.values())
        tied = [(name, position) for name in sorted(held) if len(held[name]) == most for position in range(most)]
        name, position = tied[int(choice * len(tied))]
        held[name][position], held[name][-1] = held[name][-1], held[name][position]
        targets[place] = held[name].pop()
        held[int(labels[place])].append(targets[place])
        kept[targets[place]] = int(labels[place])
    return targets, kept


@settings(deadline=None, max_examples=200)
@given(capacity=st.integers(0, 15), before=label_lists, labels=label_lists, seed=st.integers(0, 99))
def test_class_balanced_is_what_a_search_of_the_largest_classes_gives(capacity, before, labels, seed):
    _, slots = class_balanced(Slots.empty(capacity), before, np.random.default_rng(seed))
    expected = searching(slots, labels, np.random.default_rng(seed))
    targets, after = class_balanced(slots, labels, np.random.default_rng(seed))
    assert (targets.tolist(), after.labels.tolist()) == expected


@pytest.mark.parametrize("classes", [1, 2, 9, 40])
def test_class_balanced_is_what_a_search_gives_call_after_call(classes):
    slots = Slots.empty(40)
    for call, chunk in enumerate(np.array_split(np.random.default_rng(14).integers(0, classes, 1500), 6)):
        expected = searching(slots, chunk, np.random.default_rng(call))
        targets, slots = class_balanced(slots, chunk, np.random.default_rng(call))
        assert (targets.tolist(), slots.labels.tolist()) == expected


@pytest.mark.parametrize("incoming", [0, 1, 2, 9])
def test_class_balanced_overwrites_any_slot_of_any_tied_class_equally_often(incoming):
    labels = np.array([0, 2, 1, 1, 0, 5, 1, 2, 0])
    slots, rng = Slots(labels, len(labels)), np.random.default_rng(7 + incoming)
    targets = np.array([class_balanced(slots, np.array([incoming]), rng)[0][0] for _ in range(5000)])
    tied = np.flatnonzero(labels <= 1)  # classes 0 and 1 have three slots each; the incoming class is not exempt
    assert set(targets) == {DISCARD, *tied}
    is_uniform(np.bincount(targets[targets != DISCARD], minlength=len(labels))[tied])


def test_class_balanced_overwrites_uniformly_also_within_one_call():
    # The third sample of a call meets slots that the first two have moved about.
    labels, counts = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.zeros(8, np.int64)
    rng = np.random.default_rng(8)
    for _ in range(6000):
        kept = labels.copy()
        targets, _ = class_balanced(Slots(labels, 8), np.array([0, 1, 0]), rng)
        for target, label in zip(targets[:2], (0, 1), strict=True):
            if target != DISCARD:
                kept[target] = label
        ones, zeros = (kept == 1).sum(), (kept == 0).sum()
        if targets[2] != DISCARD and ones == zeros:
            counts[targets[2]] += 1
    assert counts.sum() > 2000
    is_uniform(counts)


@both
@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_a_memory_of_no_slots_discards_everything(policy, count):
    targets, slots = policy(Slots.empty(0), np.zeros(count, np.int64), np.random.default_rng(0))
    assert targets.tolist() == [DISCARD] * count
    assert (slots.capacity, slots.filled, slots.offered) == (0, 0, count)


@both
def test_a_memory_of_one_slot_keeps_the_last_accepted(policy):
    labels = np.arange(200)
    targets, slots = policy(Slots.empty(1), labels, np.random.default_rng(9))
    accepted = np.flatnonzero(targets == 0)
    assert accepted[0] == 0
    assert set(targets) == {DISCARD, 0}
    assert slots.labels.tolist() == [accepted[-1]]


@both
def test_a_memory_smaller_than_the_batch_fills_and_overwrites_in_one_call(policy):
    labels = np.arange(64) % 4
    targets, slots = policy(Slots.empty(5), labels, np.random.default_rng(10))
    assert targets[:5].tolist() == [0, 1, 2, 3, 4]
    assert targets.max() == 4
    assert (targets[5:] != DISCARD).any()
    assert (slots.filled, slots.offered) == (5, 64)


@both
def test_policies_are_pure(policy):
    labels, before = np.arange(50) % 3, np.array([0, 0, 1, 2, 2, EMPTY, EMPTY])
    results = []
    for _ in range(2):
        slots = Slots(before.copy(), 5)
        offered = labels.copy()
        results.append(policy(slots, offered, np.random.default_rng(11)))
        assert (slots.labels == before).all()
        assert slots.offered == 5
        assert (offered == labels).all()
    (targets, after), (again, after_again) = results
    assert (targets == again).all()
    assert (after.labels == after_again.labels).all()
    assert after.offered == after_again.offered == 55


@both
def test_policies_take_read_only_arrays(policy):
    labels, kept = np.arange(30) % 3, np.array([0, 1, 2])
    labels.flags.writeable = kept.flags.writeable = False
    targets, after = policy(Slots(kept, 3), labels, np.random.default_rng(12))
    assert len(targets) == 30
    assert after.offered == 33


@both
def test_a_million_samples_are_planned_in_seconds(policy, record_property):
    capacity, count, classes = 100_000, 1_000_000, 100
    labels = np.repeat(np.arange(classes), count // classes)
    start = time.perf_counter()
    targets, slots = policy(Slots.empty(capacity), labels, np.random.default_rng(13))
    seconds = time.perf_counter() - start
    record_property("seconds", seconds)
    chance = np.minimum(1, capacity / (np.arange(count) + 1))
    spread = math.sqrt((chance * (1 - chance)).sum())
    assert abs((targets != DISCARD).sum() - chance.sum()) < stats.norm.isf(ALARM / 2) * spread
    assert slots.filled == capacity
    assert seconds < 6
