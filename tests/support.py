"""What tests of methods share: batches as the engine would make them, nets whose formulas are known, tiny learners."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import Tensor

from ider import Learner, RunConfig, Task
from ider.config import EngineConfig, ImageConfig, MemoryConfig, NetConfig, TrainConfig
from ider.contract.stage import batch_of, classes_of
from ider.methods import METHODS
from ider.nets import NETS, Shape, TwoInputNet
from ider.protocols import Method, Net
from ider.types import Answer, Batch, Outcome, Parts, Terms

__all__ = ["Hand", "answer_of", "batch_of", "classes_of", "methods_as_before", "terms_of"]

Array = NDArray[np.float64]


@contextmanager
def methods_as_before() -> Iterator[None]:
    """Within, methods may become known; afterwards they are not."""
    known, origins = dict(METHODS), dict(METHODS.origins)
    try:
        yield
    finally:
        METHODS.clear()
        METHODS.update(known)
        METHODS.origins.clear()
        METHODS.origins.update(origins)


def answer_of(z: Parts, logits: Tensor) -> Answer:
    """An answer whose features are the map itself, flattened."""
    return Answer(z.like(logits), z.like(z.rows.flatten(1)))


def terms_of(method: Method, net: Net, teacher: Net | None, batch: Batch) -> Terms:
    """The losses of one step."""
    return dict(method.step(net, teacher, batch).terms)


class Hand:
    """A desk by hand for hooks between tasks: what a test gives it, and a list for what it wants to note."""

    def __init__(self, **given: Any) -> None:
        self.calls: list[str] = []
        for name, value in given.items():
            setattr(self, name, value)


def values(terms: Terms) -> dict[str, float]:
    """The terms as numbers."""
    return {name: term.item() for name, term in terms.items()}


def ce(logits: Array, labels: NDArray[np.int64]) -> float:
    """Softmax cross-entropy over all logits, mean over the rows."""
    return float(-log_softmax(logits, 1)[np.arange(len(labels)), labels].mean())


class LinearNet:
    """Features linear in the images (by default the images), logits linear in the features; it notes what it was shown.

    As a teacher it leaves no graph.
    """

    def __init__(self, head: Array, body: Array | None = None, teaches: bool = False) -> None:
        self.teaches, body = teaches, np.eye(len(head)) if body is None else body
        self.head, self.body = (torch.tensor(matrix, requires_grad=not teaches) for matrix in (head, body))
        self.seen: list[dict[str, int]] = []

    def encode(self, images: Parts) -> Parts:
        self.seen.append(dict(images.sizes))
        return images.like(images.rows.detach()) if self.teaches else images

    def decode(self, z: Parts, y: Parts | None = None, keep: Tensor | None = None) -> Answer:
        assert y is keep is None
        features = z.rows @ self.body
        return Answer(z.like(features @ self.head), z.like(features))

    def weights(self) -> dict[str, Tensor]:
        return {"head": self.head, "body": self.body}


class ByHand:
    """The small net as formulas: conv, batch norm, ReLU, + label feature, conv (stride 2), batch norm, ReLU, linear."""

    def __init__(self, net: TwoInputNet, statistics: str = "batch") -> None:
        self.w = {name: value.detach().numpy().copy() for name, value in net.state_dict().items()}
        self.statistics = statistics

    def prior(self, rows: int) -> Array:
        classes = len(self.w["head.bias"])
        return np.full((rows, classes), 1 / classes)

    def trunk(self, x: Array) -> Array:
        return self._layer(x, "lower.0", 1)

    def features(self, h: Array, u: Array) -> Array:
        scores = u @ self.w["label.weight"].T + self.w["label.bias"]
        feature = np.maximum(scores, 0.01 * scores)
        out = self._layer(h + feature[:, :, None, None], "upper.0", 2)
        return out.reshape(len(out), -1)

    def head(self, h: Array, u: Array) -> Array:
        return self.features(h, u) @ self.w["head.weight"].T + self.w["head.bias"]

    def _layer(self, x: Array, name: str, stride: int) -> Array:
        windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
        out = np.einsum("nchwij,ocij->nohw", windows[:, :, ::stride, ::stride], self.w[f"{name}.conv.weight"])
        norm = {key: self.w[f"{name}.norm.{key}"][:, None, None] for key in ("weight", "bias")}
        if self.statistics == "batch":
            mean, var = out.mean((0, 2, 3))[:, None, None], out.var((0, 2, 3))[:, None, None]
        else:
            mean, var = (self.w[f"{name}.norm.running_{key}"][:, None, None] for key in ("mean", "var"))
        return np.maximum((out - mean) / np.sqrt(var + 1e-5) * norm["weight"] + norm["bias"], 0)


def two_nets(classes: int, seed: int = 0) -> tuple[TwoInputNet, TwoInputNet]:
    """A net and an older one that has seen images, in float64 so that only the reduction of a loss rounds."""
    torch.manual_seed(seed)
    net, old = (NETS["small-conv"](Shape((1, 6, 6), classes, 4, 1, True)).double() for _ in range(2))
    with torch.no_grad():
        old.decode(old.encode(torch.randn(20, 1, 6, 6, dtype=torch.float64)))
    return net, old


@dataclass(frozen=True)
class Sight:
    """What a method was given at one step: the batch, and copies of net, teacher and side as they were then."""

    batch: Batch
    net: TwoInputNet
    teacher: TwoInputNet | None
    side: torch.nn.Module | None


class Witness:
    """A method that notes what the engine gives to the one underneath."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.seen: list[Sight] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def step(self, net: Any, teacher: Any, batch: Batch) -> Outcome:
        copies = (None if it is None else copy.deepcopy(it._net) for it in (net, teacher))
        self.seen.append(Sight(batch, *copies, copy.deepcopy(batch.side)))
        return self.method.step(net, teacher, batch)


def tiny_tasks(count: int, images: int = 20) -> list[Task]:
    """Two classes a task, alternating; noise to look at."""
    rng = np.random.default_rng(0)
    shape = (images, 1, 6, 6)
    return [Task(rng.integers(0, 256, shape).astype(np.uint8), 2 * n + np.arange(images) % 2) for n in range(count)]


def tiny_learner(method: Any, size: int = 10, classes: int = 4, seed: int = 0, **train: Any) -> Learner:
    """A learner whose tasks take seconds: a small net on the CPU, images cropped and mirrored, a few epochs."""
    train = {"epochs": 2, "batch": 5, "replay_batch": 4, "lr": 0.05} | train
    config = RunConfig(
        method=method,
        net=NetConfig(name="small-conv", width=4, split=1, classes=classes),
        memory=MemoryConfig(size=size),
        train=TrainConfig(**train),
        images=ImageConfig(mean=(0.5,), std=(0.25,), pad=1, flip=True),
        engine=EngineConfig(device="cpu", precision="fp32", threads=1),
    )
    return Learner(config, seed)
