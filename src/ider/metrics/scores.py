"""All calibration and uncertainty metrics of one evaluation, by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ider.errors import UserError
from ider.metrics import calibration, uncertainty
from ider.metrics.checks import Floats, Ints, check_answers, check_distributions


@dataclass(frozen=True, eq=False)
class Scored:
    """The answers on one task's test set: `probabilities` (N, C) over all classes, `labels` (N,)."""

    probabilities: npt.NDArray[np.floating[Any]]
    labels: npt.NDArray[np.integer[Any]]


def score(tests: Sequence[Scored], nested: bool = False) -> dict[str, float | None]:
    """Score one evaluation on the test sets of all tasks so far.

    `ece` is the mean of the tasks' ECEs, as the released code reports it; everything else is over the pooled images,
    which are all in the last test set if the sets are `nested`.
    `accuracy`, `ece`, `ece_pooled`, `ace`, `overconfidence` in percent, the others as they are; None where undefined.
    """
    checked = _checked(tests)
    pooled = checked[-1:] if nested else checked
    p = np.concatenate([p for p, _ in pooled])
    y = np.concatenate([y for _, y in pooled])
    confidence, correct = calibration.confidence_and_correct(p, y)
    return {
        "accuracy": float(100 * correct.mean()),
        "ece": calibration.ece_per_task([p for p, _ in checked], [y for _, y in checked]),
        "ece_pooled": calibration.ece(p, y),
        "ace": calibration.ace(p, y),
        "nll": calibration.nll(p, y),
        "brier": calibration.brier(p, y),
        "overconfidence": calibration.overconfidence(p, y),
        "aurc": uncertainty.aurc(confidence, correct),
        "e_aurc": uncertainty.e_aurc(confidence, correct),
        "auroc_error": uncertainty.auroc_error(confidence, correct),
        "fpr95": uncertainty.fpr95(confidence, correct),
    }


def _checked(tests: Sequence[Scored]) -> list[tuple[Floats, Ints]]:
    if not tests:
        raise UserError("nothing to score: expected one test set or more, got 0")
    checked = [_check(index, test) for index, test in enumerate(tests)]
    widths = [p.shape[1] for p, _ in checked]
    if len(set(widths)) > 1:
        raise UserError(f"all test sets must be answered over the same classes, got widths {widths}")
    return checked


def _check(index: int, test: Scored) -> tuple[Floats, Ints]:
    try:
        p, y = check_answers(test.probabilities, test.labels)
        check_distributions(p)
    except UserError as error:
        raise UserError(f"test set {index}: {error}") from error
    return p, y
