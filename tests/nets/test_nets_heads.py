"""The cosine head against its formula, what of it learns, and how it widens."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ider.nets.heads import CosineHead, grown, make_head

D, C = 5, 4


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def head(scale: float = 3.0) -> CosineHead:
    made = CosineHead(normal(C, D))
    with torch.no_grad():
        made.scale.fill_(scale)
    return made


def by_hand(weight: Tensor, features: Tensor, scale: float) -> np.ndarray:
    w, f = weight.detach().numpy(), features.numpy()
    return np.array([[scale * (a @ b) / np.linalg.norm(a) / np.linalg.norm(b) for b in w] for a in f])


def test_logits_are_scaled_cosines() -> None:
    features = normal(7, D, seed=1)
    np.testing.assert_allclose(head()(features).detach().numpy(), by_hand(head().weight, features, 3.0), rtol=1e-12)
    np.testing.assert_allclose(
        head().cosines(features).detach().numpy(), by_hand(head().weight, features, 1.0), rtol=1e-12
    )


def test_neither_the_length_of_features_nor_of_vectors_matters() -> None:
    one, other, features = head(), head(), normal(7, D, seed=1)
    with torch.no_grad():
        other.weight.mul_(torch.tensor([[0.1], [2.0], [30.0], [1.0]]))
    torch.testing.assert_close(other(features * 7), one(features), rtol=1e-12, atol=1e-12)


def test_features_of_nothing_have_no_direction() -> None:
    """After a ReLU all features may be zero."""
    features = torch.zeros(2, D, dtype=torch.float64, requires_grad=True)
    logits = head()(features)
    logits.square().sum().backward()
    assert not logits.any()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_only_the_learning_classes_and_the_scale_have_a_gradient() -> None:
    made, features, labels = head(), normal(7, D, seed=1), torch.arange(7) % C
    made.learning.copy_(torch.tensor([False, True, False, True]))
    F.cross_entropy(made(features), labels).backward()
    free = head()
    F.cross_entropy(free(features), labels).backward()
    assert made.weight.grad is not None
    assert free.weight.grad is not None
    assert made.weight.grad.any(1).tolist() == [False, True, False, True]
    torch.testing.assert_close(made.weight.grad[[1, 3]], free.weight.grad[[1, 3]])
    torch.testing.assert_close(made.scale.grad, free.scale.grad)
    assert made.scale.grad != 0


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_a_new_head_is_drawn_within_the_bounds_of_a_linear_layer(kind: str) -> None:
    torch.manual_seed(0)
    made = make_head(kind, 400, 50)
    assert made.weight.shape == (50, 400)
    assert made.out_features == 50
    assert made.weight.abs().max() <= 1 / 20
    assert made.weight.std().item() == pytest.approx(1 / 20 / 3**0.5, rel=0.02)


def test_a_cosine_head_begins_with_a_scale_of_one_and_everything_learning() -> None:
    made = make_head("cosine", D, C)
    assert isinstance(made, CosineHead)
    assert made.scale.item() == 1
    assert made.learning.all()


def test_a_widened_cosine_head_keeps_its_answers() -> None:
    made, features = head(), normal(7, D, seed=1)
    made.learning.copy_(torch.tensor([False, True, False, True]))
    wide = grown(made, 1000, torch.Generator().manual_seed(2))
    assert isinstance(wide, CosineHead)
    torch.testing.assert_close(wide(features)[:, :C], made(features), rtol=1e-13, atol=1e-13)
    assert wide.scale.item() == 3
    assert wide.learning[:C].tolist() == made.learning.tolist()
    assert wide.learning[C:].all()
    assert wide.weight.dtype == torch.float64
    new = wide.weight[C:].detach()
    assert new.abs().max() <= D**-0.5
    assert new.std().item() == pytest.approx((3 * D) ** -0.5, rel=0.03)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_widening_draws_from_the_given_generator_alone_and_a_frozen_head_stays_so(kind: str, learns: bool) -> None:
    made = make_head(kind, D, C).requires_grad_(learns)
    before = torch.get_rng_state()
    one, other = (grown(made, C + 3, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.weight, other.weight)
    assert {weight.requires_grad for weight in one.parameters()} == {learns}
    assert all(weight.is_leaf for weight in one.parameters())
