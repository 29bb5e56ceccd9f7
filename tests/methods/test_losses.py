"""Each loss by hand and against NumPy and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, rel_entr, softmax

from ider.losses import cross_entropy, logit_kl, logit_mse

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=(5, 4)), RNG.normal(size=(5, 4))
LABELS = np.array([0, 3, 1, 1, 2])
T = torch.tensor


def test_cross_entropy_by_hand() -> None:
    # softmax of (0, ln 3) is (1/4, 3/4)
    logits = T([[0.0, math.log(3)], [0.0, 0.0]])
    assert cross_entropy(logits, T([1, 0])).item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)


def test_cross_entropy_is_the_mean_over_rows() -> None:
    expected = -log_softmax(A, 1)[np.arange(5), LABELS].mean()
    assert cross_entropy(T(A), T(LABELS)).item() == pytest.approx(expected, rel=1e-6)


def test_logit_mse_by_hand() -> None:
    assert logit_mse(T([[1.0, 2.0], [0.0, 0.0]]), T([[1.0, 0.0], [2.0, 2.0]])).item() == 3.0


def test_logit_mse_is_the_mean_over_rows_and_classes() -> None:
    assert logit_mse(T(A), T(B)).item() == pytest.approx(((A - B) ** 2).sum() / A.size, rel=1e-6)


def test_logit_kl_by_hand() -> None:
    # KL of (1/2, 1/2), the target, from (1/4, 3/4), the answer
    answer, target = T([[0.0, math.log(3)]]), T([[5.0, 5.0]])
    assert logit_kl(answer, target).item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))


def test_logit_kl_is_summed_over_classes_and_averaged_over_rows() -> None:
    expected = rel_entr(softmax(B, 1), softmax(A, 1)).sum(1).mean()
    assert logit_kl(T(A), T(B)).item() == pytest.approx(expected, rel=1e-5)
    assert logit_kl(T(A), T(A) + 7).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("loss", [logit_mse, logit_kl])
def test_gradient_reaches_both_sides(loss: object) -> None:
    a, b = T(A, requires_grad=True), T(B, requires_grad=True)
    loss(a, b).backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.any()
    assert b.grad.any()


def test_half_precision_logits_are_averaged_in_single_precision() -> None:
    a, b = T(A).bfloat16(), T(B).bfloat16()
    for value, same in (
        (cross_entropy(a, T(LABELS)), cross_entropy(a.float(), T(LABELS))),
        (logit_mse(a, b), logit_mse(a.float(), b.float())),
        (logit_kl(a, b), logit_kl(a.float(), b.float())),
    ):
        assert value.dtype == torch.float32
        assert torch.equal(value, same)
