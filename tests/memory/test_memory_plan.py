"""The epoch plan: what is learnt, read and overwritten at every step, against a naive simulation item by item.

Statistical bounds use fixed seeds; their false-alarm rate, had the seed been random, is `ALARM` a test.
"""

import itertools
import time
import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ider.memory.plan import Schedule, Segment, plan_epoch
from ider.memory.policy import DISCARD, POLICIES, Slots
from ider.memory.store import MemoryStore
from ider.randomness import generators, restore, states
from ider.types import CURRENT, Draw

ALARM = 1e-6
PLAIN = Schedule(batch=1, replay_batch=1, drop_last=False, draws=(Draw("replay"),), coins=(), pad=0, flip=False)
quick = settings(deadline=None, max_examples=60)


@dataclass(frozen=True)
class Case:
    """All that a plan is made from."""

    labels: np.ndarray
    slots: Slots
    schedule: Schedule
    policy: str
    seed: int

    def plan(self) -> tuple[list[Segment], Slots]:
        """The plan from fresh generators."""
        return plan_epoch(self.labels, self.slots, self.schedule, (POLICIES[self.policy], generators(self.seed)))

    @property
    def used(self) -> int:
        """How many samples an epoch learns."""
        count, batch = len(self.labels), self.schedule.batch
        return count // batch * batch if self.schedule.drop_last else count


@st.composite
def cases(draw):
    policy, seed = draw(st.sampled_from(list(POLICIES))), draw(st.integers(0, 99))
    labels = draw(st.lists(st.integers(0, 4), min_size=1, max_size=40))
    before = draw(st.lists(st.integers(0, 2), max_size=25))
    capacity = draw(st.integers(0, 14))
    _, slots = POLICIES[policy](Slots.empty(capacity), np.array(before, np.int64), np.random.default_rng(seed))
    schedule = Schedule(
        batch=draw(st.integers(1, 12)),
        replay_batch=draw(st.integers(1, 12)),
        drop_last=draw(st.booleans()),
        draws=tuple(Draw(name) for name in ("replay", "distill")[: draw(st.integers(0, 2))]),
        coins=("current", "replay")[: draw(st.integers(0, 2))],
        pad=draw(st.integers(0, 3)),
        flip=draw(st.booleans()),
    )
    return Case(np.array(labels, np.int64), slots, schedule, policy, seed)


def steps_of(segments: list[Segment]) -> list[tuple[dict[str, int], dict[str, np.ndarray]]]:
    """Each step's sizes and its row of every array."""
    return [
        (dict(segment.sizes), {name: array[row] for name, array in segment.arrays.items()})
        for segment in segments
        for row in range(segment.steps)
    ]


def is_uniform(counts) -> None:
    """A chi-square test against equal chances."""
    assert stats.chisquare(np.asarray(counts)).pvalue > ALARM


def full_memory(capacity: int) -> Slots:
    """A memory that has just been filled."""
    return Slots(np.zeros(capacity, np.int64), capacity)


@quick
@given(cases())
def test_every_sample_is_learnt_once_and_only_a_partial_batch_is_left_out(case):
    steps = steps_of(case.plan()[0])
    learnt = [sample for _, row in steps for sample in row["samples"].tolist()]
    assert len(learnt) == len(set(learnt)) == case.used
    assert set(learnt) <= set(range(len(case.labels)))
    expected = [case.schedule.batch] * (case.used // case.schedule.batch)
    if case.used % case.schedule.batch:
        expected.append(case.used % case.schedule.batch)
    assert [len(row["samples"]) for _, row in steps] == expected


def test_a_task_smaller_than_a_batch_gives_no_step_with_drop_last():
    schedule = replace(PLAIN, batch=8, drop_last=True, pad=2, flip=True, coins=("current",))
    slots = Slots(np.array([0, 1, -1]), 2)
    for policy in POLICIES.values():
        segments, after = plan_epoch(np.zeros(7, np.int64), slots, schedule, (policy, generators(0)))
        assert segments == []
        assert after.labels.tolist() == [0, 1, -1]
        assert after.offered == 2


@quick
@given(cases())
def test_a_draw_takes_what_the_memory_holds_if_that_is_less(case):
    offered = case.slots.offered
    for sizes, row in steps_of(case.plan()[0]):
        drawn = min(case.schedule.replay_batch, case.slots.capacity, offered)
        names = [draw.name for draw in case.schedule.draws] if drawn else []
        assert list(sizes) == [CURRENT, *names]
        assert sizes[CURRENT] == len(row["samples"]) == len(row["writes"])
        assert {name for name in row if name.startswith("reads/")} == {f"reads/{name}" for name in names}
        assert all(sizes[name] == drawn == len(row[f"reads/{name}"]) for name in names)
        offered += sizes[CURRENT]


def test_the_first_step_of_an_empty_memory_replays_nothing_and_the_draws_then_grow():
    schedule = replace(PLAIN, batch=4, replay_batch=10, draws=(Draw("replay"), Draw("distill")))
    segments, _ = plan_epoch(np.zeros(22, np.int64), Slots.empty(9), schedule, (POLICIES["reservoir"], generators(0)))
    assert [(dict(segment.sizes), segment.steps) for segment in segments] == [
        ({"current": 4}, 1),
        ({"current": 4, "replay": 4, "distill": 4}, 1),
        ({"current": 4, "replay": 8, "distill": 8}, 1),
        ({"current": 4, "replay": 9, "distill": 9}, 2),
        ({"current": 2, "replay": 9, "distill": 9}, 1),
    ]


@quick
@given(cases())
def test_segments_are_the_longest_runs_of_steps_of_one_shape(case):
    segments = case.plan()[0]
    assert all(segment.steps > 0 for segment in segments)
    assert all(len(array) == segment.steps for segment in segments for array in segment.arrays.values())
    assert all(list(a.sizes.items()) != list(b.sizes.items()) for a, b in itertools.pairwise(segments))


@quick
@given(cases())
def test_reads_are_distinct_and_below_what_was_filled_by_then(case):
    offered = case.slots.offered
    for sizes, row in steps_of(case.plan()[0]):
        for name in sizes:
            if name != CURRENT:
                reads = row[f"reads/{name}"].tolist()
                assert len(set(reads)) == len(reads)
                assert min(reads) >= 0
                assert max(reads) < min(offered, case.slots.capacity)
        offered += sizes[CURRENT]


@quick
@given(cases())
def test_no_slot_is_written_twice_in_a_step(case):
    for _, row in steps_of(case.plan()[0]):
        slots = row["writes"][row["writes"] != case.slots.capacity]
        assert len(set(slots.tolist())) == len(slots)
        assert (row["writes"] >= 0).all()
        assert (row["writes"] <= case.slots.capacity).all()


def test_of_several_samples_for_one_slot_the_last_wins():
    targets = np.array([2, 0, 2, DISCARD, 1, 2, 0, DISCARD])

    def scripted(slots, labels, rng):
        return targets, slots

    segments, _ = plan_epoch(np.zeros(8, np.int64), full_memory(3), replace(PLAIN, batch=8), (scripted, generators(0)))
    assert segments[0].arrays["writes"].tolist() == [[3, 3, 3, 3, 1, 2, 0, 3]]
    segments, _ = plan_epoch(np.zeros(8, np.int64), full_memory(3), replace(PLAIN, batch=4), (scripted, generators(0)))
    assert segments[0].arrays["writes"].tolist() == [[3, 0, 2, 3], [1, 2, 0, 3]]


@quick
@given(cases())
def test_the_plan_does_what_a_naive_loop_over_single_samples_does(case):
    """Images that spell the number of their sample go through a real store; the loop keeps a list."""
    segments, after = case.plan()
    steps = steps_of(segments)
    order = np.concatenate([row["samples"] for _, row in steps]) if steps else np.zeros(0, np.int64)
    targets, _ = POLICIES[case.policy](case.slots, case.labels[order], generators(case.seed)["memory"])
    old = 200  # what is in the memory from before: image 200 + slot
    store = MemoryStore(case.slots.capacity, (1, 1, 1), torch.device("cpu"))
    filled = torch.arange(case.slots.filled)
    store.write(filled, (filled + old).to(torch.uint8)[:, None, None, None], torch.tensor(case.slots.labels)[filled])
    kept = [old + slot for slot in range(case.slots.filled)] + [0] * (case.slots.capacity - case.slots.filled)
    labels = np.where(case.slots.labels < 0, 0, case.slots.labels).tolist()
    place = 0
    for sizes, row in steps:
        for name in sizes:
            if name != CURRENT:
                reads = row[f"reads/{name}"]
                assert store.images[reads].flatten().tolist() == [kept[slot] for slot in reads]
                assert store.labels[reads].tolist() == [labels[slot] for slot in reads]
        samples = torch.from_numpy(row["samples"])
        images = samples.to(torch.uint8)[:, None, None, None]
        store.write(torch.from_numpy(row["writes"]), images, torch.from_numpy(case.labels)[samples])
        for sample in samples.tolist():
            if targets[place] != DISCARD:
                kept[targets[place]], labels[targets[place]] = sample, int(case.labels[sample])
            place += 1
        content = store.tensors()
        assert content["images"].flatten().tolist() == kept
        assert content["labels"].tolist() == labels
    assert after.labels[: after.filled].tolist() == labels[: after.filled]
    assert after.offered == case.slots.offered + case.used


def test_a_draw_is_any_subset_equally_often():
    schedule = replace(PLAIN, replay_batch=3)
    segments, _ = plan_epoch(
        np.zeros(12_000, np.int64), full_memory(6), schedule, (POLICIES["reservoir"], generators(1))
    )
    subsets = [frozenset(reads) for reads in segments[0].arrays["reads/replay"].tolist()]
    every = [frozenset(chosen) for chosen in itertools.combinations(range(6), 3)]
    assert set(subsets) == set(every)
    is_uniform([subsets.count(chosen) for chosen in every])


def test_draws_are_independent_of_each_other_and_of_the_step_before():
    schedule = replace(PLAIN, replay_batch=2, draws=(Draw("a"), Draw("b")))
    segments, _ = plan_epoch(
        np.zeros(12_000, np.int64), full_memory(4), schedule, (POLICIES["reservoir"], generators(2))
    )
    every = {frozenset(chosen): index for index, chosen in enumerate(itertools.combinations(range(4), 2))}
    a, b = (
        np.array([every[frozenset(reads)] for reads in segments[0].arrays[f"reads/{name}"].tolist()]) for name in "ab"
    )
    for first, second in ((a, b), (a[:-1], a[1:]), (b[:-1], b[1:]), (a[:-1], b[1:]), (b[:-1], a[1:])):
        is_uniform(np.bincount(first * 6 + second, minlength=36))


def test_reads_are_uniform_also_while_the_memory_fills():
    counts = np.zeros((7, 5), np.int64)
    tools = (POLICIES["reservoir"], generators(3))
    for _ in range(1500):
        segments, _ = plan_epoch(np.zeros(7, np.int64), Slots.empty(5), PLAIN, tools)
        for number, (_, row) in enumerate(steps_of(segments)):
            if number:
                counts[number, row["reads/replay"][0]] += 1
    for number in range(1, 7):
        filled = min(number, 5)
        assert counts[number, filled:].sum() == 0
        assert counts[number].sum() == 1500
        if filled > 1:
            is_uniform(counts[number, :filled])


@quick
@given(cases())
def test_random_numbers_of_augmentation_and_method_have_the_shapes_and_ranges_of_their_use(case):
    schedule = case.schedule
    for segment in case.plan()[0]:
        rows = sum(segment.sizes.values())
        assert ("crops" in segment.arrays) == (schedule.pad > 0)
        assert ("flips" in segment.arrays) == schedule.flip
        if schedule.pad:
            crops = segment.arrays["crops"]
            assert crops.shape == (segment.steps, rows, 2)
            assert crops.dtype == np.int64
            assert crops.min() >= 0
            assert crops.max() <= 2 * schedule.pad
        if schedule.flip:
            assert segment.arrays["flips"].shape == (segment.steps, rows)
            assert segment.arrays["flips"].dtype == np.bool_
        coins = segment.arrays["coins"]
        assert coins.shape == (segment.steps, len(schedule.coins))
        assert coins.dtype == np.float32
        assert ((coins >= 0) & (coins < 1)).all()


def test_crops_flips_and_coins_are_uniform():
    schedule = replace(PLAIN, batch=4, pad=2, flip=True, coins=("current",), draws=())
    segments, _ = plan_epoch(
        np.zeros(16_000, np.int64), Slots.empty(0), schedule, (POLICIES["reservoir"], generators(4))
    )
    arrays = segments[0].arrays
    is_uniform(np.bincount((arrays["crops"] @ np.array([5, 1])).ravel(), minlength=25))
    is_uniform(np.bincount(arrays["flips"].ravel()))
    assert stats.kstest(arrays["coins"].ravel(), "uniform").pvalue > ALARM


@quick
@given(cases())
def test_the_same_state_of_the_generators_gives_the_same_plan(case):
    running = generators(case.seed)
    tools = (POLICIES[case.policy], running)
    plan_epoch(case.labels, case.slots, case.schedule, tools)
    saved = states(running)
    segments, after = plan_epoch(case.labels, case.slots, case.schedule, tools)
    fresh = generators(case.seed + 1)
    restore(fresh, saved)
    again, after_again = plan_epoch(case.labels, case.slots, case.schedule, (POLICIES[case.policy], fresh))
    assert [dict(segment.sizes) for segment in segments] == [dict(segment.sizes) for segment in again]
    for one, other in zip(segments, again, strict=True):
        assert one.arrays.keys() == other.arrays.keys()
        assert all((one.arrays[name] == other.arrays[name]).all() for name in one.arrays)
    assert (after.labels == after_again.labels).all()
    assert states(running) == states(fresh)


@quick
@given(cases())
def test_planning_changes_neither_the_labels_nor_the_slots(case):
    labels, kept = case.labels.copy(), case.slots.labels.copy()
    case.plan()
    assert (case.labels == labels).all()
    assert (case.slots.labels == kept).all()


@pytest.mark.parametrize(
    "change",
    [
        {"draws": ()},
        {"draws": (Draw("replay"), Draw("distill"))},
        {"coins": ("current", "replay")},
        {"pad": 4, "flip": True},
        {"replay_batch": 7},
        {"batch": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_order_of_the_data_is_the_same_whatever_the_method_draws(change, policy):
    labels, found = np.arange(30) % 3, []
    for schedule, name in ((PLAIN, "reservoir"), (replace(PLAIN, **change), policy)):
        tools = (POLICIES[name], generators(5))
        epochs = [plan_epoch(labels, Slots.empty(4), schedule, tools)[0] for _ in range(3)]
        found.append([[s for _, row in steps_of(segments) for s in row["samples"].tolist()] for segments in epochs])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_which_samples_are_kept_is_the_same_whatever_the_method_draws():
    labels, kept = np.arange(60) % 3, []
    for draws in ((), (Draw("replay"),), (Draw("replay"), Draw("distill"))):
        tools = (POLICIES["class-balanced"], generators(6))
        schedule = replace(PLAIN, batch=4, replay_batch=3, draws=draws, pad=len(draws), coins=("current",) * len(draws))
        segments, _ = plan_epoch(labels, Slots.empty(7), schedule, tools)
        kept.append([row["writes"].tolist() for _, row in steps_of(segments)])
    assert kept[0] == kept[1] == kept[2]


def test_planning_takes_memory_in_proportion_to_the_samples():
    tools = (POLICIES["reservoir"], generators(7))
    tracemalloc.start()
    plan_epoch(np.zeros(4000, np.int64), Slots.empty(500), replace(PLAIN, batch=4000), tools)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4000 * 1000


def seconds_of_a_plan(policy: str, labels: np.ndarray, slots: Slots) -> float:
    """How long an epoch of ER+ID takes to plan."""
    draws, coins = (Draw("replay"), Draw("distill")), ("current", "replay")
    schedule = Schedule(batch=32, replay_batch=32, drop_last=False, draws=draws, coins=coins, pad=4, flip=True)
    tools = POLICIES[policy], generators(8)
    start = time.perf_counter()
    plan_epoch(labels, slots, schedule, tools)
    return time.perf_counter() - start


@pytest.mark.parametrize("offered", [0, 100_000, 10_000_000])
@pytest.mark.parametrize("policy", POLICIES)
def test_an_epoch_of_a_million_samples_is_planned_in_seconds(policy, offered, record_property):
    # The aim is 2 s (benchmarks/planning.py); the bounds here and below allow for a busy machine.
    labels, kept = np.arange(1_000_000) % 1000, np.arange(100_000) % 1000
    slots = Slots(kept, offered) if offered else Slots.empty(len(kept))
    seconds = seconds_of_a_plan(policy, labels, slots)
    record_property("seconds", seconds)
    assert seconds < 6


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("offered", [0, 500, 250_000])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_small_epoch_is_planned_in_milliseconds(policy, offered, classes, record_property):
    # The aim is 3 ms: a step on a fast device takes 2.
    labels, kept = np.arange(5000) % 10 + classes - 10, np.arange(500) % classes
    slots = Slots(kept, offered) if offered else Slots.empty(len(kept))
    seconds = min(seconds_of_a_plan(policy, labels, slots) for _ in range(5))
    record_property("seconds", seconds)
    assert seconds < 0.03
