"""A run's id names what is computed: every setting and the seed, but not the machine."""

import dataclasses
import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ider import METHODS, RunConfig, recipe
from ider.config import as_dict, from_dict, run_id
from ider.settings import override, override_all, to_toml
from ider.settings import settings as settings_of

CONFIG = override(recipe("digits", "er+id"), "stream.hold_out=0.2", METHODS)
ENGINE = {f"engine.{name}" for name in ("at_once", "capture", "checkpoint_every", "data_dir", "device", "threads")}
MACHINE = {"recipe", "seeds", *ENGINE}
OTHERS = {
    "engine.capture": "off",
    "engine.device": "cpu",
    "engine.precision": "bf16",
    "stream.kind": "gcil",
    "stream.sizes": "[1, 2]",
    "stream.hold_out": "0.3",
    "stream.gcil.weights": "longtail",
    "calibration.name": "temperature",
    "evaluation.answer": "second",
    "evaluation.classes": "all",
    "evaluation.on": "held-out",
    "images.mean": "[0.25]",
    "images.std": "[0.25]",
    "memory.policy": "reservoir",
    "method.distance": "kl",
    "method.prior_probability": "0.5",
    "method.teacher_statistics": "running",
    "net.name": "resnet18",
    "net.label_input": None,  # the method needs it
    "method.base.mixed": "true",
    "method.teacher_of": None,  # the method underneath has no mean
    "method.teacher_lives": None,
    "seeds": "[4]",
    "train.milestones": "[0.5]",
    "train.schedule": "cosine",
}
PATHS = [path for path, _, _ in settings_of(CONFIG, METHODS) if path not in ("method.name", "method.base.name")]


def other_value(path: str, value: object) -> str | None:
    """A valid value that differs."""
    if path in OTHERS:
        return OTHERS[path]
    if isinstance(value, bool):
        return json.dumps(not value)
    return str(value + 1) if isinstance(value, int | float) else f"{value}x"


@pytest.mark.parametrize("path", PATHS)
def test_every_setting_but_those_of_the_machine_changes_the_id(path):
    words = other_value(path, dict((name, value) for name, value, _ in settings_of(CONFIG, METHODS))[path])
    if words is None:
        config = override_all(CONFIG, ["method.name=cls-er+id", "method.teacher_of=plastic"], METHODS)
        config = recipe("digits", "er") if path == "net.label_input" else config
        words = {"method.teacher_of": "stable"}.get(path, "true")
        changed = override(config, f"{path}={words}", METHODS)
    else:
        changed, config = override(CONFIG, f"{path}={words}", METHODS), CONFIG
    assert changed != config
    assert (run_id(changed, 0) == run_id(config, 0)) == (path in MACHINE)


def test_methods_and_seeds_have_ids_of_their_own():
    ids = {
        run_id(override(recipe("digits", "joint"), f"method.name={name}", METHODS), seed)
        for name in ("finetune", "joint", "er")
        for seed in (0, 1, 2**40)
    }
    assert len(ids) == 9


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**62), st.lists(st.integers(0, 99), min_size=1, unique=True), st.integers(0, 64))
def test_the_id_depends_neither_on_the_other_seeds_nor_on_the_machine(seed, seeds, threads):
    engine = dataclasses.replace(CONFIG.engine, device="cuda", threads=threads, checkpoint_every=threads)
    elsewhere = dataclasses.replace(CONFIG, seeds=tuple(seeds), engine=engine)
    assert run_id(elsewhere, seed) == run_id(CONFIG, seed)


@settings(deadline=None, max_examples=40)
@given(st.floats(0, 1e9), st.integers(1, 2**40))
def test_the_id_survives_files(lr, epochs):
    config = override(override(CONFIG, f"train.lr={lr}", METHODS), f"train.epochs={epochs}", METHODS)
    content = as_dict(config)
    for found in (tomllib.loads(to_toml(content)), json.loads(json.dumps(content))):
        assert run_id(from_dict(found), 3) == run_id(config, 3)


def test_the_id_is_twelve_hexadecimal_digits():
    found = run_id(CONFIG, 0)
    assert len(found) == 12
    assert int(found, 16) >= 0
    assert run_id(from_dict(as_dict(CONFIG)), 0) == found
    assert isinstance(CONFIG, RunConfig)
