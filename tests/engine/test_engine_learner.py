"""The learner's public behaviour: learn, answer, save, load, and clear words for what it cannot do."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ider import Learner, LearnerConfig, RunError, Stream, Task, UserError, recipe, split
from ider.data.datasets import digits
from ider.engine import checkpoint
from ider.engine.answers import softmax
from ider.engine.ledger import Progress
from ider.engine.optim import learning_rate
from ider.methods import ER


@pytest.fixture(scope="module")
def stream() -> Stream:
    return split(digits(), 5)


def config(name: str = "er+id", epochs: int = 2, **train: float) -> LearnerConfig:
    found = recipe("digits", name)
    return replace(
        found,
        train=replace(found.train, epochs=epochs, **train),
        net=replace(found.net, width=4),
        engine=replace(found.engine, device="cpu", threads=1),
    )


def part(task: Task, count: int) -> Task:
    return Task(task.images[:count], task.labels[:count])


def test_probabilities_sum_to_one_over_the_classes_seen(stream: Stream) -> None:
    learner = Learner(config()).learn(part(stream.tasks[0], 64)).learn(part(stream.tasks[1], 64))
    for answer in ("first", "second", "mean"):
        p = learner.predict_proba(stream.tests[0].images, answer)
        assert p.shape == (len(stream.tests[0]), 4)
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    assert learner.seen == (0, 1, 2, 3)
    first, second = (learner.predict_proba(stream.tests[0].images, answer) for answer in ("first", "second"))
    np.testing.assert_allclose(learner.predict_proba(stream.tests[0].images, "mean"), (first + second) / 2)
    np.testing.assert_allclose(learner.uncertainty(stream.tests[0].images), np.sqrt(((first - second) ** 2).sum(1)))
    assert (learner.predict(stream.tests[0].images) == first.argmax(1)).all()


def test_classes_not_seen_get_no_probability(stream: Stream) -> None:
    wide = config()
    learner = Learner(replace(wide, net=replace(wide.net, classes=10))).learn(part(stream.tasks[1], 64))
    p = learner.predict_proba(stream.tests[1].images)
    assert p.shape[1] == 10
    assert (p[:, [0, 1, 4, 5, 6, 7, 8, 9]] == 0).all()


def test_a_plain_net_agrees_with_itself(stream: Stream) -> None:
    learner = Learner(config("er")).learn(part(stream.tasks[0], 64))
    assert (learner.uncertainty(stream.tests[0].images) == 0).all()


def test_answers_do_not_depend_on_the_company_an_image_is_in(stream: Stream) -> None:
    learner = Learner(config()).learn(part(stream.tasks[0], 64))
    images = np.concatenate([test.images for test in stream.tests])  # more than one evaluation batch
    together = learner.answers(images)
    alone = learner.answers(images[520:523])
    np.testing.assert_allclose(together.first[520:523], alone.first, atol=1e-5)
    np.testing.assert_allclose(together.second[520:523], alone.second, atol=1e-5)


def test_softmax_against_torch() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32) * 30
    expected = torch.from_numpy(logits.astype(np.float64)).softmax(-1).numpy()
    np.testing.assert_allclose(softmax(logits), expected, atol=1e-12)
    chosen = torch.from_numpy(logits[:, [1, 4]].astype(np.float64)).softmax(-1).numpy()
    np.testing.assert_allclose(softmax(logits, (1, 4))[:, [1, 4]], chosen, atol=1e-12)


def test_a_saved_learner_goes_on_as_the_original(stream: Stream, tmp_path: Path) -> None:
    original = Learner(config(momentum=0.5), seed=3).learn(part(stream.tasks[0], 100))
    original.save(tmp_path / "learner.safetensors")
    copy = Learner.load(tmp_path / "learner.safetensors")
    for learner in (original, copy):
        learner.learn(part(stream.tasks[1], 100))
    images = stream.tests[1].images
    assert (original.answers(images).second == copy.answers(images).second).all()
    assert (original.memory.images[:-1] == copy.memory.images[:-1]).all()
    assert original.history == copy.history


def test_a_learner_saved_in_mid_task_wants_that_task(stream: Stream, tmp_path: Path) -> None:
    file = tmp_path / "learner.safetensors"
    learner = Learner(config())
    learner.learn(
        part(stream.tasks[0], 100), lambda now: learner.save(file) if (now.epoch, now.step) == (1, 1) else None
    )
    halfway = Learner.load(file)
    assert (halfway.epoch, halfway.step, halfway.tasks_learned) == (1, 1, 0)
    with pytest.raises(UserError, match="in the middle of another task"):
        halfway.learn(part(stream.tasks[0], 99))
    halfway.learn(part(stream.tasks[0], 100))
    assert (halfway.answers(stream.tests[0].images).first == learner.answers(stream.tests[0].images).first).all()


def test_a_learner_interrupted_in_mid_epoch_goes_on_as_if_it_had_not_been(stream: Stream) -> None:
    def stop(now: Progress) -> None:
        if (now.epoch, now.step) == (1, 2):
            raise KeyboardInterrupt

    task = part(stream.tasks[0], 100)
    learner, whole = Learner(config(momentum=0.5)), Learner(config(momentum=0.5)).learn(task)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(task, stop)
    learner.learn(task)
    assert learner.history == whole.history
    assert (learner.memory.labels[:-1].numpy() == learner.slots.labels).all()
    assert (learner.answers(task.images).second == whole.answers(task.images).second).all()


def test_images_to_answer_are_checked(stream: Stream) -> None:
    learner = Learner(config()).learn(part(stream.tasks[0], 40))
    with pytest.raises(UserError, match="uint8.*float64"):
        learner.predict(stream.tests[0].images / 255)
    with pytest.raises(UserError, match="uint8"):
        learner.predict(stream.tests[0].images[0])
    assert learner.predict_proba(stream.tests[0].images[:0]).shape == (0, 2)


def test_a_method_without_a_name_is_not_saved(stream: Stream, tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(ER):
        """Not in METHODS."""

    nameless = replace(config("er"), method=Mine())
    with pytest.raises(UserError, match=r"Mine has no name yet.*METHODS\['my-name'\]"):
        Learner(nameless).learn(part(stream.tasks[0], 40)).save(tmp_path / "x")


def test_randomness_is_owned_by_the_learner(stream: Stream) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one = Learner(config(), seed=1).learn(part(stream.tasks[0], 50))
    assert (torch.get_rng_state() == before).all()
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 - the global generator is just what must not matter
    two = Learner(config(), seed=1).learn(part(stream.tasks[0], 50))
    assert (one.answers(stream.tests[0].images).first == two.answers(stream.tests[0].images).first).all()


def test_images_are_normalised_by_the_first_task_if_nothing_else_is_said(stream: Stream) -> None:
    plain = config()
    learner = Learner(replace(plain, images=replace(plain.images, mean=(), std=())))
    task = stream.tasks[0]
    learner.prepare(task.images, classes=10)
    assert learner.config.images.mean == pytest.approx([task.images.mean() / 255])
    assert learner.config.images.std == pytest.approx([(task.images / 255).std()])


def test_a_diverging_loss_ends_the_run_with_advice(stream: Stream) -> None:
    with pytest.raises(RunError, match=r"the loss became (nan|inf).*smaller train.lr"):
        Learner(config(epochs=20, lr=1e38)).learn(stream.tasks[0])


def test_wrong_use_is_explained(stream: Stream, tmp_path: Path) -> None:
    learner = Learner(config())
    with pytest.raises(UserError, match="learn"):
        learner.predict(stream.tests[0].images)
    learner.learn(part(stream.tasks[0], 40))
    with pytest.raises(UserError, match=r"\(1, 9, 8\).*\(1, 8, 8\)"):
        learner.predict(np.zeros((2, 1, 9, 8), np.uint8))
    with pytest.raises(UserError, match=r"unknown answer 'secnd'; did you mean 'second'"):
        learner.predict(stream.tests[0].images, answer="secnd")
    for seed in (-1, 1.5, "0"):
        with pytest.raises(UserError, match=r"seed is .*; it must be a whole number, at least 0"):
            Learner(config(), seed)
    with pytest.raises(UserError, match="channels"):
        Learner(config()).learn(Task(np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, np.int64)))
    with pytest.raises(UserError, match="does not exist"):
        Learner.load(tmp_path / "nothing")


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\x00" * 64, None])
def test_damaged_files_are_refused(stream: Stream, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "learner.safetensors"
    Learner(config()).learn(part(stream.tasks[0], 40)).save(file)
    file.write_bytes(file.read_bytes()[:-100] if content is None else content)
    with pytest.raises(UserError, match="not a learner saved by ider, or it is damaged"):
        Learner.load(file)


def test_a_full_disk_leaves_the_old_file(stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "learner.safetensors"
    learner = Learner(config()).learn(part(stream.tasks[0], 40))
    learner.save(file)
    before = file.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        learner.save(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_checkpoint_round_trip(tmp_path: Path) -> None:
    tensors = {"a/x": torch.arange(3), "a/y": torch.ones(2, 2), "b/x": torch.zeros(0)}
    checkpoint.write(tmp_path / "file", tensors, {"words": ["é", 2**90]})
    found, state = checkpoint.read(tmp_path / "file")
    assert state["words"] == ["é", 2**90]
    assert checkpoint.under("a", found).keys() == {"x", "y"}
    assert all((found[name] == tensors[name]).all() for name in tensors)


def test_learning_rate_falls_at_its_milestones() -> None:
    train = replace(config("er").train, epochs=50, lr=0.1, milestones=(0.7, 0.9))
    rates = [learning_rate(train, epoch) for epoch in range(50)]
    np.testing.assert_allclose(rates, [0.1] * 35 + [0.01] * 10 + [0.001] * 5)


def test_a_task_smaller_than_a_batch_with_drop_last_takes_no_step(stream: Stream) -> None:
    with pytest.warns(UserWarning, match="nothing is learnt"):
        learner = Learner(config(drop_last=True)).learn(part(stream.tasks[0], 20))
    assert learner.tasks_learned == 1
    assert learner.slots.offered == 0
    assert learner.history == []


@pytest.mark.parametrize("size", [0, 1, 5])
def test_memories_smaller_than_a_batch(stream: Stream, size: int) -> None:
    small = config()
    learner = Learner(replace(small, memory=replace(small.memory, size=size)))
    for task in stream.tasks[:2]:
        learner.learn(part(task, 50))
    assert learner.slots.filled == size
    assert (learner.memory.labels[:-1].numpy() == learner.slots.labels).all()
    assert np.isfinite(learner.answers(stream.tests[0].images).first).all()


def test_a_net_that_answers_with_nan_is_told() -> None:
    rng = np.random.default_rng(0)
    task = Task(rng.integers(0, 256, (8, 1, 8, 8)).astype(np.uint8), np.arange(8) % 2)
    learner = Learner(recipe("digits", "er")).learn(task)
    next(learner.net.norms()).running_var.fill_(torch.nan)
    with pytest.raises(RunError, match=r"answers with nan.*smaller train.lr"):
        learner.answers(task.images)
