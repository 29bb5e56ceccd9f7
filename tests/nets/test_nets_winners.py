"""Sparse activations against sorting by hand, and where they stand in the nets."""

import numpy as np
import pytest
import torch

from ider.nets import NETS, Shape
from ider.nets.twoinput import StageEnd
from ider.nets.winners import global_winners, local_winners, winners
from ider.types import Sparsity

X = torch.tensor(np.random.default_rng(0).normal(size=(3, 10, 4, 5)))


@pytest.mark.parametrize("count", [1, 4, 9, 10])
def test_global_winners_are_the_channels_of_the_largest_absolute_sums(count: int) -> None:
    found = global_winners(X, count).numpy()
    for row, image in zip(found, X.numpy(), strict=True):
        best = np.argsort(-np.abs(image).sum((1, 2)))[:count]
        expected = np.zeros_like(image)
        expected[best] = np.maximum(image[best], 0)
        np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize("count", [1, 4, 9, 10])
def test_local_winners_are_the_largest_values_of_each_place_if_not_negative(count: int) -> None:
    found = local_winners(X, count).numpy()
    expected = np.zeros_like(found)
    for image, row, column in np.ndindex(3, 4, 5):
        values = X[image, :, row, column].numpy()
        best = np.argsort(-values)[:count]
        expected[image, best, row, column] = np.maximum(values[best], 0)
    np.testing.assert_array_equal(found, expected)


def test_local_winners_with_all_channels_are_a_relu() -> None:
    assert torch.equal(local_winners(X, 10), X.relu())


# Specification 4.1 (floor) and 5.1 (round), for 64, 128, 256 and 512 channels.
@pytest.mark.parametrize(
    ("kind", "share", "counts"),
    [
        ("global", 0.9, (57, 115, 230, 460)),
        ("global", 0.8, (51, 102, 204, 409)),
        ("local", 0.7, (45, 90, 179, 358)),
        ("local", 0.8, (51, 102, 205, 410)),
        ("local", 0.9, (58, 115, 230, 461)),
    ],
)
def test_the_numbers_of_winners_are_the_published_ones(kind: str, share: float, counts: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    for stage, count in enumerate(counts):
        x = torch.rand(1, 64 * 2**stage, 1, 1, generator=generator) + 0.1
        assert int((winners(x, Sparsity(kind, (share,) * 4), stage) > 0).sum()) == count  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "ends"), [("global", 4), ("local", 0)])
def test_the_sparse_resnet_has_the_weights_of_the_dense_one_and_its_stages_end_where_they_should(
    kind: str, ends: int
) -> None:
    dense, sparse = (
        NETS["resnet18"](Shape((3, 8, 8), 10, 8, 4, True, "linear", sparsity))
        for sparsity in (None, Sparsity(kind, (0.5,) * 4))  # type: ignore[arg-type]
    )
    assert [weight.shape for weight in sparse.parameters()] == [weight.shape for weight in dense.parameters()]
    found = [module for module in sparse.modules() if isinstance(module, StageEnd)]
    assert len(found) == ends
    assert [end.last for end in found] == [False, False, False, True][:ends]
    assert sum(isinstance(module, StageEnd) for module in sparse.lower.modules()) == ends / 2


def test_a_mask_turns_channels_of_the_last_stage_off_and_no_winner_takes_their_place() -> None:
    net = NETS["resnet18"](Shape((3, 8, 8), 10, 8, 4, True, "linear", Sparsity("global", (1.0,) * 4))).eval()
    z, keep = net.encode(torch.randn(2, 3, 8, 8)), torch.ones(2, 64)
    keep[0, :40] = 0
    plain, masked = net.features(z), net.features(z, keep=keep)
    assert not masked[0, :40].any()
    assert torch.equal(masked[0, 40:], plain[0, 40:])
    assert torch.equal(masked[1], plain[1])


def test_a_mask_comes_before_the_winners_are_chosen() -> None:
    """Half of the channels win; where winners are masked others take their place, unlike a mask put on afterwards."""
    end, x = StageEnd(Sparsity("global", (0.5,)), 0, last=True), X.abs() + 0.1
    first = (end(x).sum((2, 3)) > 0).float()
    keep = 1 - first * (torch.rand(3, 10, generator=torch.Generator().manual_seed(0)) < 0.6)
    found = end(x, keep)
    assert ((found.sum((2, 3)) > 0).sum(1) == 5).all()
    assert not (found.sum((2, 3)) * (1 - keep)).any()
    expected = global_winners(x * keep[:, :, None, None], 5)
    assert torch.equal(found, expected)
    assert not torch.equal(found, end(x) * keep[:, :, None, None])
