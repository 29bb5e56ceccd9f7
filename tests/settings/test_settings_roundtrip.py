"""A configuration goes through dict, TOML and JSON and comes back equal."""

import dataclasses
import json
import math
import tomllib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ider import METHODS, RunConfig, UserError, recipe
from ider.config import (
    EngineConfig,
    EvaluationConfig,
    ImageConfig,
    MemoryConfig,
    NetConfig,
    StreamConfig,
    TrainConfig,
    as_dict,
    from_dict,
)
from ider.memory.policy import POLICIES
from ider.methods import ER, Finetune, Idempotent, Joint
from ider.nets import NETS
from ider.recipes import BENCHMARKS, recipes
from ider.settings import name_of, override, to_toml
from ider.settings import settings as settings_of

quick = settings(deadline=None, max_examples=80)
ALL = {
    name: [config for size in known.memories for config in recipes(name, size).values()]
    for name, known in BENCHMARKS.items()
}

whole = st.integers(1, 2**62)
number = st.floats(0, allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
apart = st.builds(ER, mixed=st.just(False), replay_weight=number)
methods = st.one_of(
    st.just(Finetune()),
    st.just(Joint()),
    st.just(ER()),
    apart,
    st.builds(
        Idempotent,
        base=st.just(Finetune()) | apart,
        answer_weight=number,
        current_weight=number,
        memory_weight=number,
        prior_probability=st.floats(0, 1),
        distance=st.sampled_from(["mse", "kl"]),
        teacher_statistics=st.sampled_from(["batch", "running"]),
        teacher_gradient=st.booleans(),
    ),
)
trains = st.builds(
    TrainConfig,
    epochs=whole,
    batch=whole,
    replay_batch=whole,
    drop_last=st.booleans(),
    lr=number,
    momentum=number,
    weight_decay=number,
    milestones=st.lists(st.floats(0, 1, exclude_min=True), max_size=3).map(tuple),
    decay=number,
)


@st.composite
def images(draw):
    channels = draw(st.integers(0, 3))
    mean = st.floats(allow_nan=False, allow_infinity=False)
    std = st.floats(0, exclude_min=True, allow_infinity=False)
    return ImageConfig(
        mean=tuple(draw(st.lists(mean, min_size=channels, max_size=channels))),
        std=tuple(draw(st.lists(std, min_size=channels, max_size=channels))),
        pad=draw(st.integers(0, 9)),
        flip=draw(st.booleans()),
    )


configs = st.builds(
    RunConfig,
    method=methods,
    net=st.builds(
        NetConfig,
        name=st.sampled_from(list(NETS)),
        width=whole,
        split=st.integers(0, 9),
        label_input=st.just(True),
        classes=st.integers(0, 9),
    ),
    memory=st.builds(MemoryConfig, size=st.integers(0, 2**62), policy=st.sampled_from(list(POLICIES))),
    train=trains,
    images=images(),
    engine=st.builds(
        EngineConfig,
        device=st.sampled_from(["auto", "cpu", "cuda"]),
        precision=st.sampled_from(["auto", "fp32", "bf16"]),
        threads=st.integers(0, 9),
        checkpoint_every=st.integers(0, 9),
    ),
    benchmark=text,
    recipe=text,
    seeds=st.lists(st.integers(0, 2**62), min_size=1, max_size=4, unique=True).map(tuple),
    stream=st.builds(StreamConfig, tasks=whole, order_seed=st.integers(-1, 2**62)),
    evaluation=st.builds(
        EvaluationConfig, answer=st.sampled_from(["first", "second", "mean"]), classes=st.sampled_from(["seen", "all"])
    ),
)


def comes_back(config: RunConfig) -> None:
    """Equal and of the same types through a dict, TOML and JSON; equal also after another time round."""
    content = as_dict(config)
    written = to_toml(content)
    for found in (content, tomllib.loads(written), json.loads(json.dumps(content))):
        again = from_dict(found)
        assert again == config
        assert repr(again) == repr(config)
        assert to_toml(as_dict(again)) == written


@pytest.mark.parametrize("benchmark", ALL)
def test_every_recipe_comes_back(benchmark):
    for config in ALL[benchmark]:
        comes_back(config)


@quick
@given(configs)
def test_any_configuration_comes_back(config):
    comes_back(config)


@quick
@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("😀")
@example("\x7f")
def test_any_text_comes_back(name):
    comes_back(dataclasses.replace(recipe("digits", "er"), recipe=name))


def test_a_method_on_another_base_comes_back():
    comes_back(override(recipe("digits", "er+id"), "method.base.name=finetune", METHODS))


@quick
@given(configs)
def test_dicts_hold_plain_values_only(config):
    def plain(value):
        if isinstance(value, dict):
            return all(type(name) is str and plain(item) for name, item in value.items())
        return all(map(plain, value)) if type(value) is list else type(value) in (int, float, str, bool)

    assert plain(as_dict(config))
    assert as_dict(config)["method"]["name"] in METHODS


@quick
@given(configs)
def test_setting_every_path_to_its_own_value_changes_nothing(config):
    again = override(config, f"method.name={name_of(config.method, METHODS)}", METHODS)
    for path, value, _ in settings_of(config, METHODS):
        if path in ("method.name", "method.base.name"):
            continue  # choosing a method again resets its settings
        words = json.dumps(list(value) if isinstance(value, tuple) else value)
        if isinstance(value, str):
            if value.strip() != value or value[:1] in ("'", '"'):
                continue  # the command line drops spaces and quotes around a value
            words = value
        again = override(again, f"{path}={words}", METHODS)
    assert dataclasses.replace(again, recipe=config.recipe, benchmark=config.benchmark) == config


def test_a_method_without_a_name_is_refused_rather_than_written_so_that_it_cannot_be_read():
    class Mine(ER):
        """A user's own."""

    config = dataclasses.replace(recipe("digits", "er"), method=Mine())
    with pytest.raises(UserError, match=r"^Mine has no name"):
        as_dict(config)


def test_what_is_left_out_takes_its_default():
    config = from_dict({"method": {"name": "er", "mixed": False}, "train": {"epochs": 7}})
    assert config == RunConfig(method=ER(mixed=False), train=TrainConfig(epochs=7))
    assert from_dict({}) == RunConfig(method=Finetune())


def test_toml_is_laid_out_by_sections():
    content = {"a": 1, "b": {"c": 0.5, "d": {"e": True}, "f": 'x"y\n'}, "g": [1, 2], "h": {}}
    written = to_toml(content)
    assert tomllib.loads(written) == content
    assert written.splitlines() == [
        *("a = 1", "g = [1, 2]", ""),
        *("[b]", "c = 0.5", 'f = "x\\"y\\n"', ""),
        *("[b.d]", "e = true", "", "[h]"),
    ]


@quick
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**62), 2**62))
def test_toml_keeps_numbers_exactly(real, integer):
    found = tomllib.loads(to_toml({"real": real, "integer": integer}))
    assert (found["real"], found["integer"]) == (real, integer)
    assert math.copysign(1, found["real"]) == math.copysign(1, real)
    assert type(found["real"]) is float


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_has_one_line_of_help(name):
    for path, _, help_text in settings_of(recipe("digits", name), METHODS):
        assert help_text, path
        assert "\n" not in help_text


def test_all_settings_are_listed():
    one, other = (recipes("digits")[name] for name in ("finetune", "joint"))
    alike = dataclasses.replace(other, recipe=one.recipe)
    assert alike != one
    assert list(settings_of(alike, METHODS)) != list(settings_of(one, METHODS))
