"""Image files to arrays, and arrays to another size; Pillow is imported only when it is needed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ider.data.types import Block, Images
from ider.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

# Naming the formats keeps Pillow from trying decoders of formats that nobody meant (some start other programs).
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")


def decode(file: IO[bytes], where: str, size: int, formats: Sequence[str] = FORMATS) -> Images:
    """One image file as 3 x size x size, upright as its EXIF orientation says; the aspect ratio is not kept."""
    image_module, ops = _pillow()
    try:
        with image_module.open(file, formats=list(formats)) as image:
            upright = to_rgb(ops.exif_transpose(image))
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on a damaged file
        reason = "not an image of a known format" if "cannot identify" in str(error) else error
        raise UserError(f"{where} is not a readable image ({reason})") from None
    if upright.size != (size, size):
        upright = upright.resize((size, size), image_module.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(upright).transpose(2, 0, 1))


def to_rgb(image: "Image.Image") -> "Image.Image":
    """Any mode to RGB. Transparency is dropped, as torchvision does; 16-bit grey keeps its upper 8 bits."""
    if image.mode.startswith("I"):  # Pillow's own conversion would clip at 255
        levels = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        image = _pillow()[0].fromarray(levels)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # straight to RGB Pillow warns
    return image.convert("RGB")


def resized(blocks: Iterable[Block], size: int | None) -> Iterator[Block]:
    """The same blocks with square images of another size."""
    for images, labels in blocks:
        yield (images if size is None else resize(images, size)), labels


def resize(images: Images, size: int) -> Images:
    """Images (N x C x H x W) of another size: bilinear, with the filter widened where the image shrinks."""
    if images.shape[2:] == (size, size):
        return images
    image_module, _ = _pillow()
    flat = images.reshape(-1, *images.shape[2:])
    small = np.empty((len(flat), size, size), np.uint8)
    for index, channel in enumerate(flat):
        small[index] = image_module.fromarray(channel).resize((size, size), image_module.Resampling.BILINEAR)
    return small.reshape(*images.shape[:2], size, size)


def is_pillow(item: object) -> bool:
    """Whether `item` is a Pillow image, without importing Pillow for the question."""
    return any(kind.__module__ == "PIL.Image" for kind in type(item).__mro__)


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UserError("image files need Pillow; install it with: pip install pillow") from None
    return Image, ImageOps
