"""The one evaluator: both answers to every test set from one pass each, then every number from those logits alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ider import metrics
from ider.config import EvaluationConfig
from ider.engine.answers import ANSWERS, Probabilities
from ider.engine.learner import Learner
from ider.streams.stream import Stream, Task

Row = dict[str, Any]
"""After one task, by answer: `accuracy` and `task_il` on each task so far, `next` on the one to come (all classes)."""


def accuracy(probabilities: Probabilities, test: Task) -> float:
    """The share of right answers, in percent."""
    return float(100 * np.mean(probabilities.argmax(1) == test.labels))


def after_task(learner: Learner, stream: Stream, learnt: int, config: EvaluationConfig) -> Row:
    """The row of the accuracy matrix after `learnt` tasks, for each answer."""
    row: Row = {answer: {"accuracy": [], "task_il": [], "next": None} for answer in ANSWERS}
    for number, test in enumerate(stream.tests[: learnt + 1]):
        answers = learner.answers(test.images)
        for answer in ANSWERS:
            entry = row[answer]
            if number == learnt:
                entry["next"] = accuracy(answers.probabilities(answer), test)
            else:
                entry["accuracy"].append(accuracy(answers.probabilities(answer, _domain(learner, config)), test))
                entry["task_il"].append(accuracy(answers.probabilities(answer, test.classes), test))
    return row


def untrained(learner: Learner, stream: Stream) -> Row:
    """The accuracy of the net as it was drawn, on each task and over all classes: the base of forward transfer."""
    learner.prepare(stream.tasks[0].images)
    found = [learner.answers(test.images) for test in stream.tests]
    return {
        answer: [
            accuracy(answers.probabilities(answer), test) for answers, test in zip(found, stream.tests, strict=True)
        ]
        for answer in ANSWERS
    }


def final(
    learner: Learner, stream: Stream, rows: Sequence[Row], start: Row, config: EvaluationConfig
) -> dict[str, Any]:
    """All of a record that is measured: the matrices of the headline answer, and every metric of every answer."""
    found = [learner.answers(test.images) for test in stream.tests]
    domain, headline = _domain(learner, config), config.answer
    scored = {answer: [answers.probabilities(answer, domain) for answers in found] for answer in ANSWERS}
    by_answer = {
        answer: _metrics(scored[answer], stream, [row[answer] for row in rows], start[answer]) for answer in ANSWERS
    }
    gap = metrics.idempotence_gap(np.concatenate(scored["first"]), np.concatenate(scored["second"]))
    for values in by_answer.values():
        values["idempotence_gap"] = gap
    labels = np.concatenate([test.labels for test in stream.tests])
    pooled = {answer: np.concatenate(scored[answer]) for answer in ANSWERS}
    return {
        "accuracy": [row[headline]["accuracy"] for row in rows],
        "task_il": [row[headline]["task_il"] for row in rows],
        "metrics": by_answer[headline],
        "answers": by_answer,
        "reliability": {answer: metrics.reliability(pooled[answer], labels) for answer in ANSWERS},
        "task_mass": {answer: _mass(pooled[answer], stream) for answer in ANSWERS},
        "test_share": [100 * len(test) / len(labels) for test in stream.tests],
    }


def _metrics(
    scored: list[Probabilities], stream: Stream, rows: list[Row], start: list[float]
) -> dict[str, float | None]:
    matrix = [row["accuracy"] for row in rows]
    once = len(rows) < len(stream.tests)  # all tasks learnt at once: there is no "before" a task
    before = None if once else [start[0], *(row["next"] for row in rows[:-1])]
    return {
        "faa": metrics.faa(matrix),
        "ff": metrics.ff_code(matrix, before),
        "ff_paper": metrics.ff_paper(matrix),
        "bwt": metrics.bwt(matrix),
        "fwt": None if before is None else metrics.fwt(before, start),
        "task_il": float(np.mean(rows[-1]["task_il"])),
        **metrics.score([metrics.Scored(p, test.labels) for p, test in zip(scored, stream.tests, strict=True)]),
    }


def _domain(learner: Learner, config: EvaluationConfig) -> tuple[int, ...] | None:
    return learner.seen if config.classes == "seen" else None


def _mass(probabilities: Probabilities, stream: Stream) -> list[float]:
    """The percentage of all probability mass that each task's classes receive: recency bias, if the last gets most."""
    return [float(100 * probabilities[:, list(test.classes)].sum(1).mean()) for test in stream.tests]
