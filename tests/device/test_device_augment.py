"""The kernel that brings a step's images together against torch, bit for bit; see `test_device_norm`."""

import os

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ider import METHODS, Learner, LearnerConfig, Task
from ider.config import EngineConfig, MemoryConfig, NetConfig, TrainConfig
from ider.data.augment import crop_and_flip, normalise
from ider.nets.precision import Cast, Conv2d
from ider.types import whole

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported
pytest.importorskip("triton")

SHAPES = [(3, 8, 8), (1, 5, 7), (4, 9, 16), (3, 13, 11), (9, 2, 3), (2, 1, 1)]
PAD = 2


def source(shape: tuple[int, ...], held: int, taken: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images, labels, and the rows to take, some of them twice."""
    images = torch.randint(0, 256, (held, *shape), dtype=torch.uint8)
    return images, torch.randint(0, 99, (held,)), torch.randint(0, held, (taken,))


def found_and_wanted(
    shape: tuple[int, ...], taken: tuple[int, int], moves: tuple[bool, bool], dtype: torch.dtype
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    from ider.data.augment_kernel import Moves, Source, bring_together

    sources = source(shape, 9, taken[0]), source(shape, 5, taken[1])
    crops = torch.randint(0, 2 * PAD + 1, (sum(taken), 2)) if moves[0] else None
    flips = torch.rand(sum(taken)) < 0.5 if moves[1] else None
    mean, std = torch.rand(shape[0]), torch.rand(shape[0]) + 0.1
    images, labels = (torch.cat([held[place][held[2]] for held in sources]) for place in (0, 1))
    wanted = normalise(crop_and_flip(images, crops, flips, PAD), mean, std).to(dtype)
    crops, flips = (None if move is None else move.to(DEVICE) for move in (crops, flips))
    first, second = (Source(*(tensor.to(DEVICE) for tensor in held)) for held in sources)
    found = bring_together((first, second), Moves(crops, flips, PAD), (mean.to(DEVICE), std.to(DEVICE)), dtype)
    return found, (wanted, labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("moves", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("taken", [(4, 3), (6, 0), (1, 12)])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_those_of_torch(
    shape: tuple[int, ...], taken: tuple[int, int], moves: tuple[bool, bool], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    (shown, labels), (wanted, wanted_labels) = found_and_wanted(shape, taken, moves, dtype)
    rounds = dtype is torch.float32 or DEVICE == "cuda"  # the interpreter cuts off digits instead
    torch.testing.assert_close(shown.cpu(), wanted, rtol=0 if rounds else 2**-7, atol=0)
    assert torch.equal(labels.cpu(), wanted_labels)
    assert shown.dtype is dtype


def test_in_single_precision_nothing_lies_between_the_images() -> None:
    shown = found_and_wanted((3, 4, 5), (2, 2), (True, True), torch.float32)[0][0]
    assert shown.is_contiguous(memory_format=torch.channels_last)
    assert whole(shown) is shown


@pytest.mark.parametrize(("channels", "wide"), [(1, 8), (3, 8), (8, 8), (9, 16)])
def test_in_half_precision_zeros_lie_behind_the_channels(channels: int, wide: int) -> None:
    shown = found_and_wanted((channels, 4, 5), (2, 2), (True, True), torch.bfloat16)[0][0]
    assert whole(shown).shape == (4, wide, 4, 5)
    assert whole(shown).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(whole(shown)[:, :channels], shown)
    assert not whole(shown)[:, channels:].any()


def learnt(name: str) -> list[Tensor]:
    """All that a learner holds after two tasks, the second of which reads the memory."""
    rng = np.random.default_rng(0)
    config = LearnerConfig(
        method=METHODS[name],
        net=NetConfig(name="small-conv", width=4, classes=4),
        memory=MemoryConfig(size=6),
        train=TrainConfig(epochs=1, batch=5, replay_batch=4, lr=0.01),
        engine=EngineConfig(device="cpu", precision="fp32", capture="off", threads=1),
    )
    learner = Learner(config, seed=0)
    for first in (0, 2):
        images = rng.integers(0, 256, (13, 3, 6, 6)).astype(np.uint8)
        learner.learn(Task(images, first + np.arange(13) % 2))
    return list(learner.model.tensors().values())


@pytest.mark.skipif(DEVICE == "cuda", reason="the interpreter lets a CPU do both")
@pytest.mark.parametrize("name", ["er+id", "derpp", "xder", "icarl"])
def test_a_learner_learns_the_same_with_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = learnt(name)
    monkeypatch.setattr("ider.engine.step.runs_kernels", lambda _: True)
    for mine, theirs in zip(learnt(name), plain, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_the_stem_learns_the_same_from_wide_images() -> None:
    torch.manual_seed(0)
    shown = found_and_wanted((3, 8, 8), (4, 4), (True, True), torch.bfloat16)[0][0]
    stem = nn.Sequential(Conv2d(3, 16, 3, 1, 1, bias=False)).to(DEVICE, memory_format=torch.channels_last)
    slope = torch.randn(8, 16, 8, 8, device=DEVICE, dtype=torch.bfloat16)
    outs, grads = [], []
    for images in (shown, shown.contiguous(memory_format=torch.channels_last)):
        stem.zero_grad()
        cast = Cast(torch.bfloat16, stem)
        for _ in range(2):  # gradients add up
            with cast:
                out = stem(images)
            out.backward(slope)
            cast.collect()
        outs.append(out.float())
        grads.append(stem[0].weight.grad)
    torch.testing.assert_close(*outs, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(*grads, rtol=2e-2, atol=2e-1)
