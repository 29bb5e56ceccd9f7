"""One run and its record: what it says must follow from the learner's answers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ider import Learner, RunConfig, metrics, recipe
from ider.engine.run import MODEL, run
from ider.records import RECORD
from ider.streams import StreamConfig, build

METRICS = {
    *("faa", "ff", "ff_paper", "bwt", "fwt", "task_il"),
    *("accuracy", "ece", "ece_pooled", "ace", "nll", "brier", "overconfidence"),
    *("aurc", "e_aurc", "auroc_error", "fpr95", "idempotence_gap"),
}


def quick(name: str) -> RunConfig:
    config = recipe("digits", name)
    engine = replace(config.engine, device="cpu", precision="fp32", threads=1)
    return replace(config, train=replace(config.train, epochs=1), net=replace(config.net, width=4), engine=engine)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run(quick("er+id"), 7, folder)
    return folder


def test_the_record_has_every_key(finished: Path) -> None:
    record = json.loads((finished / RECORD).read_text())
    expected = "schema id benchmark method memory seed config provenance classes tasks accuracy task_il metrics answers"
    assert set(expected.split()) <= set(record)
    assert (record["benchmark"], record["method"], record["memory"], record["seed"]) == ("digits", "er+id", 30, 7)
    assert {"version", "revision", "torch", "device", "start", "seconds"} <= set(record["provenance"])
    assert set(record["metrics"]) == METRICS
    assert set(record["answers"]) == {"first", "second", "mean"}
    assert record["answers"]["first"] == record["metrics"]
    assert [len(row) for row in record["accuracy"]] == [1, 2, 3, 4, 5]
    assert record["tasks"] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


@pytest.mark.parametrize("answer", ["first", "second", "mean"])
def test_final_numbers_follow_from_the_saved_model(finished: Path, answer: str) -> None:
    record = json.loads((finished / RECORD).read_text())
    learner, stream = Learner.load(finished / MODEL), build(StreamConfig())
    scored = [learner.predict_proba(test.images, answer) for test in stream.tests]
    right = [100 * np.mean(p.argmax(1) == test.labels) for p, test in zip(scored, stream.tests, strict=True)]
    assert record["answers"][answer]["faa"] == pytest.approx(np.mean(right))
    labels = [test.labels for test in stream.tests]
    assert record["answers"][answer]["ece"] == pytest.approx(metrics.ece_per_task(scored, labels))
    pooled, truth = np.concatenate(scored), np.concatenate(labels)
    assert record["answers"][answer]["ece_pooled"] == pytest.approx(metrics.ece(pooled, truth))
    assert record["task_mass"][answer] == pytest.approx(
        [100 * pooled[:, [c, c + 1]].sum(1).mean() for c in range(0, 10, 2)]
    )
    assert sum(record["task_mass"][answer]) == pytest.approx(100)
    within = [
        100 * np.mean(p[:, c : c + 2].argmax(1) + c == y)
        for p, y, c in zip(scored, labels, range(0, 10, 2), strict=True)
    ]
    assert record["answers"][answer]["task_il"] == pytest.approx(np.mean(within))


def test_a_finished_run_is_read_and_not_run_again(finished: Path) -> None:
    before = (finished / RECORD).stat().st_mtime_ns
    again = run(quick("er+id"), 7, finished, lambda progress: pytest.fail("it trained"))
    assert again == json.loads((finished / RECORD).read_text())
    assert (finished / RECORD).stat().st_mtime_ns == before


def test_joint_has_one_row_and_no_forgetting(tmp_path: Path) -> None:
    record = run(quick("joint"), 0, tmp_path)
    assert [len(row) for row in record["accuracy"]] == [5]
    assert record["metrics"]["ff"] == 0
    assert record["metrics"]["bwt"] is None
    assert record["metrics"]["fwt"] is None


def test_all_classes_as_domain_counts_answers_for_unseen_classes(tmp_path: Path) -> None:
    config = quick("finetune")
    seen = run(config, 0, tmp_path / "seen")
    all_ = run(replace(config, evaluation=replace(config.evaluation, classes="all")), 0, tmp_path / "all")
    assert seen["accuracy"][-1] == all_["accuracy"][-1]  # at the end every class has been seen
    assert all(a <= s for a, s in zip(all_["accuracy"][0], seen["accuracy"][0], strict=True))


def test_the_headline_answer_is_a_choice(tmp_path: Path) -> None:
    config = quick("er+id")
    config = replace(config, evaluation=replace(config.evaluation, answer="second"))
    record = run(config, 7, tmp_path)
    assert record["metrics"] == record["answers"]["second"]
    assert record["metrics"] != record["answers"]["first"]
