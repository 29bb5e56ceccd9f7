"""A configuration refuses what cannot be: the message names the path, the value and what is allowed."""

import dataclasses
import math
import re

import pytest

from ider import METHODS, LearnerConfig, RunConfig, UserError, recipe
from ider.config import MemoryConfig, NetConfig, TrainConfig
from ider.methods import ER, Idempotent
from ider.settings import override

CONFIG = recipe("digits", "er+id")
LEAST = {
    "net.width": 1,
    "net.classes": 0,
    "memory.size": 0,
    "train.epochs": 1,
    "train.batch": 1,
    "train.replay_batch": 1,
    "train.lr": 0,
    "train.momentum": 0,
    "train.weight_decay": 0,
    "train.decay": 0,
    "images.pad": 0,
    "engine.threads": 0,
    "engine.checkpoint_every": 0,
    "stream.tasks": 1,
    "stream.order_seed": -1,
}
WEIGHTS = ("answer_weight", "current_weight", "memory_weight", "base.replay_weight")
REAL = ("train.lr", "train.momentum", "train.weight_decay", "train.decay")


def changed(path: str, value: object, config: RunConfig = CONFIG) -> RunConfig:
    section, name = path.split(".")
    return dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **{name: value})})


@pytest.mark.parametrize("path", LEAST)
def test_the_least_allowed_value_is_taken_and_less_is_refused(path):
    least = LEAST[path]
    assert getattr(getattr(changed(path, least), path.split(".")[0]), path.split(".")[1]) == least
    for value in (least - 1, -7):
        with pytest.raises(UserError, match=rf"^{re.escape(path)} is {value}(\.0)?; it must be at least {least}$"):
            changed(path, value)


@pytest.mark.parametrize("path", LEAST)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(path, value):
    with pytest.raises(UserError, match=rf"^{re.escape(path)} is {value}"):
        changed(path, value)


@pytest.mark.parametrize("path", REAL)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-0.001"])
def test_the_command_line_cannot_smuggle_one_in(path, value):
    with pytest.raises(UserError, match=rf"^{re.escape(path)} is {float(value)}"):
        override(CONFIG, f"{path}={value}", METHODS)


@pytest.mark.parametrize(
    ("method", "policy", "when"), [("er", "herding", "with each step"), ("icarl", "reservoir", "between")]
)
def test_a_policy_of_the_other_kind_is_refused_with_those_that_fit(method: str, policy: str, when: str):
    with pytest.raises(
        UserError, match=f"memory.policy is {policy}, but the method fills its memory {when}.*allowed: auto, "
    ):
        LearnerConfig(method=METHODS[method], memory=MemoryConfig(policy=policy))


def test_a_method_is_not_its_name():
    with pytest.raises(UserError, match=re.escape("method is the name 'er'; give the method itself: METHODS['er']")):
        LearnerConfig(method="er")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_told_so(value: float):
    with pytest.raises(UserError, match=re.escape(f"train.lr is {value}; it must be at least 0 and be finite")):
        LearnerConfig(method=METHODS["er"], train=TrainConfig(lr=value))


@pytest.mark.parametrize(("path", "near"), [("net.name", "resnet18"), ("memory.policy", "reservoir")])
def test_an_unknown_net_or_policy_is_refused(path, near):
    with pytest.raises(UserError, match=f"unknown {re.escape(path)} '{near}x'; did you mean '{near}'"):
        changed(path, near + "x")


@pytest.mark.parametrize("value", [0.0, -0.5, 1.01, 35, math.nan, math.inf])
def test_milestones_are_fractions(value):
    allowed = "each is a fraction in 0..1" if math.isfinite(value) else "it must be finite"
    with pytest.raises(UserError, match=rf"^train.milestones is .*{value}\]?; {allowed}$"):
        changed("train.milestones", (0.5, value))
    assert changed("train.milestones", (0.5, 1.0)).train.milestones == (0.5, 1.0)


@pytest.mark.parametrize(
    ("mean", "std"), [((0.5,), ()), ((), (0.5,)), ((0.5, 0.5), (0.5,)), ((0.5,), (0.0,)), ((0.5,), (-0.5,))]
)
def test_mean_and_std_go_together(mean, std):
    with pytest.raises(UserError, match=r"images.mean and images.std"):
        dataclasses.replace(CONFIG, images=dataclasses.replace(CONFIG.images, mean=mean, std=std))


@pytest.mark.parametrize(("path", "value"), [(f"images.{name}", v) for name in ("mean", "std") for v in ("nan", "inf")])
def test_mean_and_std_are_finite(path, value):
    with pytest.raises(UserError, match=path):
        override(CONFIG, f"{path}=[{value}]", METHODS)


@pytest.mark.parametrize("seeds", [(), (-1,), (0, -3), (1, 1), (0, 1, 2, 0)])
def test_seeds_are_at_least_one_none_negative_none_twice(seeds):
    with pytest.raises(UserError) as error:
        dataclasses.replace(CONFIG, seeds=seeds)
    assert str(error.value) == f"seeds is {list(seeds)}; at least one, none negative, none twice"


def test_a_method_that_feeds_answers_back_needs_the_second_input():
    with pytest.raises(UserError, match=r"^net.label_input is false, but the method"):
        changed("net.label_input", False)
    weightless = dataclasses.replace(CONFIG, method=Idempotent(current_weight=0, memory_weight=0))
    with pytest.raises(UserError, match=r"^net.label_input is false, but the method"):
        changed("net.label_input", False, weightless)
    assert not changed("net.label_input", False, recipe("digits", "er")).net.label_input
    assert changed("net.label_input", True, recipe("digits", "er")).net.label_input


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_not_negative(name):
    with pytest.raises(UserError, match=rf"{name.removeprefix('base.')} is -0.1; it must be at least 0"):
        override(CONFIG, f"method.{name}=-0.1", METHODS)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_are_finite(name, value):
    with pytest.raises(UserError, match=rf"{name.removeprefix('base.')} is {value}"):
        override(CONFIG, f"method.{name}={value}", METHODS)


def test_the_parts_of_a_mixed_batch_have_no_weights_of_their_own():
    with pytest.raises(UserError, match=r"replay_weight is 0.5, but a mixed batch"):
        ER(mixed=True, replay_weight=0.5)
    assert ER(mixed=False, replay_weight=0.5).replay_weight == 0.5


@pytest.mark.parametrize("value", ["-0.1", "1.1", "nan", "inf"])
def test_the_chance_of_the_prior_is_a_probability(value):
    with pytest.raises(UserError, match=rf"prior_probability is {float(value)}"):
        override(CONFIG, f"method.prior_probability={value}", METHODS)


def test_a_learner_is_checked_like_a_run():
    assert LearnerConfig(method=ER()).memory == MemoryConfig(size=500, policy="reservoir")
    with pytest.raises(UserError, match=r"memory.size is -1"):
        LearnerConfig(method=ER(), memory=MemoryConfig(size=-1))
    with pytest.raises(UserError, match=r"unknown net.name"):
        LearnerConfig(method=ER(), net=NetConfig(name="vgg"))


def test_configurations_are_frozen_and_hashable():
    assert hash(CONFIG) == hash(recipe("digits", "er+id"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONFIG.train.lr = 1.0
