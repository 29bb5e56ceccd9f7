"""Calibrated answers in summaries, tables and figures: beside the raw ones, and nothing where there are none."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ider.analysis import figures, tables
from ider.records import ANSWERS, Record, side_by_side, summarise

Maker = Callable[..., Record]


def calibrated(record: Record, **by_name: dict[str, float]) -> Record:
    """The record with an entry for each calibrator, whose answers have other metrics."""
    entries: dict[str, Any] = {}
    for name, metrics in by_name.items():
        answers = {answer: record["answers"][answer] | metrics for answer in ANSWERS}
        entries[name.replace("_", "-")] = {
            "calibrator": {"name": name},
            "temperatures": dict.fromkeys(ANSWERS, metrics["temperature"]),
            "withheld": 250,
            "history": [{"held_out": 128}],
            "metrics": answers["first"],
            "answers": answers,
            "reliability": record["reliability"],
            "task_mass": record["task_mass"],
        }
    return record | {"calibrated": entries}


def texts(table: tables.Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


@pytest.fixture
def records(make_record: Maker) -> Sequence[Record]:
    seeds = [make_record("er+id", seed, ece=6.0 + seed, overconfidence=-4.0) for seed in range(2)]
    return [
        calibrated(record, rc={"ece": 4.0 + 2 * seed, "overconfidence": 0.5, "temperature": 0.7 + 0.2 * seed})
        for seed, record in enumerate(seeds)
    ]


def test_a_summary_spreads_the_calibrated_metrics_over_the_seeds(records: Sequence[Record]) -> None:
    found = summarise(records)["calibrated"]["rc"]
    assert found["metrics"]["ece"] == {"mean": 5.0, "std": pytest.approx(2**0.5), "n": 2}
    assert found["answers"]["second"]["temperature"]["mean"] == pytest.approx(0.8)
    assert (found["withheld"], found["held_out"]["mean"]) == (250, 128)
    assert found["calibrator"] == {"name": "rc"}


def test_a_seed_that_is_not_calibrated_does_not_count(records: Sequence[Record], make_record: Maker) -> None:
    found = summarise([*records, make_record("er+id", 2)])
    assert found["metrics"]["ece"]["n"] == 3
    assert found["calibrated"]["rc"]["metrics"]["ece"]["n"] == 2
    assert "calibrated" not in summarise([make_record("er")])


def test_each_calibrator_follows_the_raw_numbers(records: Sequence[Record], make_record: Maker) -> None:
    found = side_by_side([records[0], make_record("er")])
    assert [(each["method"], each.get("calibration")) for each in found] == [
        ("er+id", None),
        ("er+id", "rc"),
        ("er", None),
    ]
    assert [each["metrics"]["ece"] for each in found] == [6.0, 4.0, 5.0]


def test_the_comparison_shows_both_and_marks_the_best_of_all(records: Sequence[Record], make_record: Maker) -> None:
    joint = calibrated(make_record("joint", at_once=True, ece=0.5), rc={"ece": 0.4, "temperature": 1.0})
    table = tables.comparison_table([summarise([joint]), summarise(records), summarise([make_record("er")])])
    assert [row[0] for row in texts(table)] == ["er+id", "er+id, rc", "er", "joint (ceiling)", "joint, rc (ceiling)"]
    assert [row[3] for row in texts(table)] == ["6.50 ± 0.71", "5.00 ± 1.41", "5.00", "0.50", "0.40"]
    assert [row[3].best for row in table.rows] == [False, True, True, False, False]
    assert table.rules == (3,)


def test_the_table_of_calibration_has_every_answer_and_its_temperature(
    records: Sequence[Record], make_record: Maker
) -> None:
    table = tables.calibration_table([summarise(records), summarise([make_record("er")])])
    assert [heading.text for heading in table.header] == [
        "Method", "Answer", "ECE (%) ↓", "Overconfidence (points) →0", "NLL (nats) ↓", "T",
    ]  # fmt: skip
    assert [row[:2] for row in texts(table)] == [
        ["er+id", "first *"], ["", "second"], ["", "mean"], ["er+id, rc", "first *"], ["", "second"], ["", "mean"],
    ]  # fmt: skip
    assert texts(table)[0][-1] == "–"
    assert texts(table)[3][3:] == ["+0.50 ± 0.00", "0.700 ± 0.000", "0.80 ± 0.14"]


def test_the_answers_table_and_a_run_in_full_stay_raw(records: Sequence[Record]) -> None:
    summary = summarise(records)
    assert len(tables.answers_table([summary]).rows) == 3
    assert len(tables.run_table(summary).rows) == len(tables.METRICS)


def test_what_it_cost_is_said(records: Sequence[Record], make_record: Maker) -> None:
    (note,) = tables.calibration_notes([summarise(records), summarise([make_record("er")])])
    assert note.startswith("rc: at the end fitted with 128 images from outside the memory; 250 of")
    assert tables.calibration_notes([summarise([make_record("er")])]) == []


def test_that_it_cost_nothing_is_said_in_words() -> None:
    entry = {"held_out": {"mean": 0.0}, "withheld": 0}
    (note,) = tables.calibration_notes([{"method": "er", "calibrated": {"temperature": entry}}])
    assert note == "temperature: at the end fitted on the memory alone; none of the training images were held out"


def test_methods_that_paid_differently_are_named() -> None:
    entry = {"held_out": {"mean": 128.0}, "withheld": 248}
    other = {"held_out": {"mean": 248.0}, "withheld": 248}
    costs = {"er": entry, "er+id": entry, "joint": other}
    notes = tables.calibration_notes([{"method": name, "calibrated": {"rc": cost}} for name, cost in costs.items()])
    assert [note.split(" images")[0] for note in notes] == [
        "rc of er, er+id: at the end fitted with 128",
        "rc of joint: at the end fitted with 248",
    ]


def test_the_reliability_diagram_has_a_panel_for_each_as_long_as_there_is_room(
    records: Sequence[Record], make_record: Maker
) -> None:
    runs = {"er+id": records, "er": [make_record("er")]}
    titles = [axes.get_title() for axes in figures.reliability_diagram(runs).axes if axes.get_title()]
    assert [title.splitlines()[0] for title in titles] == ["er+id", "er+id, rc", "er"]
    assert titles[1].splitlines()[1] == "ECE 5.0 %, over +0.5"
    many = {f"er{number}": records for number in range(9)}
    titles = [axes.get_title() for axes in figures.reliability_diagram(many).axes if axes.get_title()]
    assert len(titles) == 9
