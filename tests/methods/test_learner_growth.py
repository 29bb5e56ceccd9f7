"""A learner whose head grows: classes may come at any time, skip numbers and come back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ider import Learner, LearnerConfig, Task
from ider.config import EngineConfig, MemoryConfig, NetConfig, TrainConfig
from ider.engine.ledger import Progress
from ider.methods import METHODS

CAME = [(0, 1), (1, 2), (5,)]
WIDTHS = [2, 3, 6]
SEEN = [(0, 1), (0, 1, 2), (0, 1, 2, 5)]


def task(classes: tuple[int, ...], each: int = 8, seed: int = 0) -> Task:
    """Noisy images whose class is the row that is lit."""
    rng = np.random.default_rng([seed, *classes])
    labels = np.repeat(classes, each)
    images = rng.integers(0, 60, (len(labels), 1, 6, 6))
    images[np.arange(len(labels)), 0, labels] += 190
    return Task(images.astype(np.uint8), labels)


def config(method: str, lr: float = 0.05) -> LearnerConfig:
    return LearnerConfig(
        method=METHODS[method],
        net=NetConfig(name="small-conv", width=6, split=1, classes=0),
        memory=MemoryConfig(size=12, policy="class-balanced"),
        train=TrainConfig(epochs=12, batch=8, replay_batch=8, lr=lr),
        engine=EngineConfig(device="cpu", precision="fp32"),
    )


@pytest.fixture(params=["er", "er+id"])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_column_per_head_class_and_nothing_for_classes_never_seen(method: str) -> None:
    learner = Learner(config(method))
    for classes, width, seen in zip(CAME, WIDTHS, SEEN, strict=True):
        learner.learn(task(classes))
        assert learner.net.classes == width
        assert learner.seen == seen
        for answer in ("first", "second", "mean"):
            found = learner.predict_proba(task((0, 2, 5)).images, answer)
            assert found.shape == (24, width)
            assert not found[:, [c for c in range(width) if c not in seen]].any()
            assert (found[:, list(seen)] > 0).all()
            np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)
    assert set(learner.predict(task((3, 4)).images)) <= set(SEEN[-1])


def test_every_class_that_came_is_known_in_the_end(method: str) -> None:
    learner = Learner(config(method))
    for classes in CAME:
        learner.learn(task(classes))
    fresh = task(SEEN[-1], seed=9)
    assert (learner.predict(fresh.images) == fresh.labels).mean() > 0.9


def test_growing_moves_no_logit_of_an_old_class(method: str) -> None:
    """With a learning rate of zero all that a task does is to grow the head (and to move the running statistics)."""
    learner, shown = (
        Learner(config(method, lr=0.0)),
        torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0)),
    )
    learner.learn(task(CAME[0]))
    for classes, old in zip(CAME[1:], WIDTHS, strict=False):
        before = learner.net.frozen("batch")
        learner.learn(task(classes))
        after = learner.net.frozen("batch")
        y = torch.softmax(torch.randn(5, old, generator=torch.Generator().manual_seed(1)), 1)
        padded = torch.cat([y, torch.zeros(5, after.classes - old)], 1)
        for narrow, wide in ((None, None), (y, padded)):
            expected = before.decode(before.encode(shown), narrow)
            torch.testing.assert_close(after.decode(after.encode(shown), wide)[:, :old], expected, rtol=1e-5, atol=1e-6)


def test_the_teacher_grows_with_the_net_and_stays_frozen() -> None:
    learner, checked = Learner(config("er+id", lr=0.0)), []

    def compare(progress: Progress) -> None:
        if progress.task > 0:
            net, teacher, old = learner.net, learner.teacher, WIDTHS[progress.task - 1]
            assert teacher is not None
            assert teacher.classes == net.classes == WIDTHS[progress.task]
            assert torch.equal(teacher.head.weight[old:], net.head.weight[old:])
            assert torch.equal(teacher.head.bias[old:], net.head.bias[old:])
            assert not any(weight.requires_grad for weight in teacher.parameters())
            checked.append(progress.task)

    for classes in CAME:
        learner.learn(task(classes), compare)
    assert set(checked) == {1, 2}


def test_new_weights_learn(method: str) -> None:
    still, moving = Learner(config(method, lr=0.0)), Learner(config(method, lr=0.05))
    for learner in (still, moving):
        learner.learn(task(CAME[0])).learn(task(CAME[1]))
    for name, weight in moving.net.named_parameters():
        assert weight.requires_grad
        assert not torch.equal(weight, dict(still.net.named_parameters())[name]), name
    assert all((moving.net.head.weight[c] != still.net.head.weight[c]).any() for c in range(3))


def test_no_class_new_to_the_head_changes_its_width(method: str) -> None:
    learner = Learner(config(method)).learn(task((4,)))
    head = learner.net.head
    learner.learn(task((2, 3)))
    assert learner.net.head is head
    assert learner.seen == (2, 3, 4)


def test_a_head_made_wide_from_the_start_does_not_grow(method: str) -> None:
    wide = config(method)
    learner = Learner(replace(wide, net=replace(wide.net, classes=4)))
    for classes, width in zip(CAME, [4, 4, 6], strict=True):
        assert learner.learn(task(classes)).net.classes == width


def test_the_same_seed_grows_the_same_net(method: str) -> None:
    first, again, other = (Learner(config(method), seed) for seed in (3, 3, 4))
    for classes in CAME[:2]:
        for learner in (first, again, other):
            learner.learn(task(classes))
    states = [learner.net.state_dict() for learner in (first, again, other)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert not torch.equal(states[0]["head.weight"], states[2]["head.weight"])


def test_a_grown_learner_survives_its_file(method: str, tmp_path: Path) -> None:
    learner = Learner(config(method))
    for classes in CAME[:2]:
        learner.learn(task(classes))
    learner.save(tmp_path / "learner.safetensors")
    loaded = Learner.load(tmp_path / "learner.safetensors")
    for some in (learner, loaded):
        some.learn(task(CAME[2]))
    images = task((0, 1, 2, 5)).images
    np.testing.assert_array_equal(loaded.predict_proba(images), learner.predict_proba(images))
