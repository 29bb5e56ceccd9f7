"""A run on a stream whose test sets are nested: what its record says must follow from the saved learner."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ider import Learner, metrics, recipe
from ider.config import EngineConfig, RunConfig
from ider.engine.run import MODEL, run
from ider.records import RECORD
from ider.streams import StreamConfig, build
from ider.streams.gcil import Sampler


@pytest.fixture(scope="module")
def config() -> RunConfig:
    base = recipe("digits", "er+id")
    stream = StreamConfig(data="digits", kind="gcil", tasks=4, gcil=Sampler(samples=100, most_classes=4))
    engine = EngineConfig(device="cpu", precision="fp32", threads=1)
    train = replace(base.train, epochs=2, drop_last=True)
    return replace(base, stream=stream, engine=engine, train=train, net=replace(base.net, width=4))


def test_the_record_scores_nested_tests_as_published(config: RunConfig, tmp_path: Path) -> None:
    record = run(config, 0, tmp_path)
    assert record == json.loads((tmp_path / RECORD).read_text())
    learner, stream = Learner.load(tmp_path / MODEL), build(config.stream)
    scored = [learner.predict_proba(test.images) for test in stream.tests]
    right = [100 * np.mean(p.argmax(1) == test.labels) for p, test in zip(scored, stream.tests, strict=True)]
    assert record["accuracy"][-1] == pytest.approx(right)
    assert record["metrics"]["faa"] == pytest.approx(np.mean(right))
    assert record["metrics"]["accuracy"] == pytest.approx(right[-1])
    labels = [test.labels for test in stream.tests]
    assert record["metrics"]["ece"] == pytest.approx(metrics.ece_per_task(scored, labels))
    assert record["metrics"]["ece_pooled"] == pytest.approx(metrics.ece(scored[-1], labels[-1]))
    assert record["metrics"]["task_il"] is None
    assert record["metrics"]["fwt"] is None
    assert sum(record["test_share"]) == pytest.approx(100)
    assert sum(record["task_mass"]["first"]) == pytest.approx(100)


def test_the_stream_is_the_same_for_every_method_and_seed(config: RunConfig, tmp_path: Path) -> None:
    joint = replace(config, method=recipe("digits", "joint").method)
    tasks = [
        run(each, seed, tmp_path / f"{name}{seed}")["tasks"]
        for name, each in (("a", config), ("b", joint))
        for seed in (0, 1)
    ]
    assert all(found == tasks[0] for found in tasks)
