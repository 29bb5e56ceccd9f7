"""Every official layout, whole and damaged: folders, archives, pickles."""

import io
import os
import pickle
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ider.data import unpickle
from ider.data.datasets import DATASETS, check, digits, load, status
from ider.errors import UserError

CIFARS = [("cifar10", 10), ("cifar100", 100)]


@pytest.mark.parametrize(("name", "classes"), CIFARS)
@pytest.mark.parametrize("layout", ["cifar_binary", "cifar_python"])
@pytest.mark.parametrize("packed", [False, True])
def test_cifar_is_read_from_every_layout(make, tar_of, name: str, classes: int, layout: str, packed: bool) -> None:
    whole = make.random(classes, 2 * classes + 3, classes)
    files = getattr(make, layout)(name, whole)
    archive = f"cifar-{classes}-{layout.removeprefix('cifar_')}.tar.gz"
    if packed:
        content = tar_of(files)
        make.expect(name, whole, {archive: content})
        make.write({archive: content})
    else:
        make.expect(name, whole)
        make.write(files)
    make.same(load(name, make.root), whole)
    found = check(name, make.root)
    assert (found.train, found.test, found.classes) == (2 * classes + 3, classes, classes)
    assert found.verified is packed
    assert found.path == make.root / (archive if packed else next(iter(files)).split("/")[0])
    assert len(list(make.root.glob("cifar*"))) == 1  # nothing was extracted


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_that_python_3_wrote_anew_are_read_too(make, protocol: int) -> None:
    whole = make.random(10, 20, 10)
    make.expect("cifar10", whole)
    make.write(make.cifar_python("cifar10", whole, lambda content: pickle.dumps(content, protocol)))
    make.same(load("cifar10", make.root), whole)


def test_unpickled_arrays_are_what_the_default_unpickler_gives() -> None:
    arrays = {
        "c": np.arange(12, dtype=np.int64).reshape(3, 4),
        "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "big_endian": np.array([1, 2, 70000], ">i4"),
        "empty": np.zeros((0, 5), np.uint8),
    }
    for protocol in (2, 5):
        written = pickle.dumps(arrays, protocol)
        found = unpickle.load(io.BytesIO(written), "x")
        for key, wanted in pickle.loads(written).items():
            assert found[key].dtype.newbyteorder("=") == wanted.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found[key], wanted)


class _Call:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("way", ["os.system", "eval", "open", "subprocess", "numpy", "setstate"])
def test_a_planted_payload_does_not_run(make, tmp_path: Path, protocol: int, way: str) -> None:
    import subprocess

    target = tmp_path / "planted"
    payload = {
        "os.system": _Call(os.system, f"touch {target}"),
        "eval": _Call(eval, f"open({str(target)!r}, 'w')"),
        "open": _Call(open, str(target), "w"),
        "subprocess": _Call(subprocess.call, ["touch", str(target)]),
        "numpy": _Call(np.save, str(target), 1),
        "setstate": np.array([_Call(os.system, f"touch {target}")], object),
    }[way]
    whole = make.random(10, 20, 10)
    make.expect("cifar10", whole)
    files = make.cifar_python("cifar10", whole)
    planted = "cifar-10-batches-py/data_batch_2"
    make.write({**files, planted: pickle.dumps({"data": payload, "labels": [1]}, protocol)})
    with pytest.raises(UserError, match="data_batch_2 is not a readable pickle"):
        load("cifar10", make.root)
    assert not target.exists()
    pickle.loads(pickle.dumps(_Call(open, str(target), "w"))).close()
    assert target.exists()  # the payload works, had anything run it


@pytest.mark.parametrize(
    "program",
    [
        b"cnumpy\nndarray\n(N}U\x0c__setstate__K\x05stb.",  # change an attribute of what stands for a class
        b"cnumpy\ndtype\n(N}U\x0c__defaults__K\x05stb.",
        b"cnumpy.core.multiarray\n_reconstruct\n}U\x01aK\x01sb.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.",
        b"cnumpy\ndtype\nU\x01O\x85R.",
    ],
)
def test_a_pickle_cannot_change_how_later_ones_are_read(program: bytes, as_python2) -> None:
    with pytest.raises(UserError, match="pickle of CIFAR"):
        unpickle.load(io.BytesIO(program), "x")
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    again = unpickle.load(io.BytesIO(as_python2({"data": pixels, "labels": [1, 2]})), "x")
    np.testing.assert_array_equal(again["data"], pixels)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
@example(place=509, byte=136)  # what stands for a NumPy name, in the place of an array
def test_a_damaged_pickle_is_refused_or_still_data(as_python2, place: int, byte: int) -> None:
    written = bytearray(as_python2({"data": np.arange(60, dtype=np.uint8).reshape(3, 20), "labels": [1, 2, 3]}))
    written[place % len(written)] = byte
    try:
        content = unpickle.load(io.BytesIO(bytes(written)), "x")
    except UserError as error:
        assert str(error).startswith("x is not a")
    else:
        assert all(
            isinstance(value, np.ndarray | list | tuple | int | float | bytes | str | None)
            for value in content.values()
        )


@pytest.mark.parametrize("packed", [False, True])
def test_fashion_mnist_is_read_compressed_or_not(make, packed: bool) -> None:
    whole = make.random(10, 30, 10, (1, 28, 28))
    names = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
    files = make.fashion(whole, packed)
    make.expect("fashion-mnist", whole, files if packed else {})
    make.write(files)
    found = load("fashion-mnist", make.root)
    assert found.class_names == names
    assert found.train.images.shape == (30, 1, 28, 28)
    np.testing.assert_array_equal(found.train.images, whole.train.images)
    np.testing.assert_array_equal(found.test.labels, whole.test.labels)
    assert check("fashion-mnist", make.root).verified is packed


@pytest.mark.parametrize("packed", [False, True])
def test_tiny_imagenet_is_read_as_published(make, zip_of, packed: bool) -> None:
    files, whole = make.tiny()
    content = zip_of(files)
    make.expect("tiny-imagenet", whole, {"tiny-imagenet-200.zip": content})
    make.write({"tiny-imagenet-200.zip": content} if packed else files)
    found = load("tiny-imagenet", make.root)
    make.same(found, whole)
    assert found.train.labels.tolist() == [1, 1, 1, 0, 0, 0]  # n02 is the first line of wnids.txt
    assert found.train.images.shape == (6, 3, 64, 64)
    grey = found.train.images[4]
    assert (grey == grey[0]).all()


def test_names_that_two_classes_share_are_given_in_full(make) -> None:
    files, whole = make.tiny()
    words = b"n01\tcrane, a machine\nn02\tcrane, a bird\n"
    make.expect("tiny-imagenet", whole)
    make.write({**files, "tiny-imagenet-200/words.txt": words})
    assert load("tiny-imagenet", make.root).class_names == ("crane, a bird", "crane, a machine")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar10", "cifar-10-batches-bin/data_batch_3.bin"),
        ("cifar10", "cifar-10-batches-py/test_batch"),
        ("cifar10", "cifar-10-batches-py/batches.meta"),
        ("cifar100", "cifar-100-binary/test.bin"),
        ("cifar100", "cifar-100-python/train"),
        ("fashion-mnist", "FashionMNIST/raw/train-images-idx3-ubyte"),
        ("fashion-mnist", "FashionMNIST/raw/t10k-labels-idx1-ubyte"),
        ("fashion-mnist", "FashionMNIST/raw/t10k-images-idx3-ubyte.gz"),
        ("tiny-imagenet", "tiny-imagenet-200/train/n02/images/n02_2.JPEG"),
        ("tiny-imagenet", "tiny-imagenet-200/val/images/val_0.JPEG"),
    ],
)
@pytest.mark.parametrize("damage", ["truncated", "missing", "garbage", "empty"])
def test_damage_is_one_line_that_names_the_file_and_the_repair(make, name: str, file: str, damage: str) -> None:
    if name == "tiny-imagenet":
        files, whole = make.tiny()
    elif name == "fashion-mnist":
        whole = make.random(10, 20, 10, (1, 28, 28))
        files = make.fashion(whole, packed=file.endswith(".gz"))
    else:
        whole = make.random(int(name[5:]), 2 * int(name[5:]), int(name[5:]))
        layout = make.cifar_binary if file.endswith(".bin") else make.cifar_python
        files = layout(name, whole)
    make.expect(name, whole, files if file.endswith(".gz") else {})
    make.write(files)
    bad = make.root / file
    if damage == "missing":
        bad.unlink()
    elif damage == "truncated":
        bad.write_bytes(files[file][: len(files[file]) // 2 - 7])
    else:
        bad.write_bytes(b"" if damage == "empty" else b"\x99garbage\n" * 5)
    wanted = f"repair it with: ider data fetch {name} --data-dir {make.root}"
    for attempt in (load, check):
        with pytest.raises(UserError) as caught:
            attempt(name, make.root)
        message = str(caught.value)
        assert "\n" not in message
        assert message.endswith(wanted)
        # What is lacking as a whole (an empty file, a picture of a class) shows only in the count.
        counted = f"{make.root / file.split('/')[0]} is incomplete"
        lost_whole = (damage == "missing" and "train/n02" in file) or (damage == "empty" and file.endswith(".bin"))
        assert (counted if lost_whole else str(bad).removesuffix(".gz")) in message
    assert status(name, make.root).decoded is False


@pytest.mark.parametrize(("name", "classes"), CIFARS)
def test_a_label_with_a_flipped_bit_is_refused(make, name: str, classes: int) -> None:
    whole = make.random(classes, 2 * classes, classes)
    whole.test.labels[0] = 129
    make.expect(name, whole)
    make.write(make.cifar_binary(name, whole))
    with pytest.raises(UserError, match=f"test.*bin is damaged: it holds label 129, but there are {classes} classes"):
        load(name, make.root)


def test_images_that_lack_as_a_whole_are_noticed(make) -> None:
    whole = make.random(100, 200, 100)
    files = make.cifar_binary("cifar100", whole)
    make.expect("cifar100", whole)
    make.write({**files, "cifar-100-binary/train.bin": files["cifar-100-binary/train.bin"][: 150 * 3074]})
    with pytest.raises(UserError, match="cifar-100-binary is incomplete .* 150 training images instead of 200"):
        load("cifar100", make.root)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "other"])
def test_an_archive_is_used_only_if_its_checksum_fits(make, tar_of, damage: str) -> None:
    whole = make.random(100, 200, 100)
    good = tar_of(make.cifar_binary("cifar100", whole))
    make.expect("cifar100", whole, {"cifar-100-binary.tar.gz": good})
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 4]) + good[middle + 1 :]
    bad = {"flipped": flipped, "truncated": good[:-100], "other": b"<html>moved</html>"}[damage]
    make.write({"cifar-100-binary.tar.gz": bad})
    with pytest.raises(
        UserError, match=r"cifar-100-binary.tar.gz is damaged or incomplete: its MD5 .* ider data fetch"
    ):
        load("cifar100", make.root)
    make.write({"cifar-100-binary.tar.gz": good})
    make.same(load("cifar100", make.root), whole)


@pytest.mark.parametrize("evil", ["../planted", "/tmp/planted", "cifar-100-binary/../../planted", "..\\planted"])
def test_an_archive_that_points_outside_is_refused(make, tar_of, zip_of, tmp_path: Path, evil: str) -> None:
    whole = make.random(100, 200, 100)
    packed = tar_of({**make.cifar_binary("cifar100", whole)}, (tarfile.TarInfo(evil),))
    make.expect("cifar100", whole, {"cifar-100-binary.tar.gz": packed})
    make.write({"cifar-100-binary.tar.gz": packed})
    with pytest.raises(UserError, match="points outside the archive"):
        load("cifar100", make.root)
    files, tiny = make.tiny()
    zipped = zip_of({**files, evil: b"planted"})
    make.expect("tiny-imagenet", tiny, {"tiny-imagenet-200.zip": zipped})
    make.write({"tiny-imagenet-200.zip": zipped})
    with pytest.raises(UserError, match="points outside the archive"):
        load("tiny-imagenet", make.root)
    assert list(tmp_path.rglob("*planted*")) == []
    assert not Path("/tmp/planted").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_an_archive_count_as_absent(make, tar_of, tmp_path: Path, kind: bytes) -> None:
    whole = make.random(100, 200, 100)
    files = make.cifar_binary("cifar100", whole)
    secret = tmp_path / "secret"
    secret.write_bytes(files.pop("cifar-100-binary/test.bin"))
    link = tarfile.TarInfo("cifar-100-binary/test.bin")
    link.type, link.linkname = kind, str(secret)
    packed = tar_of(files, (link,))
    make.expect("cifar100", whole, {"cifar-100-binary.tar.gz": packed})
    make.write({"cifar-100-binary.tar.gz": packed})
    with pytest.raises(UserError, match=r"cifar-100-binary.tar.gz \(cifar-100-binary/test.bin\) is missing"):
        load("cifar100", make.root)


def test_links_in_a_zip_count_as_absent(make, tmp_path: Path) -> None:
    files, whole = make.tiny()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name.endswith("val_1.JPEG") else 0o100644) << 16
            archive.writestr(info, content)
    make.expect("tiny-imagenet", whole, {"tiny-imagenet-200.zip": buffer.getvalue()})
    make.write({"tiny-imagenet-200.zip": buffer.getvalue()})
    with pytest.raises(UserError, match=r"val_1.JPEG\) is missing"):
        load("tiny-imagenet", make.root)


def test_data_folders_are_searched_in_order(make, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make.random(100, 200, 100)
    make.expect("cifar100", whole)
    files = make.cifar_binary("cifar100", whole)
    with pytest.raises(UserError) as caught:
        load("cifar100")
    assert str(caught.value).endswith("get it with: ider data fetch cifar100")
    assert str(elsewhere) in str(caught.value)
    expected = []
    for root in (elsewhere, make.root / "env", make.root / "given"):
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        expected.append(root / "cifar-100-binary")
        monkeypatch.setenv("IDER_DATA", str(make.root / "env"))
        assert status("cifar100", make.root / "given").path == expected[-1]
    monkeypatch.delenv("IDER_DATA")
    assert status("cifar100").path == expected[0]


def test_an_archive_comes_before_a_folder_so_that_fetching_repairs(make, tar_of) -> None:
    whole = make.random(100, 200, 100)
    files = make.cifar_binary("cifar100", whole)
    packed = tar_of(files)
    make.expect("cifar100", whole, {"cifar-100-binary.tar.gz": packed})
    make.write({**files, "cifar-100-binary/test.bin": b"broken"})
    with pytest.raises(UserError, match=r"test.bin is damaged"):
        load("cifar100", make.root)
    make.write({"cifar-100-binary.tar.gz": packed})
    make.same(load("cifar100", make.root), whole)


def test_status_tells_what_is_there(make) -> None:
    whole = make.random(10, 20, 10)
    make.expect("cifar10", whole)
    assert (status("cifar10", make.root).path, status("cifar10", make.root).decoded) == (None, False)
    make.write(make.cifar_binary("cifar10", whole))
    folder = make.root / "cifar-10-batches-bin"
    assert (status("cifar10", make.root).path, status("cifar10", make.root).decoded) == (folder, False)
    load("cifar10", make.root)
    assert status("cifar10", make.root).decoded is True
    assert status("digits").decoded is True
    assert status("digits").path is not None
    assert status("digits").path.exists()
    assert sorted(DATASETS) == ["cifar10", "cifar100", "digits", "fashion-mnist", "tiny-imagenet"]


def test_digits_need_no_data_folder(elsewhere: Path) -> None:
    np.testing.assert_array_equal(load("digits").train.images, digits().train.images)
    assert check("digits").train == 1258
    assert check("digits").test == 539
    assert load("digits", image_size=16).test.images.shape == (539, 1, 16, 16)
    assert not elsewhere.exists()


def test_a_published_dataset_can_be_had_in_another_size(make) -> None:
    whole = make.random(10, 20, 10)
    whole.train.images[:] = np.arange(20, dtype=np.uint8)[:, None, None, None]  # flat images stay flat
    make.expect("cifar10", whole)
    make.write(make.cifar_binary("cifar10", whole))
    small = load("cifar10", make.root, image_size=8)
    assert small.train.images.shape == (20, 3, 8, 8)
    np.testing.assert_array_equal(small.train.images, whole.train.images[:, :, :8, :8])
    assert abs(small.test.images.mean() - whole.test.images.mean()) < 2
    make.same(load("cifar10", make.root), whole)  # the two sizes do not share a cache entry


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("cifar-100", None, "did you mean 'cifar100'"),
        ("mnist-fashion", None, "folder:PATH"),
        ("folder:", None, "needs a path"),
        ("npz", None, "needs a path"),
        ("digits", 0, "image_size is 0"),
        ("cifar10", -3, "image_size is -3"),
    ],
)
def test_wrong_requests_are_named(name: str, size: int | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(name, image_size=size)


def test_neither_pooch_nor_pillow_nor_torch_is_needed_to_import() -> None:
    import subprocess

    code = (
        "import sys, types; package = types.ModuleType('ider'); package.__path__ = [sys.argv[1]];"
        "sys.modules['ider'] = package; import ider.data.datasets, ider.data.download;"
        "print([name for name in ('torch', 'pooch', 'PIL', 'requests') if name in sys.modules])"
    )
    source = Path(sys.modules["ider"].__file__).parent
    found = subprocess.run([sys.executable, "-c", code, source], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
