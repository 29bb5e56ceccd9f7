"""X-DER, iCaRL, BiC and LUCIR as a user meets them: odd memories, odd tasks, one epoch, heads that grow."""

from collections import Counter

import numpy as np
import pytest
import torch
from replay import a_learner, shown, tasks

from ider import Learner, Task, UserError
from ider.methods import METHODS, XDER
from ider.methods.xder import COUNTER
from ider.protocols import Method
from ider.types import CURRENT, Batch, Outcome

NAMES = ("xder", "xder+id", "icarl", "bic", "lucir")
each = pytest.mark.parametrize("name", NAMES)


def is_sound(learner: Learner) -> None:
    """Nothing is NaN, and the books agree with the memory."""
    assert all(values.isfinite().all() for values in learner.model.tensors().values())
    for entry in learner.history:
        assert all(np.isfinite(value) for value in entry.values()), entry
    filled = learner.slots.filled
    assert learner.memory.labels[:filled].tolist() == learner.slots.labels[:filled].tolist()
    assert not learner.memory.images[filled:].any()
    images = np.concatenate([task.images for task in tasks(2, 2, 2, each=2, seed=5)])
    for answer in ("first", "second", "mean"):
        p = learner.predict_proba(images, answer)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-9)
    assert set(learner.predict(images).tolist()) <= set(learner.seen)


@each
@pytest.mark.parametrize("size", [0, 1, 3, 5, 7])
def test_memories_of_odd_sizes(name: str, size: int) -> None:
    """Six classes: fewer slots than that, or no multiple. iCaRL says what it needs."""
    learner = a_learner(METHODS[name], size=size, epochs=1)
    if name == "icarl" and size < 6:
        with pytest.raises(UserError, match=f"memory.size is {size}"):
            learner.learn(tasks(2)[0])
        return
    for task in tasks(2, 2, 2, each=5):
        learner.learn(task)
        assert learner.slots.filled <= size
        is_sound(learner)


KEPT = {  # of five classes in tasks of 2, 2 and 1 with 13 slots
    "xder": {0: 2, 1: 2, 2: 2, 3: 2, 4: 5},
    "icarl": dict.fromkeys(range(5), 2),
    "lucir": dict.fromkeys(range(5), 2),
}


@each
def test_a_last_task_of_fewer_classes(name: str) -> None:
    learner = a_learner(METHODS[name], size=13, classes=5, epochs=1)
    for task in tasks(2, 2, 1):
        learner.learn(task)
        is_sound(learner)
    kept = Counter(learner.slots.labels[: learner.slots.filled].tolist())
    if name == "bic":
        assert [sum(kept[c] for c in group) for group in ((0, 1), (2, 3), (4,))] == [4, 4, 4]
    else:
        assert kept == Counter(KEPT[name.removesuffix("+id")])


@each
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 3, 2), (3, 1, 2)])
def test_tasks_of_one_class_and_of_unequal_size(name: str, sizes: tuple[int, ...]) -> None:
    learner = a_learner(METHODS[name], size=12, classes=6, epochs=1)
    for task in tasks(*sizes, each=7):
        learner.learn(task)
        is_sound(learner)


@each
@pytest.mark.parametrize("count", [1, 2, 9])
def test_tasks_of_few_images(name: str, count: int) -> None:
    """A batch of one, or a last batch of one; BiC may hold out half of it at most."""
    learner = a_learner(METHODS[name], size=40, epochs=1)
    first, second, third = tasks(2, 2, 2)
    for task in (first, Task(second.images[:count], second.labels[:count]), third):
        learner.learn(task)
        is_sound(learner)


@each
def test_a_head_that_grows(name: str) -> None:
    learner = a_learner(METHODS[name], size=12, classes=0)
    for number, task in enumerate(tasks(2, 2, 2)):
        learner.learn(task)
        assert learner.net.classes == 2 * number + 2
        is_sound(learner)


@each
def test_a_class_that_comes_again(name: str) -> None:
    learner = a_learner(METHODS[name], size=12)
    first, second = tasks(2, 1)
    learner.learn(first)
    both = Task(np.concatenate([first.images[:6], second.images]), np.concatenate([first.labels[:6], second.labels]))
    if name == "icarl":
        is_sound(learner.learn(both))
    else:
        with pytest.raises(UserError, match=r"classes \[0, 1\] come again"):
            learner.learn(both)


@pytest.mark.parametrize("name", NAMES)
def test_each_learns_the_rows_that_are_lit(name: str) -> None:
    learner = a_learner(METHODS[name], size=60, augmented=False, epochs=12, lr=0.05)  # a crop would move the row
    for task in tasks(2, 2, each=30):
        learner.learn(task)
    test = tasks(2, 2, each=10, seed=7)
    right = [(learner.predict(task.images) == task.labels).mean() for task in test]
    assert min(right) > 0.7, right


@pytest.mark.parametrize("name", ["bic", "lucir"])
def test_interrupted_while_it_fits_it_can_be_told_to_learn_the_task_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = (a_learner(METHODS[name], size=12, epochs=1) for _ in range(2))
    first, second = tasks(2, 2)
    for learner in (whole, stopped):
        learner.learn(first)
    whole.learn(second)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ider.engine.desk.Desk.fit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stopped.learn(second)
    stopped.learn(second)
    ours, theirs = (learner.model.tensors() for learner in (stopped, whole))
    assert stopped.slots.labels.tolist() == whole.slots.labels.tolist()
    assert all(torch.equal(values, theirs[key]) for key, values in ours.items())


class Witness:
    """A method that notes the classes that each step learns from, and the slots that it reads."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.labels: list[set[int]] = []
        self.slots: list[dict[str, list[int]]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.method, name)

    def step(self, net: object, teacher: object, batch: Batch) -> Outcome:
        self.labels.append(set(batch.labels[CURRENT].tolist()))
        self.slots.append({name: batch.slots[name].tolist() for name in batch.slots.sizes})
        return self.method.step(net, teacher, batch)


def test_a_slot_s_counter_counts_the_steps_that_read_it_and_starts_again_with_each_task() -> None:
    witness = Witness(XDER())
    learner = a_learner(witness, size=20)
    for past, task in enumerate(tasks(2, 2, 2)):
        witness.slots.clear()
        for _ in learner.learning(task):
            counts = learner.memory.fields[COUNTER][:-1].clone()
            read = Counter(slot for step in witness.slots for slot in set().union(*step.values()))
            assert counts.tolist() == [read[slot] for slot in range(20)]
        assert any(set(step["recalled"]) & set(step["replay"]) for step in witness.slots if step) is (past > 0)
        assert not learner.memory.fields[COUNTER].any()


def test_stored_logits_know_the_classes_that_came_later_and_none_exceeds_the_true_one() -> None:
    learner = a_learner(XDER(margin_weight=0.05), size=20, epochs=4)
    for number, task in enumerate(tasks(2, 2, 2)):
        learner.learn(task)
        labels, past = learner.memory.labels[:-1], 2 * number
        logits = learner.memory.fields["logits"][:-1]
        true = logits.gather(1, labels[:, None]).squeeze(1)
        old = labels < past
        for row in range(20):
            others = logits[row, past:] if old[row] else logits[row, :past]
            assert not len(others) or others.max() <= true[row] + 1e-5
    assert (logits.std(0) > 0).all()


def test_the_memory_joins_the_stream_of_the_methods_that_want_it() -> None:
    for name, merged in (("icarl", True), ("bic", True), ("lucir", True), ("xder", False)):
        witness = Witness(METHODS[name])
        learner = a_learner(witness, size=16)
        first, second = tasks(2, 2)
        learner.learn(first)
        witness.labels.clear()
        learner.learn(second)
        assert (set().union(*witness.labels) == {0, 1, 2, 3}) is merged, name
        steps = -(-(24 + 16 * merged) // 8)
        assert abs(len(witness.labels) / 2 - steps) <= (name == "bic"), name  # which holds some out


@each
def test_the_second_answer_of_a_plain_net_is_the_first(name: str) -> None:
    learner = a_learner(METHODS[name], size=12)
    for task in tasks(2, 2):
        learner.learn(task)
    images = tasks(2, each=3, seed=4)[0].images
    answers = learner.answers(images)
    assert np.array_equal(answers.first, answers.second) is (name != "xder+id")
    if name in ("xder", "lucir"):
        np.testing.assert_allclose(answers.first, shown(learner, images)[0], rtol=1e-4, atol=1e-5)
    assert torch.is_grad_enabled()
