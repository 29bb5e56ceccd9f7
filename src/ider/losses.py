"""Loss terms that several methods share: pure functions of tensors, each the mean that its docstring names.

Half precision, as automatic mixed precision leaves it, is computed in single; double stays double.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy over all logits, mean over the batch."""
    return F.cross_entropy(_full(logits), labels)


def logit_mse(answer: Tensor, target: Tensor) -> Tensor:
    """Squared distance of raw logits, mean over the batch and over the classes."""
    return F.mse_loss(_full(answer), _full(target))


def logit_kl(answer: Tensor, target: Tensor) -> Tensor:
    """KL(target || answer) of the softmax distributions: sum over the classes, mean over the batch."""
    log_p, log_q = F.log_softmax(_full(target), -1), F.log_softmax(_full(answer), -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()


def among(logits: Tensor, classes: Tensor) -> Tensor:
    """The logits of some classes (a mask); the others are impossible."""
    return _full(logits).masked_fill(~classes, -torch.inf)


def distillation(answer: Tensor, target: Tensor, classes: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of two softened softmaxes among some classes: sum over them, mean over the batch."""
    target_p = (among(target, classes) / temperature).softmax(-1)
    log_p = (among(answer, classes) / temperature).log_softmax(-1).masked_fill(~classes, 0)
    return -(target_p * log_p).sum(-1).mean()


def probabilities(logits: Tensor) -> Tensor:
    """The softmax over the classes."""
    return _full(logits).softmax(-1)


def _full(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
