"""Metrics as pure functions of arrays: accuracy over the stream, calibration, uncertainty."""

from ider.metrics.accuracy import bwt, faa, ff_code, ff_paper, fwt
from ider.metrics.calibration import (
    ace,
    brier,
    confidence_and_correct,
    ece,
    ece_per_task,
    nll,
    overconfidence,
    reliability,
)
from ider.metrics.scores import Scored, score
from ider.metrics.uncertainty import aupr_error, aupr_success, aurc, auroc_error, e_aurc, fpr95, idempotence_gap

__all__ = [
    "Scored",
    "ace",
    "aupr_error",
    "aupr_success",
    "aurc",
    "auroc_error",
    "brier",
    "bwt",
    "confidence_and_correct",
    "e_aurc",
    "ece",
    "ece_per_task",
    "faa",
    "ff_code",
    "ff_paper",
    "fpr95",
    "fwt",
    "idempotence_gap",
    "nll",
    "overconfidence",
    "reliability",
    "score",
]
