"""A user's own image folders."""

import io
import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ider.data.datasets import check, from_folder, load
from ider.errors import UserError
from ider.streams import split

RED, GREEN, BLUE = (200, 30, 10), (10, 180, 40), (20, 40, 220)


def save(path: Path, colour: object = RED, size: tuple[int, int] = (32, 32), mode: str = "RGB", **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)


def plain_tree(root: Path, counts: dict[str, int]) -> Path:
    for label, (name, count) in enumerate(counts.items()):
        for number in range(count):
            save(root / name / f"{number:03d}.png", (label * 10, number, 0))
    return root


@pytest.mark.parametrize("test_name", ["test", "val"])
def test_train_and_test_folders_are_kept_apart(tmp_path: Path, test_name: str) -> None:
    for name, colour in (("red", RED), ("blue", BLUE)):
        for number in range(3):
            save(tmp_path / "set" / "train" / name / f"{number}.png", colour)
        save(tmp_path / "set" / test_name / name / "9.bmp", colour)
    found = load(f"folder:{tmp_path / 'set'}")
    assert found.class_names == ("blue", "red")
    assert found.train.images.shape == (6, 3, 32, 32)
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.test.labels.tolist() == [0, 1]
    for part in (found.train, found.test):
        for image, label in zip(part.images, part.labels, strict=True):
            assert image[:, 5, 7].tolist() == list((BLUE, RED)[label])


def test_test_is_preferred_to_val(tmp_path: Path) -> None:
    for part, colour in (("train", RED), ("val", GREEN), ("test", BLUE)):
        save(tmp_path / part / "a" / "0.png", colour)
    assert load(f"folder:{tmp_path}").test.images[0, :, 0, 0].tolist() == list(BLUE)


def test_one_tree_is_split_class_by_class(tmp_path: Path) -> None:
    root = plain_tree(tmp_path / "set", {"many": 20, "few": 5, "two": 2})
    found = load(f"folder:{root}")
    assert found.class_names == ("few", "many", "two")
    assert np.bincount(found.test.labels).tolist() == [1, 4, 1]
    assert np.bincount(found.train.labels).tolist() == [4, 16, 1]
    pixels = [tuple(image[:, 0, 0]) for part in (found.train, found.test) for image in part.images]
    assert len(set(pixels)) == 27  # every image is in one of the parts, none in both
    again = load(f"folder:{root}")
    np.testing.assert_array_equal(again.test.images, found.test.images)
    other = from_folder(root, seed=1)
    assert not np.array_equal(other.test.images, found.test.images)
    half = from_folder(root, test_share=0.5)
    assert np.bincount(half.test.labels).tolist() == [2, 10, 1]


def test_a_class_that_joins_leaves_the_split_of_the_others(tmp_path: Path) -> None:
    root = plain_tree(tmp_path / "set", {"b": 10, "c": 10})
    before = load(f"folder:{root}").test
    save(root / "a" / "0.png")
    save(root / "a" / "1.png")
    after = load(f"folder:{root}").test
    np.testing.assert_array_equal(after.images[after.labels > 0], before.images)
    np.testing.assert_array_equal(after.labels[after.labels > 0], before.labels + 1)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    root = plain_tree(tmp_path / "set", {"train": 3, "car": 3})
    assert load(f"folder:{root}").class_names == ("car", "train")


@pytest.mark.parametrize("size", [(32, 32), (7, 300), (100, 60), (1, 1)])
@pytest.mark.parametrize("suffix", ["png", "jpg", "JPEG", "webp", "bmp"])
def test_every_size_and_format_becomes_square(tmp_path: Path, size: tuple[int, int], suffix: str) -> None:
    for number in range(2):
        save(tmp_path / "set" / "a" / f"{number}.{suffix}", GREEN, size)
    found = from_folder(tmp_path / "set", image_size=20).train.images
    assert found.shape == (1, 3, 20, 20)
    assert np.abs(found[0].astype(int) - np.array(GREEN)[:, None, None]).max() <= 4  # what lossy formats change


def test_resizing_keeps_the_picture_in_place(tmp_path: Path) -> None:
    image = np.zeros((80, 40, 3), np.uint8)
    image[:40, :20] = RED  # the upper left quarter
    for number in range(2):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "a" / f"{number}.png")
    found = load(f"folder:{tmp_path}", image_size=8).train.images[0]
    assert found[:, 0, 0].tolist() == list(RED)
    assert found[:, 0, 7].tolist() == found[:, 7, 0].tolist() == found[:, 7, 7].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("mode", "colour", "wanted"),
    [
        ("L", 77, (77, 77, 77)),
        ("LA", (77, 0), (77, 77, 77)),
        ("1", 1, (255, 255, 255)),
        ("RGBA", (*BLUE, 128), BLUE),
        ("I;16", 0x4D12, (0x4D, 0x4D, 0x4D)),
        ("P", 3, (9, 8, 7)),
        ("P+transparency", 3, (9, 8, 7)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str, colour: object, wanted: tuple[int, int, int]) -> None:
    image = Image.new(mode.split("+")[0], (32, 32), colour)
    options = {}
    if mode.startswith("P"):
        image.putpalette([0] * 9 + [9, 8, 7] + [0] * 30)
        options = {"transparency": bytes([255, 0, 0, 9])} if "+" in mode else {}
    (tmp_path / "a").mkdir()
    for number in range(2):
        image.save(tmp_path / "a" / f"{number}.png", **options)
    assert load(f"folder:{tmp_path}").train.images[0, :, 3, 4].tolist() == list(wanted)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
@pytest.mark.parametrize(
    ("orientation", "corner"), [(1, (0, 0)), (2, (0, 31)), (3, (31, 31)), (4, (31, 0)), (6, (0, 31)), (8, (31, 0))]
)
def test_exif_orientation_is_honoured(tmp_path: Path, orientation: int, corner: tuple[int, int], suffix: str) -> None:
    image = np.zeros((32, 32, 3), np.uint8)
    image[:16, :16] = 255  # stored in the upper left corner
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "a").mkdir()
    for number in range(2):
        Image.fromarray(image).save(tmp_path / "a" / f"{number}.{suffix}", exif=exif)
    found = load(f"folder:{tmp_path}").train.images[0]
    bright = {(row, column) for row in (0, 31) for column in (0, 31) if found[:, row, column].min() > 200}
    assert bright == {corner}


def test_what_is_no_image_is_ignored(tmp_path: Path) -> None:
    root = plain_tree(tmp_path / "set", {"a": 2, "b": 2})
    wanted = load(f"folder:{root}")
    for name in ("notes.txt", ".DS_Store", "._000.png", "data.csv"):
        (root / "a" / name).write_bytes(b"not an image")
    (root / "readme.md").write_text("loose file")
    save(root / "loose.png")
    save(root / ".hidden" / "0.png")
    save(root / "__MACOSX" / "0.png")
    found = load(f"folder:{root}")
    assert found.class_names == ("a", "b")
    np.testing.assert_array_equal(found.train.images, wanted.train.images)


def test_images_in_deeper_folders_belong_to_the_class(tmp_path: Path) -> None:
    save(tmp_path / "a" / "x" / "0.png")
    save(tmp_path / "a" / "1.png")
    found = load(f"folder:{tmp_path}")
    assert found.class_names == ("a",)
    assert len(found.train.labels) + len(found.test.labels) == 2


def test_names_may_be_in_any_script(tmp_path: Path) -> None:
    names = ["Äpfel", "кошка", "猫", unicodedata.normalize("NFD", "é"), "with space", "🦉"]
    root = plain_tree(tmp_path / "die Bilder – ü", dict.fromkeys(names, 3))
    for _ in range(2):  # decoded, then from the cache
        found = load(f"folder:{root}")
        assert found.class_names == tuple(sorted(names))
    assert found.train.images.shape == (12, 3, 32, 32)


def test_names_that_are_not_valid_text_are_kept(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for name in (b"caf\xe9", b"plain"):
        folder = os.path.join(os.fsencode(root), name)
        os.makedirs(folder)
        for number in range(2):
            buffer = io.BytesIO()
            Image.new("RGB", (4, 4)).save(buffer, "PNG")
            with open(os.path.join(folder, b"%d.png" % number), "wb") as file:
                file.write(buffer.getvalue())
    for _ in range(2):
        assert load(f"folder:{root}").class_names == (os.fsdecode(b"caf\xe9"), "plain")


def test_all_corrupt_images_are_named_at_once(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for name in "ab":
        (root / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (8, 8)).save(root / name / f"{number}.png")
    bad = {root / "a" / f"{number}.png" for number in range(10)} | {root / "b" / "3.png"}  # among them test images
    for path in bad:
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="; replace or delete it and 10 more that cannot be read: ") as caught:
        load(f"folder:{root}")
    assert {path for path in root.rglob("*.png") if str(path) in str(caught.value)} == bad


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "other format"])
def test_a_corrupt_image_is_named(tmp_path: Path, damage: str) -> None:
    root = tmp_path / "set"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    (root / "a").mkdir(parents=True)
    for number in range(4):
        Image.fromarray(noise).save(root / "a" / f"{number}.jpg")
    bad = root / "a" / "2.jpg"
    content = {"truncated": bad.read_bytes()[:2000], "garbage": b"\0" * 99, "empty": b""}.get(
        damage, b"%!PS-Adobe-3.0 EPSF"
    )
    bad.write_bytes(content)
    for attempt in (load, check):
        with pytest.raises(UserError) as caught:
            attempt(f"folder:{root}")
        assert str(caught.value).startswith(f"{bad} is not a readable image (")
        assert str(caught.value).endswith("; replace or delete it")
        assert "\n" not in str(caught.value)
    bad.unlink()
    assert check(f"folder:{root}").train == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "holds no class folders"),
        (["0.png"], "holds no class folders"),
        (["a/0.png", "a/1.png", "b/notes.txt"], r"b holds no image \(.png.*delete the folder or fill it"),
        (["a/0.png", "a/1.png", "b/0.png"], "b holds one image; a class needs two"),
        (["train/a/0.png"], "has a folder train/ but neither test/ nor val/"),
        (["train/a/0.png", "train/b/0.png", "test/a/0.png"], "test has no folder for the class 'b'"),
        (["train/a/0.png", "test/a/0.png", "test/b/0.png"], "train has no folder for the class 'b'"),
        (["train/a/0.png", "test/a/x.txt"], "test/a holds no image"),
    ],
)
def test_a_tree_that_cannot_be_a_dataset_says_why(tmp_path: Path, files: list[str], message: str) -> None:
    (tmp_path / "set").mkdir()
    for name in files:
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        save(path) if name.endswith(".png") else path.write_bytes(b"text")
    with pytest.raises(UserError, match=message):
        load(f"folder:{tmp_path / 'set'}")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere is not a folder"):
        load(f"folder:{tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match=r"test_share is 1\.5"):
        from_folder(plain_tree(tmp_path / "set", {"a": 2}), test_share=1.5)
    with pytest.raises(UserError, match="image_size is 0"):
        from_folder(tmp_path / "set", image_size=0)


def test_a_change_in_the_folder_is_seen(tmp_path: Path) -> None:
    root = plain_tree(tmp_path / "set", {"a": 5, "b": 5})
    load(f"folder:{root}")
    (root / "a" / "000.png").rename(root / "b" / "zzz.png")
    found = load(f"folder:{root}")
    assert [len(found.train.labels), len(found.test.labels)] == [8, 2]
    assert np.bincount([*found.train.labels, *found.test.labels]).tolist() == [4, 6]
    save(root / "b" / "zzz.png", (1, 2, 3))
    pixels = [
        image[:, 0, 0].tolist()
        for part in (load(f"folder:{root}"),)
        for image in (*part.train.images, *part.test.images)
    ]
    assert [1, 2, 3] in pixels


def test_a_folder_can_be_streamed(tmp_path: Path) -> None:
    root = plain_tree(tmp_path / "set", {"a": 12, "b": 5, "c": 7, "d": 4})
    stream = split(load(f"folder:{root}"), 2)
    assert stream.class_names == ("a", "b", "c", "d")
    assert [task.classes for task in stream.tasks] == [(0, 1), (2, 3)]
    assert [len(task) for task in stream.tasks] == [10 + 4, 6 + 3]
