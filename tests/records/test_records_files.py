"""Files that a run leaves: replaced as a whole or not at all, and read with errors that name them."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ider.records
from ider import UserError
from ider.records import COMPARISON, RECORD, SCHEMA, load_records, load_run, read_json, write_bytes, write_json

CRASHES = [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()]


def crash_at(monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException) -> None:
    def crash(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(ider.records.os, function, crash)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("error", CRASHES, ids=repr)
def test_a_crash_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, function, error):
    path = tmp_path / "record.json"
    write_json(path, {"schema": SCHEMA, "old": True})
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        crash_at(patched, function, error)
        with pytest.raises(type(error)):
            write_json(path, {"schema": SCHEMA, "old": False})
    assert path.read_bytes() == before
    assert names(tmp_path) == ["record.json"]
    write_json(path, {"schema": SCHEMA, "old": False})
    assert read_json(path)["old"] is False


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_crash_while_writing_a_first_file_leaves_none(tmp_path, monkeypatch, function):
    crash_at(monkeypatch, function, OSError(5, "Input/output error"))
    with pytest.raises(OSError, match="Input/output error"):
        write_bytes(tmp_path / "a" / "b.bin", b"content")
    assert names(tmp_path / "a") == []


def test_what_json_cannot_hold_leaves_the_old_file(tmp_path):
    path = tmp_path / "record.json"
    write_json(path, {"schema": SCHEMA})
    with pytest.raises(TypeError):
        write_json(path, {"schema": SCHEMA, "object": object()})
    assert read_json(path) == {"schema": SCHEMA}
    assert names(tmp_path) == ["record.json"]


def test_the_content_is_on_disk_before_the_old_file_goes_and_the_folder_is_synced_after(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(handle):
        target = os.readlink(f"/proc/self/fd/{handle}") if Path("/proc/self/fd").exists() else ""
        events.append(("fsync", "folder" if Path(target) == tmp_path else "file", Path(target).exists()))
        fsync(handle)

    def spy_replace(source, target):
        events.append(("replace", Path(source).parent == Path(target).parent, Path(source).read_bytes()))
        replace(source, target)

    monkeypatch.setattr(ider.records.os, "fsync", spy_fsync)
    monkeypatch.setattr(ider.records.os, "replace", spy_replace)
    write_bytes(tmp_path / "x", b"new")
    if Path("/proc/self/fd").exists():
        assert events == [("fsync", "file", True), ("replace", True, b"new"), ("fsync", "folder", True)]
    assert (tmp_path / "x").read_bytes() == b"new"


def test_missing_folders_are_made_and_no_temporary_file_stays(tmp_path):
    path = tmp_path / "a" / "b" / "c.json"
    for number in range(3):
        write_json(path, {"schema": SCHEMA, "number": number})
        assert names(path.parent) == ["c.json"]
    assert read_json(path)["number"] == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)


def nulled(value):
    """What must come back: the same, with null for every float that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [nulled(item) for item in value]
    return {key: nulled(item) for key, item in value.items()} if isinstance(value, dict) else value


@settings(deadline=None, max_examples=60)
@given(json_values)
def test_any_content_comes_back_with_null_for_what_is_not_finite(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "x.json"
    write_json(path, {"schema": SCHEMA, "value": value})
    assert read_json(path) == {"schema": SCHEMA, "value": nulled(value)}
    assert not {"NaN", "Infinity"} & set(path.read_text(encoding="ascii").replace(",", " ").split())


def test_numpy_floats_and_tuples_are_written_as_numbers_and_lists(tmp_path):
    write_json(tmp_path / "x", {"schema": SCHEMA, "a": (np.float64(0.5), np.float64("nan")), "b": {"c": (math.inf,)}})
    assert read_json(tmp_path / "x") == {"schema": SCHEMA, "a": [0.5, None], "b": {"c": [None]}}


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"^.*absent.json does not exist$"):
        read_json(tmp_path / "absent.json")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"schema": 1', b"not json"])
def test_a_broken_file_is_named(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(UserError, match=r"^.*x.json is not a readable record: "):
        read_json(tmp_path / "x.json")


def test_a_folder_is_not_a_record(tmp_path):
    with pytest.raises(UserError, match=r"is not a readable record: .*Is a directory"):
        read_json(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is not a readable record"):
        read_json(tmp_path / "file" / "record.json")


@pytest.mark.parametrize(
    ("content", "found"),
    [({}, "None"), ({"schema": 0}, "0"), ({"schema": 2}, "2"), ({"schema": "1"}, "'1'"), ([1], "'list'"), (5, "'int'")],
)
def test_another_schema_is_refused_with_both(tmp_path, content, found):
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(UserError) as error:
        read_json(tmp_path / "x.json")
    assert f"x.json has schema {found}; this version of ider reads schema {SCHEMA}" in str(error.value)


def leave_run(folder: Path, method: str, *seeds: int) -> None:
    for seed in seeds:
        write_json(folder / f"seed-{seed}" / RECORD, {"schema": SCHEMA, "method": method, "seed": seed})


def test_the_records_of_a_run_come_by_seed_as_numbers(tmp_path):
    leave_run(tmp_path, "er", 10, 2, 0, 1, 33)
    (tmp_path / "seed-4").mkdir()  # begun, not finished
    assert [record["seed"] for record in load_run(tmp_path)] == [0, 1, 2, 10, 33]
    assert [record["seed"] for record in load_records(tmp_path)["er"]] == [0, 1, 2, 10, 33]
    assert list(load_records(tmp_path)) == ["er"]


@pytest.mark.parametrize("methods", [["er+id", "er", "finetune"], ["finetune", "er+id", "er"]])
def test_the_records_of_a_comparison_come_in_the_order_asked_for(tmp_path, methods):
    for method in ("er", "er+id", "finetune", "not-asked-for"):
        leave_run(tmp_path / method, method, 1, 0)
    (tmp_path / "unfinished").mkdir()
    write_json(tmp_path / COMPARISON, {"schema": SCHEMA, "methods": [*methods, "unfinished", "absent"]})
    found = load_records(tmp_path)
    assert list(found) == methods
    assert {name: [record["seed"] for record in records] for name, records in found.items()} == dict.fromkeys(
        methods, [0, 1]
    )
    assert all(record["method"] == name for name, records in found.items() for record in records)


def test_a_folder_without_a_finished_record_says_how_to_go_on(tmp_path):
    with pytest.raises(UserError, match=r"holds no finished record .*ider resume"):
        load_records(tmp_path)
    write_json(tmp_path / COMPARISON, {"schema": SCHEMA, "methods": ["er"]})
    with pytest.raises(UserError, match=r"holds no finished record"):
        load_records(tmp_path)


def test_what_is_no_folder_is_named(tmp_path):
    for path in (tmp_path / "absent", tmp_path / "file"):
        (tmp_path / "file").write_text("x")
        with pytest.raises(UserError, match=rf"{path.name} is not a folder$"):
            load_records(path)


def test_a_damaged_record_is_named_not_skipped(tmp_path):
    leave_run(tmp_path, "er", 0, 1)
    (tmp_path / "seed-1" / RECORD).write_text("{")
    with pytest.raises(UserError, match="seed-1"):
        load_records(tmp_path)
