"""A learner that is calibrated: its confidence changes, and nothing else, whatever the method and the calibrator."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ider import Learner, LearnerConfig, Stream, Task, UserError, recipe, split
from ider.calibration import CALIBRATORS, RC, TCIL, Calibrator, Labelled, Temperature
from ider.calibration.solver import best_temperature
from ider.config import EngineConfig, MemoryConfig, NetConfig, TrainConfig
from ider.data.datasets import digits
from ider.engine.answers import ANSWERS, Answers, softmax
from ider.engine.sight import Sight
from ider.methods import METHODS

EACH: dict[str, Calibrator] = {
    **{name: found for name, found in CALIBRATORS.items() if name != "none"},
    "temperature on all": Temperature(on="all"),
    "t-cil by sgd": TCIL(solver="sgd"),
}
# One of each kind of prediction: the net's, by nearest means, corrected, cosine head, running mean, sparse.
SOME = ("er", "er+id", "icarl", "bic", "lucir", "cls-er", "scommer+id", "sarl", "gdumb", "finetune")


@pytest.fixture(scope="module")
def stream() -> Stream:
    return split(digits(), 5).holding_out(0.2)


def trained(name: str, stream: Stream, tasks: int = 2, memory: int = 40, classes: int = 10) -> Learner:
    config = LearnerConfig(
        method=METHODS[name],
        net=NetConfig(name="small-conv", width=4, label_input=METHODS[name].needs().second_input, classes=classes),
        memory=MemoryConfig(size=memory),
        train=TrainConfig(epochs=2, lr=0.05),
        engine=EngineConfig(device="cpu", precision="fp32", threads=1),
    )
    learner = Learner(config, 3)
    for task in stream.tasks[:tasks]:
        learner.learn(task)
    return learner


@pytest.fixture(scope="module", params=SOME)
def learner(request: pytest.FixtureRequest, stream: Stream) -> Learner:
    return trained(request.param, stream)


def everything(learner: Learner) -> dict[str, torch.Tensor]:
    """All that a learner saves, but for its temperatures."""
    saved = {name: value.clone() for name, value in learner.model.tensors().items()}
    return {name: value for name, value in saved.items() if not name.startswith("temperature/")}


def images(stream: Stream, tasks: int = 2) -> np.ndarray:
    return np.concatenate([test.images for test in stream.tests[:tasks]])


@pytest.mark.parametrize("calibrator", EACH.values(), ids=EACH)
def test_predictions_and_the_learner_stay_as_they_are(learner: Learner, calibrator: Calibrator, stream: Stream) -> None:
    learner.model.temperatures = {}
    shown, before = images(stream), everything(learner)
    training = [module.training for module in learner.net.modules()]
    slopes = [None if weight.grad is None else weight.grad.clone() for weight in learner.net.parameters()]
    raw = {answer: learner.predict_proba(shown, answer) for answer in ANSWERS}
    found = learner.calibrate(calibrator, stream.held_out[:2])
    assert set(found.temperatures) == set(ANSWERS)
    for answer in ANSWERS:
        calibrated = learner.predict_proba(shown, answer)
        np.testing.assert_array_equal(calibrated.argmax(1), raw[answer].argmax(1))
        np.testing.assert_allclose(calibrated.sum(1), 1, atol=1e-12)
        assert (calibrated[:, 4:] == 0).all()  # classes not seen
        powers = raw[answer] ** (1 / found.temperatures[answer])
        np.testing.assert_allclose(calibrated, powers / powers.sum(1, keepdims=True), atol=1e-9)
    gap = learner.predict_proba(shown, "first") - learner.predict_proba(shown, "second")
    np.testing.assert_allclose(learner.uncertainty(shown), np.linalg.norm(gap, axis=1))
    after = everything(learner)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for weight, slope in zip(learner.net.parameters(), slopes, strict=True):
        assert weight.grad is slope is None or torch.equal(weight.grad, slope)
    assert [module.training for module in learner.net.modules()] == training


def test_the_temperature_is_the_likeliest_for_the_logits_of_the_classes_seen(stream: Stream) -> None:
    learner = trained("er+id", stream)
    found = learner.calibrate(Temperature(on="newest"), stream.held_out[:2])
    out = stream.held_out[1]
    answers = learner.answers(out.images)
    for answer, logits in (("first", answers.first), ("second", answers.second)):
        expected = best_temperature(logits[:, :4].astype(np.float64), out.labels)
        assert found.temperatures[answer] == pytest.approx(expected, rel=1e-9)


def test_a_plain_net_has_one_answer_also_when_it_is_calibrated(stream: Stream) -> None:
    learner = trained("er", stream)
    found = learner.calibrate("t-cil", stream.held_out[:2])
    assert len(set(found.temperatures.values())) == 1
    probabilities = [learner.predict_proba(images(stream), answer) for answer in ANSWERS]
    assert all((each == probabilities[0]).all() for each in probabilities)
    assert (learner.uncertainty(images(stream)) == 0).all()


def test_temperatures_are_saved_and_hold_until_the_next_task_is_learnt(stream: Stream, tmp_path: Path) -> None:
    learner = trained("er+id", stream)
    learner.calibrate("rc", stream.held_out[:2])
    learner.save(tmp_path / "learner")
    again = Learner.load(tmp_path / "learner")
    assert again.model.temperatures == learner.model.temperatures != {}
    np.testing.assert_array_equal(again.predict_proba(images(stream)), learner.predict_proba(images(stream)))
    again.learn(stream.tasks[2])
    assert again.model.temperatures == {}
    learner.calibrate("none")
    assert learner.model.temperatures == {}


def test_a_small_push_makes_the_target_likelier(stream: Stream) -> None:
    learner = trained("er+id", stream)
    sight = Sight(learner.model, learner._predict(), learner.book, learner.slots.filled, stream.held_out[:2], 0)
    targets = (sight.memory.labels + 1) % 4
    push = -1e-3 * np.sign(sight.slopes(sight.memory, targets))
    rows = np.arange(len(targets))
    before, after = (sight.scores(sight.memory, shift)["first"][rows, targets] for shift in (None, push))
    assert (after > before).mean() > 0.95
    assert push.shape == sight.memory.images.shape
    assert set(np.unique(np.abs(push))) <= {0.0, 1e-3}
    size = np.abs(sight.slopes(sight.memory, targets)).sum((1, 2, 3))
    np.testing.assert_allclose(after - before, 1e-3 * size, rtol=0.1, atol=1e-5)  # the slope is the loss's own


def test_a_shift_is_added_to_normalised_images(stream: Stream) -> None:
    learner = trained("er", stream)
    sight = Sight(learner.model, learner._predict(), learner.book, learner.slots.filled, (), 0)
    brighter = Labelled(np.minimum(sight.memory.images, 200) + 51, sight.memory.labels)
    dimmer = Labelled(np.minimum(sight.memory.images, 200), sight.memory.labels)
    shift = np.full(dimmer.images.shape, 0.2 / learner.config.images.std[0])  # 51 of 255
    found, expected = sight.scores(dimmer, shift)["first"], sight.scores(brighter)["first"]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_what_is_not_in_order_does_not_matter(stream: Stream) -> None:
    """Labels are positions among the classes seen, whatever their numbers."""
    odd = [Task(task.images, 7 - 2 * (task.labels % 4)) for task in (*stream.tasks[:2], *stream.held_out[:2])]
    learner = trained("er", Stream(tuple(odd[:2]), tests=(odd[0],), class_names=tuple("abcdefgh")), classes=8)
    assert learner.seen == (1, 3, 5, 7)
    sight = Sight(learner.model, learner._predict(), learner.book, learner.slots.filled, odd[2:], 0)
    assert set(sight.memory.labels) == {0, 1, 2, 3}
    assert sorted(sight.newest) == [0, 1]
    assert sight.scores(sight.memory)["mean"].shape == (40, 4)
    learner.calibrate("t-cil", odd[2:])


@pytest.mark.parametrize(
    ("calibrator", "tasks", "words"),
    [
        ("rc", (), "rc calibrates on images that were kept from training.*each of the 2 tasks learnt, not 0"),
        ("t-cil", (0,), "t-cil .* not 1"),
        ("rc", (0, 3), r"classes \[6, 7\], which this learner has not learnt"),
        ("tcil", (0, 1), "unknown calibrator 'tcil'; did you mean 't-cil'"),
    ],
)
def test_what_cannot_be_calibrated_says_so(calibrator: str, tasks: Sequence[int], words: str, stream: Stream) -> None:
    learner = trained("er", stream)
    with pytest.raises(UserError, match=words):
        learner.calibrate(calibrator, [stream.held_out[task] for task in tasks])
    assert learner.model.temperatures == {}


def test_a_learner_that_has_learnt_nothing_has_nothing_to_calibrate(stream: Stream) -> None:
    learner = trained("er", stream, tasks=0)
    learner.prepare(stream.tasks[0].images)
    with pytest.raises(UserError, match="nothing to calibrate"):
        learner.calibrate("temperature")


def test_without_a_memory_the_held_out_images_decide(stream: Stream) -> None:
    learner = trained("finetune", stream, memory=0)
    assert learner.calibrate("temperature").temperatures == {"first": 1.0, "second": 1.0, "mean": 1.0}
    found = learner.calibrate("t-cil", stream.held_out[:2])
    assert (found.remembered, found.held_out) == (0, len(stream.held_out[1]))
    assert learner.calibrate(RC(), stream.held_out[:2]).held_out > 0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.05, 20), st.sampled_from([0.1, 5.0, 200.0]))
def test_a_temperature_keeps_the_order_of_the_classes_and_the_mass_on_those_allowed(
    seed: int, temperature: float, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    first, second = (spread * rng.normal(size=(8, 5)).astype(np.float32) for _ in range(2))
    answers = Answers(first, second)
    for answer in ANSWERS:
        raw = answers.probabilities(answer, [0, 2, 3])
        calibrated = answers.probabilities(answer, [0, 2, 3], {answer: temperature})
        assert (calibrated.argmax(1) == raw.argmax(1)).all()
        assert (calibrated[:, [1, 4]] == 0).all()
        np.testing.assert_allclose(calibrated.sum(1), 1, atol=1e-12)
        np.testing.assert_array_equal(answers.probabilities(answer, None, {}), answers.probabilities(answer))
    np.testing.assert_allclose(
        answers.probabilities("second", None, {"second": temperature}),
        softmax(second.astype(np.float64) / temperature),
        atol=1e-9,
    )


def test_each_answer_has_a_temperature_of_its_own_and_each_set_of_images_another(stream: Stream) -> None:
    learner = Learner(
        replace(recipe("digits", "er+id"), engine=EngineConfig(device="cpu", precision="fp32", threads=1))
    )
    for task in stream.tasks[:2]:
        learner.learn(task)
    found = [learner.calibrate(Temperature(on=on), stream.held_out[:2]).temperatures for on in ("newest", "all")]
    assert len({round(value, 6) for temperatures in found for value in temperatures.values()}) == 6
