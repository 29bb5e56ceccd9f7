"""A summary is the mean, the sample standard deviation and the count over seeds of every metric."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ider.records import ANSWERS, SCHEMA, Record, summarise

METRICS = ("faa", "ff", "ece")
numbers = st.none() | st.floats(-1e6, 1e6)
rows = st.fixed_dictionaries(dict.fromkeys(METRICS, numbers))


def record_of(seed: int, metrics: dict[str, Any], answers: dict[str, Any] | None = None, **more: Any) -> Record:
    return {
        "schema": SCHEMA,
        "benchmark": "digits",
        "method": "er",
        "memory": 30,
        "seed": seed,
        "config": {"recipe": "er"},
        "provenance": {"version": "1", "device": "cpu", "seconds": 1.5 + seed},
        "metrics": metrics,
        "answers": answers or dict.fromkeys(ANSWERS, metrics),
        "history": [{"loss": 1.0}],
        **more,
    }


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(rows, rows, rows, rows), min_size=1, max_size=6))
def test_mean_deviation_and_count_are_those_of_numpy_without_what_is_undefined(drawn):
    records = [
        record_of(seed, metrics, dict(zip(ANSWERS, answers, strict=True)))
        for seed, (metrics, *answers) in enumerate(drawn)
    ]
    summary = summarise(records)
    pairs = [(summary["metrics"], [record["metrics"] for record in records])]
    pairs += [(summary["answers"][answer], [record["answers"][answer] for record in records]) for answer in ANSWERS]
    for found, expected in pairs:
        assert set(found) == set(METRICS)
        for name in METRICS:
            known = np.array([row[name] for row in expected if row[name] is not None])
            assert set(found[name]) == {"mean", "std", "n"}
            assert found[name]["n"] == len(known)
            if len(known):
                assert found[name]["mean"] == pytest.approx(known.mean(), rel=1e-9, abs=1e-9)
            else:
                assert found[name]["mean"] is None
            if len(known) > 1:
                assert found[name]["std"] == pytest.approx(known.std(ddof=1), rel=1e-6, abs=1e-8)
            else:
                assert found[name]["std"] is None


def test_numbers_by_hand():
    records = [
        record_of(seed, {"faa": faa, "fwt": fwt}) for seed, faa, fwt in ((0, 1.0, None), (1, 2.0, 5.0), (2, 6.0, None))
    ]
    found = summarise(records)["metrics"]
    assert found["faa"] == {"mean": 3.0, "std": pytest.approx(math.sqrt(7)), "n": 3}
    assert found["fwt"] == {"mean": 5.0, "std": None, "n": 1}


def test_equal_numbers_have_no_deviation():
    found = summarise([record_of(seed, {"faa": 0.1}) for seed in range(3)])["metrics"]["faa"]
    assert (found["mean"], found["std"]) == (pytest.approx(0.1, abs=1e-15), 0.0)


def test_the_rest_is_what_the_runs_share_with_seeds_and_seconds_of_all():
    records = [record_of(seed, {"faa": 1.0}) for seed in (3, 1)]
    summary = summarise(records)
    assert {name: summary[name] for name in ("schema", "benchmark", "method", "memory", "config")} == {
        "schema": SCHEMA,
        "benchmark": "digits",
        "method": "er",
        "memory": 30,
        "config": {"recipe": "er"},
    }
    assert summary["seeds"] == [3, 1]
    assert summary["provenance"] == {"version": "1", "device": "cpu", "seconds": 4.5 + 2.5}
    assert records[0]["provenance"]["seconds"] == 4.5
    assert set(summary) == {
        *("schema", "benchmark", "method", "memory", "config", "seeds", "provenance", "metrics", "answers")
    }


def test_an_answer_has_numbers_of_its_own():
    answers = {"first": {"faa": 1.0}, "second": {"faa": 2.0}, "mean": {"faa": 3.0}}
    summary = summarise([record_of(0, {"faa": 1.0}, answers)])
    assert {answer: summary["answers"][answer]["faa"]["mean"] for answer in ANSWERS} == {
        "first": 1.0,
        "second": 2.0,
        "mean": 3.0,
    }
