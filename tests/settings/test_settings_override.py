"""`path=value` and nested dicts onto a configuration: typed, checked, and never another error than a `UserError`."""

import dataclasses
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ider import METHODS, RunConfig, UserError, recipe
from ider.config import from_dict
from ider.methods import ER, Finetune, Idempotent, Joint
from ider.settings import overlay, override, override_all
from ider.settings import settings as settings_of

CONFIG = recipe("digits", "er+id")
quick = settings(deadline=None, max_examples=150)


def changed(*assignments: str, config: RunConfig = CONFIG) -> RunConfig:
    for assignment in assignments:
        config = override(config, assignment, METHODS)
    return config


def at(config: object, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def same(one: Any, other: Any) -> bool:
    return one == other and type(one) is type(other)


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("train.epochs", "3", 3),
        ("train.epochs", "1_000", 1000),
        ("train.lr", "0.05", 0.05),
        ("train.lr", "1e-3", 0.001),
        ("train.lr", "1", 1.0),
        ("train.drop_last", "true", True),
        ("train.milestones", "[0.5, 0.9]", (0.5, 0.9)),
        ("train.milestones", "[0.5,1]", (0.5, 1.0)),
        ("train.milestones", "[]", ()),
        ("seeds", "[0, 1, 7]", (0, 1, 7)),
        ("engine.device", "cpu", "cpu"),
        ("engine.precision", "bf16", "bf16"),
        ("evaluation.classes", "all", "all"),
        ("net.name", "resnet18", "resnet18"),
        ("memory.policy", "class-balanced", "class-balanced"),
        ("recipe", "my run = 2", "my run = 2"),
        ("recipe", "", ""),
        ("recipe", "7", "7"),
        ("method.base.mixed", "false", False),
        ("method.base.replay_weight", "2", 2.0),
        ("method.distance", "kl", "kl"),
        ("stream.order_seed", "-1", -1),
    ],
)
@pytest.mark.parametrize("layout", ["{}={}", " {} = {} "])
def test_a_value_is_read_as_its_settings_type(path, text, value, layout):
    config = changed(layout.format(path, text))
    assert same(at(config, path), value)
    assert all(type(item) is type(value[0]) for item in (at(config, path) if isinstance(value, tuple) else ()))
    others = {name: found for name, found, _ in settings_of(config, METHODS) if name != path}
    assert others == {name: found for name, found, _ in settings_of(CONFIG, METHODS) if name != path}


def test_the_configuration_itself_stays_as_it_was():
    before = dataclasses.asdict(CONFIG)
    changed("train.lr=0.5", "method.base.replay_weight=0.5", "method.name=er")
    assert dataclasses.asdict(CONFIG) == before


@pytest.mark.parametrize(
    ("name", "method"), [("er", ER()), ("finetune", Finetune()), ("joint", Joint()), ("er+id", METHODS["er+id"])]
)
def test_a_method_is_chosen_by_name_and_starts_from_its_defaults(name, method):
    assert same(changed(f"method.name={name}").method, method)


def test_a_method_can_be_chosen_and_then_set():
    config = changed("method.name=er", "method.mixed=false", "method.replay_weight=0.5")
    assert config.method == ER(mixed=False, replay_weight=0.5)
    again = changed("method.name=er+id", "method.base.mixed=false", "method.distance=kl", config=config)
    assert again.method == Idempotent(base=ER(mixed=False), distance="kl")


def test_a_section_with_a_name_and_settings_takes_both_in_any_order():
    for content in ({"name": "er", "mixed": False}, {"mixed": False, "name": "er"}):
        assert overlay(CONFIG, {"method": content}, METHODS).method == ER(mixed=False)


@pytest.mark.parametrize(
    ("assignment", "near"),
    [
        ("train.epoch=3", "train.epochs"),
        ("memroy.size=3", "memory"),
        ("memory.sise=3", "memory.size"),
        ("method.current_wieght=1", "method.current_weight"),
        ("method.base.replay_wait=1", "method.base.replay_weight"),
        ("method.name=er-id", "er+id"),
        ("method.base.name=err", "er"),
        ("net.name=resnet-18", "resnet18"),
        ("memory.policy=class_balanced", "class-balanced"),
        ("engine.device=gpu-cuda", "cuda"),
        ("method.distance=mes", "mse"),
    ],
)
def test_an_unknown_name_suggests_the_near_one(assignment, near):
    with pytest.raises(UserError) as error:
        changed(assignment)
    path, _, value = assignment.partition("=")
    assert f"did you mean '{near}'?" in str(error.value)
    assert path.removesuffix(".size") in str(error.value)  # a wrong section is named without what is below it
    assert path.endswith((".name", "policy", "device", "distance")) == (f"'{value}'" in str(error.value))


def test_settings_that_make_sense_only_together_are_applied_together():
    pair = ["images.mean=[0.1, 0.2, 0.3]", "images.std=[1, 1, 1]"]
    for assignments in (pair, pair[::-1]):
        images = override_all(CONFIG, assignments, METHODS).images
        assert (images.mean, images.std) == ((0.1, 0.2, 0.3), (1.0, 1.0, 1.0))
    plain = override_all(CONFIG, ["net.label_input=false", "method.name=er", "method.mixed=false"], METHODS)
    assert (plain.net.label_input, plain.method) == (False, ER(mixed=False))
    assert override_all(CONFIG, ["train.lr=1", "train.epochs=3", "train.lr=2"], METHODS).train.lr == 2
    assert override_all(CONFIG, [], METHODS) == CONFIG
    for assignments in (["train=1", "train.lr=2"], ["train.lr=2", "train=1"], ["train.lr=2", "train.lr.x=1"]):
        with pytest.raises(UserError, match="it must be a section"):
            override_all(CONFIG, assignments, METHODS)


def test_an_unknown_name_lists_what_is_allowed_there():
    with pytest.raises(
        UserError, match=r"allowed: engine.at_once, engine.capture, engine.checkpoint_every, .*threads\)"
    ):
        changed("engine.xyz=1")
    with pytest.raises(UserError) as error:
        changed("method.name=xyz")
    assert f"allowed: {', '.join(sorted(METHODS))})" in str(error.value)


@pytest.mark.parametrize(
    ("assignment", "value", "kind"),
    [
        ("train.epochs=2.5", "2.5", "a whole number"),
        ("train.epochs=2.0", "2.0", "a whole number"),
        ("train.epochs=true", "True", "a whole number"),
        ("train.epochs=many", "'many'", "a whole number"),
        ("train.epochs=", "''", "a whole number"),
        ("train.epochs=[1]", "[1]", "a whole number"),
        ("train.lr=fast", "'fast'", "a number"),
        ("train.lr=false", "False", "a number"),
        ("train.lr=2020-01-01", "datetime.date(2020, 1, 1)", "a number"),
        ("train.drop_last=1", "1", "true or false"),
        ("train.drop_last=True", "'True'", "true or false"),
        ("train.milestones=0.5", "0.5", "a list, such as [1, 2]"),
        ("train.milestones=0.5,0.9", "'0.5,0.9'", "a list, such as [1, 2]"),
        ("train.milestones=[0.5, true]", "True", "a number"),
        ("train.milestones=[[0.5]]", "[0.5]", "a number"),
        ("seeds=0", "0", "a list, such as [1, 2]"),
        ("seeds=[0, 0.5]", "0.5", "a whole number"),
        ("train.lr.x=1", "{'x': '1'}", "a number"),
        ("train=5", "'5'", "a section"),
        ("method=er", "'er'", "a section"),
        ("method.base=er", "'er'", "a section"),
    ],
)
def test_a_wrong_type_names_path_value_and_what_is_allowed(assignment, value, kind):
    path = {"train.lr.x": "train.lr"}.get(assignment.partition("=")[0], assignment.partition("=")[0])
    with pytest.raises(UserError) as error:
        changed(assignment)
    assert str(error.value) == f"{path} is {value}; it must be {kind}"


@pytest.mark.parametrize("assignment", ["", "train.lr", "=3", " = 3", "train.lr 3"])
def test_an_assignment_needs_a_path_and_an_equals_sign(assignment):
    with pytest.raises(UserError) as error:
        changed(assignment)
    assert str(error.value) == f"--set takes path=value, not {assignment!r}"


@pytest.mark.parametrize("content", [5, "x", None, [], [1], True])
def test_only_a_section_can_be_laid_over(content):
    with pytest.raises(UserError, match="must be a section"):
        from_dict(content)
    with pytest.raises(UserError, match="train is .* it must be a section"):
        from_dict({"train": content})


def test_a_string_setting_takes_only_strings_from_a_file():
    for value in (7, True, None, ["a"], {"a": "b"}):
        with pytest.raises(UserError, match="recipe is .* it must be a string"):
            from_dict({"recipe": value})


PATHS = [path for path, _, _ in settings_of(CONFIG, METHODS)]
PLACES = [
    *PATHS,
    *(
        "method.name",
        "method.base.name",
        "method.base",
        "method",
        "train",
        "net",
        "method.name.x",
        "method.base.name.x",
    ),
    *("train.lr.x", "seeds.x", "", ".", "..", "train.", ".train"),
]
VALUES = [
    *("nan", "inf", "-inf", "-1", "0", "1e400", "-0.0", "0x10", "1e-400", "[]", "{}", "[[]]", "{a=1}", "[1,", "'", '"'),
    *("true", "false", "None", "null", "2020-01-01", "2020-13-01", "12:00:00", "er", "er+id", "joint", "finetune"),
    *(
        "cpu",
        "9" * 30,
        "[nan]",
        "[inf]",
        "[-1]",
        "[0, 0]",
        "[1, 2]",
        "[0.5, 0.9]",
        "1\n2",
        "#",
        "\\",
        "\x00",
        "é",
        "😀",
    ),
]
assignments = st.one_of(
    st.text(max_size=30),
    st.builds("{}={}".format, st.sampled_from(PLACES), st.one_of(st.sampled_from(VALUES), st.text(max_size=12))),
    st.builds("{}={}".format, st.sampled_from(PLACES), st.one_of(st.integers(), st.floats())),
    st.builds("{}={}".format, st.text("abtrin.el", max_size=12), st.sampled_from(VALUES)),
)


@quick
@given(assignments)
@example("method.name.x=1")
@example("method.base.name.x=1")
@example("train.lr=" + "9" * 400)
@example("train.epochs=" + "9" * 400)
@example("stream.order_seed=" + "9" * 400)
@example("train.epochs=" + "9" * 5000)
@example("train.lr=" + "[" * 5000)
def test_any_assignment_gives_a_configuration_or_a_user_error(assignment):
    try:
        config = changed(assignment)
    except UserError as error:
        assert str(error)
        return
    assert isinstance(config, RunConfig)


NAMES = sorted({part for place in PLACES for part in place.split(".")})
names = st.sampled_from(NAMES) | st.text(max_size=6)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.sampled_from(VALUES))
documents = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@st.composite
def near_configurations(draw):
    """The right shape, with some places holding something else."""
    content: dict[str, Any] = {}
    for path in draw(st.lists(st.sampled_from([*PATHS, "method.name", "method.base.name"]), max_size=5)):
        *sections, name = path.split(".")
        place = content
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = draw(documents)
    return content


@quick
@given(documents | near_configurations())
@example({"method": {"name": ["er"]}})
@example({"method": {"name": {}}})
@example({"method": {"name": "er+id", "base": {"name": []}}})
@example({"train": {"lr": 10**400}})
@example({"net": {"width": 10**400}})
@example({"stream": {"tasks": 10**400}})
def test_any_document_gives_a_configuration_or_a_user_error(content):
    try:
        config = from_dict(content)
    except UserError as error:
        assert str(error)
        return
    assert isinstance(config, RunConfig)


def test_a_value_of_several_lines_is_refused():
    with pytest.raises(UserError):
        changed("train.epochs=5\nlr = 7")


@pytest.mark.parametrize("text", ['net.name="resnet18"', "net.name='resnet18'"])
def test_a_quoted_string_is_the_string(text):
    assert changed(text).net.name == "resnet18"


@pytest.mark.parametrize("name", ["er+id", "joint", "finetune+id"])
def test_a_base_that_cannot_be_one_is_refused(name):
    with pytest.raises(UserError):
        changed(f"method.base.name={name}")
