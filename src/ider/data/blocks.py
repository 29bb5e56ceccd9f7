"""Blocks of images gathered into one array, in a .npy file or in memory, without holding anything twice."""

import io
import math
from collections.abc import Iterable
from typing import IO

import numpy as np

from ider.data.types import Block, Images, Labels, Split


def write_blocks(blocks: Iterable[Block], file: IO[bytes]) -> tuple[list[int], Labels]:
    """Write the images as .npy; returns their shape, and the labels. How many there are need not be known before."""
    shape = [0, 0, 0, 0]
    labels: list[Labels] = []
    for images, answers in blocks:
        if not labels:
            shape[1:] = images.shape[1:]
            _write_header(file, shape)
        file.write(np.ascontiguousarray(images).data)
        labels.append(answers)
        shape[0] += len(images)
    file.seek(0)
    _write_header(file, shape)  # NumPy leaves room in the header for a count that grows
    return shape, np.concatenate(labels)


def gather(blocks: Iterable[Block]) -> Split:
    """The same in memory."""
    buffer = io.BytesIO()  # grows in place; joining the blocks would take twice their size
    shape, labels = write_blocks(blocks, buffer)
    size = math.prod(shape)
    view = buffer.getbuffer()
    images: Images = np.frombuffer(view, np.uint8, size, offset=len(view) - size).reshape(shape)
    return Split(images, labels)


def _write_header(file: IO[bytes], shape: list[int]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": tuple(shape)})
