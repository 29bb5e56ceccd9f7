"""The published datasets: where they come from, how to know that they are whole, and the layouts they are found in.

Addresses and MD5 sums are those that cs.toronto.edu/~kriz/cifar.html and github.com/zalandoresearch/fashion-mnist
give; for TinyImageNet, whose publisher gives no sum, it is the one that public loaders agree on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ider.data.cifar import CifarBinary, CifarPython
from ider.data.formats import Format, Idx, TinyImageNet

TORONTO = "https://www.cs.toronto.edu/~kriz/"
ZALANDO = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION = "FashionMNIST/raw"


@dataclass(frozen=True)
class Published:
    """A dataset that others publish. Paths are relative to a data folder.

    `layouts` are tried in order, so that what `fetch` brings (archives, checked against `md5`) comes before unpacked
    folders: fetching then repairs whatever is wrong with these.
    """

    description: str
    images: tuple[int, int]
    urls: Mapping[str, str]
    md5: Mapping[str, str]
    layouts: tuple[tuple[str, Format], ...]


CIFAR10_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR10_BINARY = CifarBinary(
    "cifar-10-batches-bin", tuple(f"{name}.bin" for name in CIFAR10_BATCHES), "test_batch.bin", "batches.meta.txt"
)
CIFAR10_PYTHON = CifarPython(
    "cifar-10-batches-py", CIFAR10_BATCHES, "test_batch", "batches.meta", "label_names", "labels"
)
CIFAR100_BINARY = CifarBinary("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", label_bytes=2)
CIFAR100_PYTHON = CifarPython("cifar-100-python", ("train",), "test", "meta", "fine_label_names", "fine_labels")
FASHION_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
FASHION_MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}

PUBLISHED = {
    "cifar10": Published(
        "60,000 colour images of 32x32 in 10 classes; 170 MB to download",
        images=(50_000, 10_000),
        urls={"cifar-10-binary.tar.gz": f"{TORONTO}cifar-10-binary.tar.gz"},
        md5={
            "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
        },
        layouts=(
            ("cifar-10-binary.tar.gz", CIFAR10_BINARY),
            ("cifar-10-python.tar.gz", CIFAR10_PYTHON),
            (CIFAR10_BINARY.folder, CIFAR10_BINARY),
            (CIFAR10_PYTHON.folder, CIFAR10_PYTHON),
        ),
    ),
    "cifar100": Published(
        "60,000 colour images of 32x32 in 100 classes; 169 MB to download",
        images=(50_000, 10_000),
        urls={"cifar-100-binary.tar.gz": f"{TORONTO}cifar-100-binary.tar.gz"},
        md5={
            "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
            "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
        },
        layouts=(
            ("cifar-100-binary.tar.gz", CIFAR100_BINARY),
            ("cifar-100-python.tar.gz", CIFAR100_PYTHON),
            (CIFAR100_BINARY.folder, CIFAR100_BINARY),
            (CIFAR100_PYTHON.folder, CIFAR100_PYTHON),
        ),
    ),
    "tiny-imagenet": Published(
        "110,000 colour images of 64x64 in 200 classes; 248 MB to download",
        images=(100_000, 10_000),
        urls={"tiny-imagenet-200.zip": "http://cs231n.stanford.edu/tiny-imagenet-200.zip"},
        md5={"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
        layouts=(
            ("tiny-imagenet-200.zip", TinyImageNet("tiny-imagenet-200")),
            ("tiny-imagenet-200", TinyImageNet("tiny-imagenet-200")),
        ),
    ),
    "fashion-mnist": Published(
        "70,000 grey images of 28x28 in 10 classes; 31 MB to download",
        images=(60_000, 10_000),
        urls={f"{FASHION}/{name}": f"{ZALANDO}{name}" for name in FASHION_MD5},
        md5={f"{FASHION}/{name}": md5 for name, md5 in FASHION_MD5.items()},
        layouts=((FASHION, Idx(FASHION, FASHION_NAMES)),),
    ),
}
