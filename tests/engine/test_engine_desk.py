"""What hooks between tasks work with: passes, fits and refills, each against the plain way to do the same."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from replay import a_learner, tasks

from ider.data.augment import crop_and_flip
from ider.engine.desk import Desk, Notes
from ider.engine.learner import Learner
from ider.methods import XDER
from ider.types import Choice, Parts, Samples


def a_desk(seed: int = 0, pad: bool = True) -> tuple[Desk, Learner]:
    """After one task of two classes, at the end of a second one; the memory holds logits and counters."""
    learner = a_learner(XDER(), size=7, augmented=pad)
    first, second = tasks(2, 2)
    learner.learn(first)
    learner.book.meet((2, 3), 1, True)
    learner.book.open((2, 3), 1, 6)
    notes = Notes(learner.model.state, learner.model.side, learner.book.classes, learner.book.task_of)
    rng = np.random.default_rng(seed)
    none = Samples(torch.zeros(0), torch.zeros(0))
    desk = Desk(learner.config, learner.net, learner.memory, learner.slots, notes, (second, none), rng, lambda: None)
    return desk, learner


def state(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: values.clone() for name, values in learner.net.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(values, other[name]) for name, values in one.items())


def normal(images: torch.Tensor) -> torch.Tensor:
    return (images.float() / 255 - 0.3) / 0.25


def test_answers_by_running_statistics_are_those_of_the_net_in_eval_mode() -> None:
    desk, learner = a_desk()
    before, answer = state(learner), desk.answers(desk.task)
    assert same(before, learner.net.state_dict())
    assert learner.net.training
    learner.net.eval()
    features = learner.net.features(learner.net.encode(normal(desk.task.images)))
    torch.testing.assert_close(answer.features.rows, features)
    torch.testing.assert_close(answer.logits.rows, learner.net.head(features))
    assert not answer.logits.rows.requires_grad


def test_answers_by_batches_are_those_of_shuffled_augmented_batches_in_train_mode() -> None:
    desk, learner = a_desk(seed=4)
    before, answer = state(learner), desk.answers(desk.task, augmented=True, statistics="batch")
    assert same(before, learner.net.state_dict())
    rng, count = np.random.default_rng(4), len(desk.task)
    order = rng.permutation(count)
    expected = torch.zeros(count, 6)
    for start in range(0, count, 8):
        rows = torch.from_numpy(order[start : start + 8])
        crops, flips = rng.integers(0, 3, (len(rows), 2)), rng.random(len(rows)) < 0.5
        images = crop_and_flip(desk.task.images[rows], torch.from_numpy(crops), torch.from_numpy(flips), 1)
        with torch.no_grad(), learner.net.untracked():
            expected[rows] = learner.net.decode(learner.net.encode(normal(images)))
    torch.testing.assert_close(answer.logits.rows, expected)


def test_answers_to_nothing_are_empty() -> None:
    desk, _ = a_desk()
    answer = desk.answers(desk.task.pick(torch.zeros(0, dtype=torch.int64)), augmented=True, statistics="batch")
    assert answer.logits.rows.shape == (0, 6)
    assert answer.features.rows.shape == (0, desk.whole.features_out)


@pytest.mark.parametrize("statistics", ["running", "batch"])
def test_a_fit_is_a_plain_loop_over_shuffled_batches(statistics: str) -> None:
    desk, learner = a_desk(seed=5, pad=False)
    before, bias = state(learner), torch.zeros(6, requires_grad=True)
    optimiser = torch.optim.SGD([bias], lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [4], 0.1)
    modes = []

    def loss(images: Parts, labels: torch.Tensor) -> torch.Tensor:
        modes.append((learner.net.training, len(labels)))
        return F.cross_entropy(desk.net.decode(desk.net.encode(images)).logits.rows.detach() + bias, labels)

    desk.fit(desk.task, optimiser, 2, loss, statistics, schedule)
    assert same(before, learner.net.state_dict())
    assert learner.net.training
    assert modes == [(statistics == "batch", 8)] * 6
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.05)
    assert bias.grad is None

    rng, mine, speed, step = np.random.default_rng(5), torch.zeros(6), torch.zeros(6), 0
    learner.net.train(statistics == "batch")
    for _ in range(2):
        order = rng.permutation(24)
        for start in range(0, 24, 8):
            rows = torch.from_numpy(order[start : start + 8])
            rng.integers(0, 1, (8, 2)), rng.random(8)
            with torch.no_grad(), learner.net.untracked():
                logits = learner.net.decode(learner.net.encode(normal(desk.task.images[rows])))
            slope = ((logits + mine).softmax(1) - F.one_hot(desk.task.labels[rows], 6)).mean(0)
            speed = 0.9 * speed + slope
            mine = mine - (0.5 if step < 4 else 0.05) * speed
            step += 1
    torch.testing.assert_close(bias.detach(), mine, rtol=1e-4, atol=1e-5)


def test_a_fit_on_nothing_changes_nothing() -> None:
    desk, _ = a_desk()
    weight = torch.ones(1, requires_grad=True)
    none = desk.task.pick(torch.zeros(0, dtype=torch.int64))
    desk.fit(none, torch.optim.Adam([weight]), 3, lambda images, labels: weight.sum())
    assert weight.item() == 1


def test_statistics_estimated_anew_move_as_in_training_and_nothing_else_does() -> None:
    desk, learner = a_desk(seed=6)
    before = state(learner)
    desk.re_estimate(desk.task)
    moved = {name for name, values in learner.net.state_dict().items() if not torch.equal(values, before[name])}
    assert moved == {f"{half}.0.norm.running_{kind}" for half in ("lower", "upper") for kind in ("mean", "var")}


def test_refilling_puts_what_stays_first_and_blanks_the_rest() -> None:
    desk, learner = a_desk()
    images, labels = learner.memory.images.clone(), learner.memory.labels.clone()
    logits = learner.memory.fields["logits"].clone()
    assert desk.slots.filled == 7
    choice = Choice(torch.tensor([1, 4]), torch.tensor([5, 3, 0]))
    new = torch.arange(18.0).reshape(3, 6)
    desk.refill(choice, logits=new, counter=torch.full((3,), 2.0))
    assert torch.equal(learner.memory.images[:2], images[[1, 4]])
    assert torch.equal(learner.memory.images[2:5], desk.task.images[[5, 3, 0]])
    assert not learner.memory.images[5:].any()
    expected = [*labels[[1, 4]].tolist(), *desk.task.labels[[5, 3, 0]].tolist()]
    assert learner.memory.labels[:5].tolist() == expected
    torch.testing.assert_close(desk.stored("logits"), torch.cat([logits[[1, 4]], new]))
    assert desk.stored("counter").tolist() == [0, 0, 2, 2, 2]
    assert desk.slots.filled == 5
    assert desk.slots.labels.tolist() == [*expected, -1, -1]
    assert len(desk.remembered()) == 5
    desk.stored("logits").fill_(7)
    assert (learner.memory.fields["logits"][:5] == 7).all()


def test_a_choice_is_the_policy_s() -> None:
    desk, _ = a_desk()
    choice = desk.choose()
    kept = [*desk.slots.labels[choice.stay.numpy()].tolist(), *desk.task.labels[choice.enter].tolist()]
    assert sorted(kept) in ([0, 1, 2, 2, 2, 3, 3], [0, 1, 2, 2, 3, 3, 3])
