"""Tiny datasets in the official layouts, made here, and a registry that expects these instead of the real ones."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ider.data.published import PUBLISHED
from ider.data.types import Dataset, Split

Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees this machine's own data folders; returns the default one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("IDER_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache" / "ider"


@dataclass
class Maker:
    root: Path
    monkeypatch: pytest.MonkeyPatch

    def expect(self, name: str, whole: Dataset, archives: Mapping[str, bytes] = {}, **changes: object) -> None:
        """Let the registry expect as many images as `whole` has, and these archives."""
        known = PUBLISHED[name]
        md5 = {**known.md5, **{path: hashlib.md5(content).hexdigest() for path, content in archives.items()}}
        counts = (len(whole.train.labels), len(whole.test.labels))
        self.monkeypatch.setitem(PUBLISHED, name, replace(known, images=counts, md5=md5, **changes))

    def write(self, files: Files) -> None:
        for name, content in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes(content)

    def same(self, found: Dataset, wanted: Dataset) -> None:
        assert found.class_names == wanted.class_names
        for one, other in ((found.train, wanted.train), (found.test, wanted.test)):
            assert one.images.dtype == np.uint8
            assert one.labels.dtype == np.int64
            np.testing.assert_array_equal(one.images, other.images)
            np.testing.assert_array_equal(one.labels, other.labels)

    def random(self, classes: int, train: int, test: int, shape: tuple[int, int, int] = (3, 32, 32)) -> Dataset:
        rng = np.random.default_rng(classes)

        def part(count: int) -> Split:
            return Split(rng.integers(0, 256, (count, *shape), np.uint8), rng.permutation(np.arange(count) % classes))

        return Dataset(part(train), part(test), tuple(f"kind_{label}" for label in range(classes)))

    def cifar_binary(self, name: str, whole: Dataset) -> Files:
        if name == "cifar100":
            folder, parts, names, prefix = "cifar-100-binary", ["train.bin"], "fine_label_names.txt", b"\x07"
        else:
            folder, names, prefix = "cifar-10-batches-bin", "batches.meta.txt", b""
            parts = [f"data_batch_{number}.bin" for number in range(1, 6)]
        split = zip(parts, np.array_split(np.arange(len(whole.train.labels)), len(parts)), strict=True)
        files = {part: _records(whole.train, chosen, prefix) for part, chosen in split}
        test = "test.bin" if name == "cifar100" else "test_batch.bin"
        files[test] = _records(whole.test, np.arange(len(whole.test.labels)), prefix)
        files[names] = ("\n".join(whole.class_names) + "\n\n").encode()
        return {f"{folder}/{part}": content for part, content in files.items()}

    def cifar_python(self, name: str, whole: Dataset, dump: object = None) -> Files:
        """Pickles as Python 2 wrote them, or by `dump`."""
        write = dump or python2_pickle
        if name == "cifar100":
            folder, parts, test, meta = "cifar-100-python", ["train"], "test", "meta"
            names_key, labels_key = "fine_label_names", "fine_labels"
        else:
            folder, test, meta = "cifar-10-batches-py", "test_batch", "batches.meta"
            parts, names_key, labels_key = [f"data_batch_{n}" for n in range(1, 6)], "label_names", "labels"
        split = zip(parts, np.array_split(np.arange(len(whole.train.labels)), len(parts)), strict=True)
        jobs = {part: (whole.train, chosen) for part, chosen in split}
        jobs[test] = (whole.test, np.arange(len(whole.test.labels)))
        files = {
            part: write({"data": of.images[chosen].reshape(len(chosen), -1), labels_key: of.labels[chosen].tolist()})
            for part, (of, chosen) in jobs.items()
        }
        files[meta] = write({names_key: list(whole.class_names)})
        return {f"{folder}/{part}": content for part, content in files.items()}

    def fashion(self, whole: Dataset, packed: bool) -> Files:
        files = {}
        for part, split in (("train", whole.train), ("t10k", whole.test)):
            head = struct.pack(">4I", 0x803, len(split.labels), *split.images.shape[2:])
            files[f"{part}-images-idx3-ubyte"] = head + split.images.tobytes()
            labels = split.labels.astype(np.uint8).tobytes()
            files[f"{part}-labels-idx1-ubyte"] = struct.pack(">2I", 0x801, len(split.labels)) + labels
        if packed:
            files = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}
        return {f"FashionMNIST/raw/{name}": content for name, content in files.items()}

    def tiny(self) -> tuple[Files, Dataset]:
        """Two classes, three training images and one validation image each; one of the images is grey."""
        rng = np.random.default_rng(0)
        ids, train, test, notes = ["n02", "n01"], [], [], []  # not in the order of names: the lines decide
        files = {"wnids.txt": b"n02\nn01\n", "words.txt": b"n00\tentity\nn01\tgoldfish, Carassius\nn02\tEgyptian cat\n"}
        for label, wnid in sorted(enumerate(ids), key=lambda item: item[1]):
            for number in range(3):
                shape = (8, 8) if (label, number) == (0, 1) else (8, 8, 3)
                coarse = Image.fromarray(rng.integers(0, 256, shape, np.uint8)).resize((64, 64))
                content, pixels = jpeg(coarse)
                files[f"train/{wnid}/images/{wnid}_{number}.JPEG"] = content
                train.append((pixels, label))
            content, pixels = jpeg(Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)))
            files[f"val/images/val_{label}.JPEG"] = content
            notes.append(f"val_{label}.JPEG\t{wnid}\t0\t0\t63\t63")
            test.append((pixels, label))
            files[f"train/{wnid}/{wnid}_boxes.txt"] = b"x\t0\t0\t1\t1\n"
        files["test/images/test_0.JPEG"] = b"nobody reads me"
        files["val/val_annotations.txt"] = ("\n".join(notes) + "\n").encode()
        splits = [Split(np.stack([x for x, _ in part]), np.array([y for _, y in part])) for part in (train, test)]
        whole = Dataset(splits[0], splits[1], ("Egyptian cat", "goldfish"))
        return {f"tiny-imagenet-200/{name}": content for name, content in files.items()}, whole


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    (tmp_path / "data").mkdir()
    return Maker(tmp_path / "data", monkeypatch)


@pytest.fixture
def tar_of():
    return tar


@pytest.fixture
def zip_of():
    return zip_


@pytest.fixture
def as_python2():
    return python2_pickle


def tar(files: Mapping[str, bytes], extra: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in extra:
            archive.addfile(member)
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def jpeg(image: Image.Image) -> tuple[bytes, np.ndarray]:
    """A JPEG file and the RGB pixels that it holds."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95)
    pixels = np.asarray(Image.open(io.BytesIO(buffer.getvalue())).convert("RGB"))
    return buffer.getvalue(), pixels.transpose(2, 0, 1)


def _records(split: Split, chosen: np.ndarray, prefix: bytes) -> bytes:
    return b"".join(prefix + bytes([split.labels[i]]) + split.images[i].tobytes() for i in chosen)


def python2_pickle(content: dict[str, object]) -> bytes:
    """What cPickle of Python 2 writes with protocol 2: strings are bytes, and NumPy is named as it was then."""

    def string(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value

    def item(value: object) -> bytes:
        if isinstance(value, str):
            return string(value.encode())
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(item(one) for one in value) + b"e"
        assert isinstance(value, np.ndarray)
        empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
        dtype = b"cnumpy\ndtype\n" + string(b"u1") + b"K\x00K\x01\x87R(K\x03" + string(b"|") + b"NNN"
        dtype += item(-1) + item(-1) + b"K\x00tb"
        shape = item(value.shape[0]) + item(value.shape[1]) + b"\x86"
        return empty + b"(K\x01" + shape + dtype + b"\x89" + string(value.tobytes()) + b"tb"

    body = b"".join(string(key.encode()) + item(value) for key, value in content.items())
    written = b"\x80\x02}(" + body + b"u."
    assert pickle.loads(written, encoding="bytes").keys() == {key.encode() for key in content}
    return written
