"""The one evaluator: both answers to every test set from one pass each, then every number from those logits alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ider import metrics
from ider.calibration import Temperatures
from ider.config import EvaluationConfig
from ider.engine.answers import ANSWERS, Answer, Answers, Probabilities
from ider.engine.learner import Learner
from ider.streams.stream import Stream, Task

Metrics = dict[str, float | None]
Row = dict[str, Any]
"""After one task, by answer: `accuracy` and `task_il` on each task so far, `next` on the one to come (all classes)."""


def accuracy(probabilities: Probabilities, test: Task) -> float:
    """The share of right answers, in percent."""
    return float(100 * np.mean(probabilities.argmax(1) == test.labels))


def after_task(learner: Learner, stream: Stream, learnt: int, config: EvaluationConfig) -> Row:
    """The row of the accuracy matrix after `learnt` tasks, for each answer."""
    domain = _domain(learner, config)
    found = list(zip(_answer_all(learner, stream, learnt), stream.tests, strict=False))
    row: Row = {
        answer: {
            "accuracy": [accuracy(answers.probabilities(answer, domain), test) for answers, test in found],
            "task_il": [accuracy(answers.probabilities(answer, test.classes), test) for answers, test in found],
            "next": None,
        }
        for answer in ANSWERS
    }
    if not stream.nested and learnt < len(stream.tests):
        test = stream.tests[learnt]
        answers = learner.answers(test.images)
        for answer in ANSWERS:
            row[answer]["next"] = accuracy(answers.probabilities(answer), test)
    return row


def untrained(learner: Learner, stream: Stream) -> Row:
    """The accuracy of the net as it was drawn, on each task and over all classes: the base of forward transfer."""
    learner.prepare(stream.tasks[0].images)
    found = list(zip(_answer_all(learner, stream, len(stream.tests)), stream.tests, strict=True))
    return {answer: [accuracy(answers.probabilities(answer), test) for answers, test in found] for answer in ANSWERS}


def final(
    learner: Learner, stream: Stream, rows: Sequence[Row], start: Row, config: EvaluationConfig
) -> dict[str, Any]:
    """All of a record that is measured: the matrices of the headline answer, and every metric of every answer."""
    domain, headline = _domain(learner, config), config.answer
    known = {answer: _of_matrix([row[answer] for row in rows], start[answer], stream) for answer in ANSWERS}
    labels = stream.all_test_labels()
    return {
        "accuracy": [row[headline]["accuracy"] for row in rows],
        "task_il": [row[headline]["task_il"] for row in rows],
        **_scored(_answer_all(learner, stream, len(stream.tests)), stream, known, domain, headline),
        "test_share": [float(100 * np.isin(labels, group).mean()) for group in stream.groups()],
    }


def calibrated(
    learner: Learner, stream: Stream, known: Mapping[str, Metrics], config: EvaluationConfig
) -> dict[str, Any]:
    """Every metric of every answer at the learner's temperatures, measured anew.

    But for what only looks at predictions of earlier stages, and is `known`: these are as they were.
    """
    temperatures, found = learner.model.temperatures, _answer_all(learner, stream, len(stream.tests))
    measured = _scored(found, stream, known, _domain(learner, config), config.answer, temperatures)
    for answer, row in measured["answers"].items():
        row["temperature"] = temperatures.get(answer, 1.0)
    return measured


def confidence(learner: Learner, stream: Stream, learnt: int, config: EvaluationConfig) -> dict[str, Any]:
    """After so many tasks, by answer: how far its confidence can be trusted, `raw` and `calibrated`."""
    found, tests = _answer_all(learner, stream, learnt), stream.tests[:learnt]
    domain = _domain(learner, config)

    def scores(answer: Answer, temperatures: Temperatures | None) -> dict[str, float | None]:
        each = [answers.probabilities(answer, domain, temperatures) for answers in found]
        scored = [metrics.Scored(p, test.labels) for p, test in zip(each, tests, strict=True)]
        every = metrics.score(scored, stream.nested)
        return {name: every[name] for name in ("accuracy", "ece", "ece_pooled", "overconfidence", "nll")}

    return {
        "raw": {answer: scores(answer, None) for answer in ANSWERS},
        "calibrated": {answer: scores(answer, learner.model.temperatures) for answer in ANSWERS},
    }


def _scored(
    found: list[Answers],
    stream: Stream,
    known: Mapping[Any, Metrics],
    domain: tuple[int, ...] | None,
    headline: Answer,
    temperatures: Temperatures | None = None,
) -> dict[str, Any]:
    """What a record says of the final answers; `known` are the metrics that do not come from these alone."""
    scored = {a: [answers.probabilities(a, domain, temperatures) for answers in found] for a in ANSWERS}
    pooled = {answer: scored[answer][-1] if stream.nested else np.concatenate(scored[answer]) for answer in ANSWERS}
    labels = stream.all_test_labels()
    gap = metrics.idempotence_gap(pooled["first"], pooled["second"])
    by_answer = {
        answer: {**known[answer], **_of_answers(scored[answer], stream), "idempotence_gap": gap} for answer in ANSWERS
    }
    return {
        "metrics": by_answer[headline],
        "answers": by_answer,
        "reliability": {answer: metrics.reliability(pooled[answer], labels) for answer in ANSWERS},
        "task_mass": {answer: _mass(pooled[answer], stream) for answer in ANSWERS},
    }


def _answer_all(learner: Learner, stream: Stream, count: int) -> list[Answers]:
    """Both answers to the first `count` test sets; nested ones are parts of the last."""
    if not stream.nested:
        return [learner.answers(test.images) for test in stream.tests[:count]]
    whole = learner.answers(stream.tests[count - 1].images)
    return [whole.to_first(len(test)) for test in stream.tests[:count]]


def _of_matrix(rows: list[Row], start: list[float], stream: Stream) -> Metrics:
    """The metrics of accuracies after each task."""
    matrix = [row["accuracy"] for row in rows]
    apart = len(rows) == len(stream.tests) and not stream.nested  # there is a "before" to each task
    before = [start[0], *(row["next"] for row in rows[:-1])] if apart else None
    return {
        "ff": metrics.ff_code(matrix, before),
        "ff_paper": metrics.ff_paper(matrix),
        "bwt": metrics.bwt(matrix),
        "fwt": None if before is None else metrics.fwt(before, start),
        "task_il": None if stream.nested else float(np.mean(rows[-1]["task_il"])),
    }


def _of_answers(scored: list[Probabilities], stream: Stream) -> Metrics:
    """The metrics of the final probabilities."""
    pairs = list(zip(scored, stream.tests, strict=True))
    faa = metrics.faa([[accuracy(p, test) for p, test in pairs]])
    return {"faa": faa} | metrics.score([metrics.Scored(p, test.labels) for p, test in pairs], stream.nested)


def _domain(learner: Learner, config: EvaluationConfig) -> tuple[int, ...] | None:
    return learner.seen if config.classes == "seen" else None


def _mass(probabilities: Probabilities, stream: Stream) -> list[float]:
    """The percentage of all probability mass that each task's classes receive: recency bias, if the last gets most."""
    return [float(100 * probabilities[:, list(group)].sum(1).mean()) for group in stream.groups()]
