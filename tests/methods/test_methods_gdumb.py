"""GDumb: a balanced memory, and a net that begins anew and sees nothing else."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import LinearNet, Witness, batch_of, ce, terms_of, tiny_learner, tiny_tasks, values

from ider import Task, UserError
from ider.memory.selection import Candidates, balanced
from ider.methods import GDumb
from ider.types import CURRENT, Needs

W = np.random.default_rng(19).normal(size=(5, 4))


def test_it_is_a_cross_entropy_over_all_classes() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 5)), rng.integers(0, 3, 7)
    step = batch_of(torch.tensor(x), torch.tensor(y), {CURRENT: 7})
    assert values(terms_of(GDumb(), LinearNet(W), None, step)) == {"current": pytest.approx(ce(x @ W, y), rel=1e-6)}


def test_what_it_asks_for() -> None:
    assert GDumb().needs() == Needs(memory="tasks", policy="balanced", learns_from="memory")
    with pytest.raises(UserError, match="learns from its memory alone"):
        tiny_learner(GDumb(), size=0)


def greedy(counts: dict[int, int], stream: list[int], capacity: int, rng: np.random.Generator) -> dict[int, int]:
    """The published sampler: a sample enters while its class has less than its share; then the largest class gives."""
    counts = dict(counts)
    for label in stream:
        counts.setdefault(label, 0)
        if counts[label] >= capacity / len(counts):
            continue
        if sum(counts.values()) >= capacity:
            most = max(counts.values())
            counts[rng.choice([c for c, count in counts.items() if count == most])] -= 1
        counts[label] += 1
    return counts


@given(
    old=st.lists(st.integers(0, 3), max_size=12),
    new=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    spare=st.integers(0, 5),
    seed=st.integers(0, 9),
)
def test_the_policy_gives_each_class_as_much_as_can_be(old: list[int], new: list[int], spare: int, seed: int) -> None:
    capacity = len(old) + spare or 1
    candidates = Candidates(np.array(old, np.int64), np.array(new), dict.fromkeys([*old, *new], 0), lambda: None)
    stay, enter = balanced(candidates, capacity, np.random.default_rng(seed))
    assert len(set(stay)) == len(stay)
    assert len(set(enter)) == len(enter)
    assert (np.sort(stay) == stay).all()
    labels = np.concatenate([candidates.old[stay], candidates.new[enter]])
    kept, there = Counter(labels.tolist()), Counter([*old, *new])
    assert sum(kept.values()) == min(capacity, len(old) + len(new))
    for label, count in there.items():
        for other in there:
            assert kept[label] == count or kept[label] >= kept[other] - 1


def test_the_policy_gives_the_counts_of_the_published_sampler() -> None:
    """Where each class has more samples than its share; which of the classes is one ahead is a matter of chance."""
    rng = np.random.default_rng(3)
    for capacity in (7, 10, 12, 23):
        counts: dict[int, int] = {}
        old = np.empty(0, np.int64)
        for task in range(4):
            new = rng.permutation(np.repeat([2 * task, 2 * task + 1], 60))
            counts = greedy(counts, new.tolist(), capacity, rng)
            candidates = Candidates(old, new, {}, lambda: None)
            stay, enter = balanced(candidates, capacity, rng)
            old = np.concatenate([old[stay], new[enter]])
            assert sorted(Counter(old.tolist()).values()) == sorted(count for count in counts.values() if count)


def test_every_sample_of_a_class_has_the_same_chance_to_enter_and_to_stay() -> None:
    """Four of ten enter, and two of these stay when another class comes: 0.4 and 0.2 for each of the ten."""
    rounds, entered, stayed = 4000, np.zeros(10), np.zeros(10)
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        none, zeros, ones = np.empty(0, np.int64), np.zeros(10, np.int64), np.ones(10, np.int64)
        _, first = balanced(Candidates(none, zeros, {}, lambda: None), 4, rng)
        stay, second = balanced(Candidates(zeros[:4], ones, {}, lambda: None), 4, rng)
        assert len(stay) == len(second) == 2
        entered[first] += 1
        stayed[first[stay]] += 1
    for counts, chance in ((entered, 0.4), (stayed, 0.2)):
        assert np.abs(counts / rounds - chance).max() < 4 * (chance * (1 - chance) / rounds) ** 0.5


def test_the_memory_takes_its_share_of_a_task_before_it_is_learnt_and_nothing_else_is_learnt() -> None:
    """10 slots: five of each of two classes, then two or three of each of four."""
    witness = Witness(GDumb())
    learner = tiny_learner(witness, batch=4, epochs=3)
    tasks = tiny_tasks(2)
    for number, (task, counts) in enumerate(zip(tasks, ([5, 5], [2, 2, 3, 3]), strict=True)):
        witness.seen.clear()
        learner.learn(task)
        kept = learner.memory.labels[:10].numpy()
        assert (kept == learner.slots.labels).all()
        assert sorted(Counter(kept.tolist()).values()) == counts
        for image, label in zip(learner.memory.images[:10].numpy(), kept, strict=True):
            source = tasks[label // 2]
            assert any((image == other).all() for other in source.images[source.labels == label])
        steps = [sight.batch.labels[CURRENT] for sight in witness.seen]
        assert [len(labels) for labels in steps] == 3 * [4, 4, 2]
        for epoch in range(3):
            shown = torch.cat(steps[3 * epoch : 3 * epoch + 3])
            assert shown.sort().values.tolist() == sorted(kept.tolist())
        assert {tuple(sight.batch.images.sizes) for sight in witness.seen} == {(CURRENT,)}
        assert learner.tasks_learned == number + 1


def first_net(witness: Witness, learner, task: Task):
    witness.seen.clear()
    learner.learn(task)
    return witness.seen[0].net.state_dict()


def test_each_task_begins_with_a_fresh_net_that_owes_nothing_to_the_past() -> None:
    tasks = tiny_tasks(3)
    other = [Task(255 - task.images, task.labels) for task in tasks]
    found = []
    for past, momentum in ((tasks, 0.0), (other, 0.9)):
        witness = Witness(GDumb())
        learner = tiny_learner(witness, classes=6, momentum=momentum)
        found.append([first_net(witness, learner, task) for task in past])
    for one, same in zip(*found, strict=True):
        assert all(torch.equal(value, same[name]) for name, value in one.items())
        assert not one["lower.0.norm.running_mean"].any()
        assert (one["lower.0.norm.running_var"] == 1).all()
    first, second, third = (state["lower.0.conv.weight"] for state in found[0])
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


def test_a_fresh_net_means_a_fresh_optimiser() -> None:
    """The first step of a task moves the weights by the learning rate times their gradient, whatever the momentum."""
    tasks, moved = tiny_tasks(2), []
    for momentum in (0.0, 0.9):
        learner = tiny_learner(GDumb(), momentum=momentum, size=40).learn(tasks[0])
        next(learner.learning(tasks[1]))
        moved.append({name: weight.clone() for name, weight in learner.net.named_parameters()})
    assert all(torch.equal(weight, moved[1][name]) for name, weight in moved[0].items())


def test_a_class_with_few_samples_leaves_room_to_the_others() -> None:
    images = tiny_tasks(1)[0].images
    labels = np.array([0] * 2 + [1] * 18)
    learner = tiny_learner(GDumb()).learn(Task(images, labels))
    assert Counter(learner.memory.labels[:10].tolist()) == {0: 2, 1: 8}
