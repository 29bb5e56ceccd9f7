"""Decoded datasets on disk: used again, never half-written, made again when damaged or out of date."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from ider.data import cache, sources
from ider.data.cifar import CifarBinary
from ider.data.datasets import load, status
from ider.errors import UserError

FOLDER = "cifar-100-binary"


@pytest.fixture
def whole(make):
    found = make.random(100, 200, 100)
    make.expect("cifar100", found)
    make.write(make.cifar_binary("cifar100", found))
    return found


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever the source is decoded."""
    seen: list[int] = []
    plain = CifarBinary.read

    def read(self, files):
        seen.append(1)
        return plain(self, files)

    monkeypatch.setattr(CifarBinary, "read", read)
    return seen


def entries(root: Path) -> list[Path]:
    return [path for path in (root / "decoded").iterdir() if path.is_dir()]


def test_the_second_load_does_not_decode(make, whole, decodings: list[int]) -> None:
    for _ in range(3):
        make.same(load("cifar100", make.root), whole)
    assert len(decodings) == 1
    assert len(entries(make.root)) == 1


def test_images_are_mapped_and_writing_to_them_leaves_the_file_alone(make, whole) -> None:
    load("cifar100", make.root)
    images = load("cifar100", make.root).train.images
    assert isinstance(images.base, np.memmap)
    images[:] = 0
    make.same(load("cifar100", make.root), whole)


def test_files_that_were_touched_or_moved_are_recognised(make, whole, decodings: list[int]) -> None:
    load("cifar100", make.root)
    os.utime(make.root / FOLDER / "train.bin", (1, 1))
    make.same(load("cifar100", make.root), whole)
    moved = make.root.with_name("moved")
    make.root.rename(moved)
    make.same(load("cifar100", moved), whole)
    assert len(decodings) == 1


@pytest.mark.parametrize("keep_times", [False, True])
def test_changed_content_is_decoded_anew(make, whole, decodings: list[int], keep_times: bool) -> None:
    load("cifar100", make.root)
    path = make.root / FOLDER / "test.bin"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    if keep_times:  # the same size and modification time
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    whole.test.images.reshape(len(whole.test.labels), -1)[0, 3] ^= 1
    make.same(load("cifar100", make.root), whole)
    assert len(decodings) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: (entry / "header.json").unlink(),
        lambda entry: (entry / "header.json").write_text("{"),
        lambda entry: (entry / "header.json").write_text("[]"),
        lambda entry: (entry / "header.json").write_text('{"class_names": ["a"], "shapes": {}}'),
        lambda entry: (entry / "train-images.npy").unlink(),
        lambda entry: (entry / "test-labels.npy").write_bytes(b""),
        lambda entry: os.truncate(entry / "train-images.npy", 5000),
        lambda entry: os.truncate(entry / "train-images.npy", 0),
        lambda entry: os.truncate(entry / "train-images.npy", 700_000),
        lambda entry: (entry / "test-images.npy").write_bytes(b"\x93NUMPY\x01\x00 garbage"),
        lambda entry: np.save(entry / "train-images.npy", np.zeros((200, 3, 32, 31), np.uint8)),
        lambda entry: np.save(entry / "test-images.npy", np.zeros((100, 3, 32, 32), np.int8)),
        lambda entry: np.save(entry / "train-labels.npy", np.full(200, 100)),
        lambda entry: np.save(entry / "train-labels.npy", np.zeros(199, np.int64)),
        shutil.rmtree,
    ],
)
def test_a_damaged_entry_is_made_again(make, whole, decodings: list[int], damage) -> None:
    load("cifar100", make.root)
    damage(entries(make.root)[0])
    assert status("cifar100", make.root).decoded is False
    make.same(load("cifar100", make.root), whole)
    assert len(decodings) == 2


def test_a_damaged_pointer_is_made_again(make, whole, decodings: list[int]) -> None:
    load("cifar100", make.root)
    (pointer,) = (make.root / "decoded").glob("*.json")
    for content in ("", "{}", "[1]", '{"entry": "../../elsewhere"}', '{"entry": "nothing"}'):
        pointer.write_text(content)
        make.same(load("cifar100", make.root), whole)
        assert json.loads(pointer.read_text())["entry"] == entries(make.root)[0].name
    assert len(decodings) == 1


def test_a_process_killed_while_it_writes_leaves_nothing_that_is_used(make, whole, decodings: list[int]) -> None:
    program = """
        import os, signal, sys
        from pathlib import Path
        from dataclasses import replace
        from ider.data import cache, datasets, published
        known = published.PUBLISHED["cifar100"]
        published.PUBLISHED["cifar100"] = replace(known, images=(200, 100))
        plain = cache._write_part
        def write_part(folder, part, content):
            if part == "test":
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(folder, part, content)
        cache._write_part = write_part
        datasets.load("cifar100", Path(sys.argv[1]))
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program), make.root], check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = entries(make.root)
    assert left.name.endswith(".tmp")
    assert (left / "train-images.npy").stat().st_size > 200 * 3072
    make.same(load("cifar100", make.root), whole)
    assert len(decodings) == 1
    assert left.exists()  # it might belong to a process that is still at work
    long_ago = time.time() - 2 * cache.STALE_SECONDS
    os.utime(left, (long_ago, long_ago))
    (make.root / FOLDER / "train.bin").write_bytes((make.root / FOLDER / "train.bin").read_bytes()[::-1])
    with pytest.raises(UserError):
        load("cifar100", make.root)
    assert not left.exists()


def test_what_cannot_be_decoded_leaves_no_entry(make, whole) -> None:
    os.truncate(make.root / FOLDER / "test.bin", 1000)
    with pytest.raises(UserError, match=r"test.bin is damaged"):
        load("cifar100", make.root)
    assert list((make.root / "decoded").iterdir()) == []


def test_two_processes_at_once_agree(make, whole, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources.find("cifar100", make.root, None)
    plain, nested = cache._write_part, []

    def write_part(folder, part, content):
        if not nested:  # the other process finishes while this one is at it
            nested.append(1)
            make.same(cache.load(source, [make.root]), whole)
        return plain(folder, part, content)

    monkeypatch.setattr(cache, "_write_part", write_part)
    make.same(cache.load(source, [make.root]), whole)
    assert len(entries(make.root)) == 1


def test_a_cache_that_cannot_be_written_is_done_without(make, whole, elsewhere: Path, decodings: list[int]) -> None:
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"not a folder")
    (make.root / "decoded").write_bytes(b"not a folder either")
    for count in (1, 2):
        with pytest.warns(UserWarning, match=r"cannot be kept in .*/data/decoded") as caught:
            make.same(load("cifar100", make.root), whole)
        assert caught[0].filename == __file__
        assert len(decodings) == count


def test_a_read_only_data_folder_is_cached_in_the_next(make, whole, elsewhere: Path, decodings: list[int]) -> None:
    (make.root / "decoded").write_bytes(b"stands for a folder that is not ours to write to")
    make.same(load("cifar100", make.root), whole)
    make.same(load("cifar100", make.root), whole)
    assert len(decodings) == 1
    assert len(entries(elsewhere)) == 1


def test_a_full_disk_is_done_without(make, whole, decodings: list[int]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails, as it does on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = load("cifar100", make.root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert [warning.category for warning in caught] == [UserWarning]
    make.same(found, whole)
    assert list((make.root / "decoded").iterdir()) == []  # what was written of it is gone
    make.same(load("cifar100", make.root), whole)
    assert len(decodings) == 4  # in both data folders, in memory, and now for good


def test_an_entry_in_a_folder_that_became_read_only_is_still_used(make, whole, decodings, monkeypatch) -> None:
    load("cifar100", make.root)
    os.utime(make.root / FOLDER / "train.bin", (1, 1))

    def refuse(path: Path, content: bytes) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(cache, "write_bytes", refuse)
    make.same(load("cifar100", make.root), whole)
    assert len(decodings) == 1


def test_memory_stays_far_below_the_decoded_size_and_the_cache_is_quick(make) -> None:
    big = make.random(100, 20_000, 100)  # 61 MB decoded
    make.write(make.cifar_binary("cifar100", big))
    program = """
        import resource, sys, time, types
        from pathlib import Path
        package = types.ModuleType("ider"); package.__path__ = [sys.argv[1]]; sys.modules["ider"] = package
        from dataclasses import replace
        from ider.data import datasets, published
        published.PUBLISHED["cifar100"] = replace(published.PUBLISHED["cifar100"], images=(20_000, 100))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        datasets.load("cifar100", Path(sys.argv[2]))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        start = time.perf_counter()
        datasets.load("cifar100", Path(sys.argv[2]))
        print(grown, time.perf_counter() - start)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(program), Path(sys.modules["ider"].__file__).parent, make.root]
    grown, seconds = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    assert int(grown) < 25_000  # kB
    assert float(seconds) < 1  # from the cache
