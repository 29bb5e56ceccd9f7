"""Reading a configuration file: TOML, or the record of a run; whatever is wrong with it is a `UserError`."""

import json

import pytest

from ider import UserError, recipe
from ider.config import as_dict, from_dict, read
from ider.settings import to_toml

CONFIG = recipe("cifar100", "er+id")


def test_a_configuration_is_read_from_toml_and_from_a_record(tmp_path):
    (tmp_path / "config.toml").write_text(to_toml(as_dict(CONFIG)), encoding="utf-8")
    (tmp_path / "record.json").write_text(json.dumps({"schema": 1, "config": as_dict(CONFIG)}), encoding="utf-8")
    for name in ("config.toml", "record.json"):
        assert from_dict(read(tmp_path / name)) == CONFIG


def test_text_is_utf8(tmp_path):
    (tmp_path / "config.toml").write_bytes('recipe = "é"'.encode())
    assert read(tmp_path / "config.toml") == {"recipe": "é"}


@pytest.mark.parametrize("name", ["absent.toml", "absent.json"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(UserError, match=f"^cannot read .*{name}: No such file or directory$"):
        read(tmp_path / name)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UserError, match=r"^cannot read .*: Is a directory$"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", b"train = {"),
        ("a.toml", b"[train]\nlr = 1\n[train]\n"),
        ("a.toml", b"\xff\xfe"),
        ("a.toml", b"x = " + b"9" * 5000),
        ("a.json", b"{"),
        ("a.json", b"\xff"),
        ("a.json", b""),
        ("a.json", b"{}"),
        ("a.json", b'{"schema": 1}'),
        ("a.json", b"[1, 2]"),
        ("a.json", b"null"),
        ("a.json", b"5"),
        ("a.json", b'"config"'),
        ("a.json", b'{"config": [1]}'),
        ("a.json", b'{"config": null}'),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"^.*{name} is not a configuration"):
        read(tmp_path / name)


def test_a_toml_error_says_where(tmp_path):
    (tmp_path / "a.toml").write_text("[train]\nlr = = 3\n")
    with pytest.raises(UserError, match="line 2"):
        read(tmp_path / "a.toml")


@pytest.mark.parametrize("content", ["x = " + "[" * 5000, "x = " + "{a=" * 5000])
def test_a_file_nested_too_deep_is_named(tmp_path, content):
    (tmp_path / "a.toml").write_text(content)
    with pytest.raises(UserError, match="not a configuration"):
        read(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[train]\nlr = 'fast'\n", "train.lr is 'fast'; it must be a number"),
        ("[trian]\nlr = 1\n", "did you mean 'train'?"),
        ("train = 3\n", "train is 3; it must be a section"),
        ("[method]\nname = 'er+di'\n", "did you mean 'er+id'?"),
        ("recipe = 2020-01-01\n", "recipe is datetime.date(2020, 1, 1); it must be a string"),
        ("[[train]]\nlr = 1\n", "train is [{'lr': 1}]; it must be a section"),
    ],
)
def test_wrong_settings_in_a_file_are_named(tmp_path, text, said):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UserError) as error:
        from_dict(read(tmp_path / "a.toml"))
    assert said in str(error.value)
