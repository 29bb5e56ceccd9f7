"""Loss terms that several methods share: pure functions of tensors, each the mean that its docstring names."""

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy over all logits, mean over the batch."""
    return F.cross_entropy(logits.float(), labels)


def logit_mse(answer: Tensor, target: Tensor) -> Tensor:
    """Squared distance of raw logits, mean over the batch and over the classes."""
    return F.mse_loss(answer.float(), target.float())


def logit_kl(answer: Tensor, target: Tensor) -> Tensor:
    """KL(target || answer) of the softmax distributions: sum over the classes, mean over the batch."""
    log_p, log_q = F.log_softmax(target.float(), -1), F.log_softmax(answer.float(), -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()
