"""What loading costs: seconds and peak memory for images of CIFAR-100's and of TinyImageNet's number and size.

    python benchmarks/data.py

Writes generated images in the layouts that the publishers use (a folder of binary files; a zip of JPEG files, a few
hundred different ones over and over), then measures in fresh processes: the first load, which decodes; a load from the
cache; a load from the cache whose images are all read and dealt out to the benchmark's stream. Memory is the peak above
that of the process before it loads, as a multiple of the decoded images and labels. Linux only; dated results are in
benchmarks/README.md.
"""

import io
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from ider.data import datasets
from ider.data.published import PUBLISHED
from ider.recipes import recipe
from ider.streams import build

LABEL = 8  # bytes
DECODED = {"cifar100": 60_000 * (3 * 32 * 32 + LABEL), "tiny-imagenet": 110_000 * (3 * 64 * 64 + LABEL)}


def write_cifar100(folder: Path) -> None:
    """50,000 + 10,000 random images of 100 classes."""
    rng = np.random.default_rng(0)
    (folder / "cifar-100-binary").mkdir()
    for part, count in (("train", 50_000), ("test", 10_000)):
        records = rng.integers(0, 256, (count, 2 + 3072), dtype=np.uint8)
        records[:, 1] = np.arange(count) % 100
        (folder / "cifar-100-binary" / f"{part}.bin").write_bytes(records.data)
    names = "\n".join(f"class {label}" for label in range(100))
    (folder / "cifar-100-binary" / "fine_label_names.txt").write_text(names)


def write_tiny_imagenet(folder: Path) -> None:
    """100,000 + 10,000 JPEG files of 200 classes; each class has its own picture, of 8x8 squares."""
    rng = np.random.default_rng(0)
    ids = [f"n{label:08d}" for label in range(200)]
    pictures = {wnid: _jpeg(rng) for wnid in ids}
    validation = [(f"val_{number}.JPEG", ids[number % 200]) for number in range(10_000)]
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as archive:
        root = "tiny-imagenet-200"
        archive.writestr(f"{root}/wnids.txt", "\n".join(ids))
        archive.writestr(f"{root}/words.txt", "\n".join(f"{wnid}\tclass {wnid}" for wnid in ids))
        lines = [f"{name}\t{wnid}\t0\t0\t63\t63" for name, wnid in validation]
        archive.writestr(f"{root}/val/val_annotations.txt", "\n".join(lines))
        for wnid in ids:
            for number in range(500):
                archive.writestr(f"{root}/train/{wnid}/images/{wnid}_{number}.JPEG", pictures[wnid])
        for name, wnid in validation:
            archive.writestr(f"{root}/val/images/{name}", pictures[wnid])


def _jpeg(rng: np.random.Generator) -> bytes:
    coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize((64, 64)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def measure(name: str, folder: Path, what: str) -> None:
    """In a process of its own: print seconds and peak bytes of one way to load."""
    PUBLISHED[name] = replace(PUBLISHED[name], md5={})  # what is generated has no publisher's checksum
    before, start = _memory("VmRSS"), time.perf_counter()
    if what == "stream":
        build(recipe(name, "er").stream, str(folder))
    else:
        datasets.load(name, folder)
    print(json.dumps([time.perf_counter() - start, max(0, _memory("VmHWM") - before)]))


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    """Print a line for each dataset and way to load it."""
    writers: dict[str, Callable[[Path], None]] = {"cifar100": write_cifar100, "tiny-imagenet": write_tiny_imagenet}
    for name, write in writers.items():
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            for what in ("first", "cached", "stream"):
                command = [sys.executable, __file__, name, folder, what]
                seconds, peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                share = peak / DECODED[name]
                print(f"{name:14s} {what:7s} {seconds:7.2f} s   peak {peak / 1e6:6.0f} MB = {share:.2f} x decoded")


if __name__ == "__main__":
    measure(sys.argv[1], Path(sys.argv[2]), sys.argv[3]) if len(sys.argv) == 4 else main()
