"""What the epochs of a task go through, and what is held out of it: nothing twice, nothing lost."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ider.engine.material import Material
from ider.memory.store import MemoryStore
from ider.streams.stream import Task
from ider.types import Needs

MERGED = Needs(memory="tasks", learns_from="task and memory")


def task(count: int) -> Task:
    """Images that are their own number, from 1 on."""
    return Task(np.arange(1, count + 1, dtype=np.uint8).reshape(-1, 1, 1, 1), np.full(count, 5))


def memory(filled: int, capacity: int = 60) -> MemoryStore:
    """Images numbered from 101 on, then blank slots."""
    store = MemoryStore(capacity, (1, 1, 1), torch.device("cpu"))
    store.images[:filled, 0, 0, 0] = torch.arange(101, 101 + filled).to(torch.uint8)
    store.labels[:filled] = 3
    return store


def numbers(images: np.ndarray | torch.Tensor) -> list[int]:
    return np.asarray(images).ravel().tolist()


def material(needs: Needs, size: int = 20, filled: int = 10, seed: int = 0) -> Material:
    return Material(task(size), memory(filled), filled, needs, np.random.default_rng(seed))


@pytest.mark.parametrize("filled", [0, 1, 10])
def test_the_task_and_the_memory_are_merged_without_blanks(filled: int) -> None:
    found = material(MERGED, filled=filled).learnt
    assert numbers(found.images) == [*range(1, 21), *range(101, 101 + filled)]
    assert found.labels.tolist() == [5] * 20 + [3] * filled


def test_the_task_or_the_memory_alone() -> None:
    assert numbers(material(Needs()).learnt.images) == list(range(1, 21))
    only = Needs(memory="tasks", learns_from="memory")
    assert numbers(material(only).learnt.images) == list(range(101, 111))
    assert numbers(material(only, filled=0).learnt.images) == list(range(1, 21))


@settings(deadline=None, max_examples=100)
@given(
    size=st.integers(1, 90),
    filled=st.integers(0, 60),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
def test_as_many_old_as_new_samples_are_held_out_and_never_learnt(
    size: int, filled: int, share: float, seed: int
) -> None:
    made = material(Needs(memory="tasks", learns_from="task and memory", hold_out=share), size, filled, seed)
    out, learnt = numbers(made.held_out.images), numbers(made.learnt.images)
    new, old = ([number for number in out if (number > 100) == past] for past in (False, True))
    assert len(new) == len(old) <= size // 2
    assert sorted(out + learnt) == [*range(1, size + 1), *range(101, 101 + filled)]
    assert any(number <= 100 for number in learnt)
    assert made.held_out.labels.tolist() == [3 if number > 100 else 5 for number in out]
    if share in (0.0, 1.0):
        assert len(old) == min(round(share * filled), size // 2)


@pytest.mark.parametrize("source", ["task", "memory"])
@pytest.mark.parametrize("filled", [0, 10])
def test_what_is_held_out_is_learnt_from_no_source(source: str, filled: int) -> None:
    made = material(Needs(memory="tasks", learns_from=source, hold_out=0.5), filled=filled)
    out, learnt = numbers(made.held_out.images), numbers(made.learnt.images)
    assert not set(out) & set(learnt)
    assert learnt
    assert bool(out) is (filled > 0)


def test_each_remembered_sample_has_the_same_chance_to_be_held_out() -> None:
    needs, trials = Needs(memory="tasks", learns_from="task and memory", hold_out=0.3), 1500
    old, new = np.zeros(10), np.zeros(20)
    for seed in range(trials):
        out = numbers(material(needs, seed=seed).held_out.images)
        old[[number - 101 for number in out if number > 100]] += 1
        new[[number - 1 for number in out if number <= 100]] += 1
    assert stats.binomtest(int(old.sum()), 10 * trials, 0.3).pvalue > 1e-6
    assert stats.chisquare(old).pvalue > 1e-6
    assert stats.chisquare(new).pvalue > 1e-6


def test_the_same_generator_holds_out_the_same() -> None:
    needs = Needs(memory="tasks", learns_from="task and memory", hold_out=0.5)
    one, two, other = (numbers(material(needs, seed=seed).held_out.images) for seed in (1, 1, 2))
    assert one == two != other
