"""Calibrate what is finished: every seed of a run or of a comparison, from its saved learners."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ider.calibration import CALIBRATORS, Calibrator
from ider.config import EngineConfig, RunConfig, check_calibration, from_dict
from ider.engine import calibrated
from ider.engine.learner import Learner
from ider.engine.run import MODEL
from ider.engine.sight import named
from ider.errors import UserError, unknown
from ider.methods.files import digest_of
from ider.records import COMPARISON, RECORD, SCHEMA, SUMMARY, Record, Summary, load_records, summarise, write_json
from ider.settings import name_of, override_all
from ider.streams import Stream, build
from ider.sweeps.folders import saved_config

CHANGED = 0.5
"""Points of accuracy by which a saved learner may differ from its record: another device rounds otherwise."""


def chosen(name: str, assignments: Sequence[str] = ()) -> Calibrator:
    """A calibrator by name, with settings of its own (such as `calibration.later=1`)."""
    if name == "none":
        raise unknown("calibrator", name, [other for other in CALIBRATORS if other != name])
    paths = [text.strip() for text in assignments]
    for path in paths:
        if not path.startswith("calibration."):
            raise UserError(f"--set {path}: of a finished run only settings of the calibrator can be chosen")
    return override_all(named(name), [path.removeprefix("calibration.") for path in paths], CALIBRATORS)


def calibrate(
    folder: Path, calibrator: Calibrator, data_dir: str | None = None, engine: EngineConfig | None = None
) -> list[Summary]:
    """Calibrate every finished seed, write that into its record and its learner, and summarise anew."""
    found = load_records(folder)
    several = (folder / COMPARISON).exists()
    runs = {folder / name if several else folder: records for name, records in found.items()}
    for run in runs:
        _check(saved_config(run), calibrator, run)
    streams, summaries = cache(build), []
    for run, records in runs.items():
        config = saved_config(run)
        stream = streams(config.stream, config.engine.data_dir if data_dir is None else data_dir)
        done = [_calibrate(run / f"seed-{record['seed']}", record, (calibrator, stream, engine)) for record in records]
        summaries.append(summarise(done))
        write_json(run / SUMMARY, summaries[-1])
    if several:
        write_json(folder / COMPARISON, {"schema": SCHEMA, "methods": list(found), "summaries": summaries})
    return summaries


def _check(config: RunConfig, calibrator: Calibrator, run: Path) -> None:
    check_calibration(config, calibrator)
    if calibrator.hold_out and not config.stream.hold_out:
        name, where = name_of(calibrator, CALIBRATORS), getattr(calibrator, "on", "")
        on = f" (calibration.on={where})" if where else ""
        raise UserError(
            f"{run} held no images out, and {name}{on} calibrates on such: run it again with "
            f"--set stream.hold_out={calibrator.hold_out:g}; temperature on the memory needs none"
        )


def _calibrate(folder: Path, record: Record, means: tuple[Calibrator, Stream, EngineConfig | None]) -> Record:
    """The learner is written before the record: if that is interrupted, it is done again."""
    calibrator, stream, engine = means
    config = from_dict(record["config"])
    if digest_of(config.method) != record["provenance"].get("method_sha256"):
        raise UserError(f"{folder} was learnt with another state of the file that its method is in; name that one")
    stream = stream.validating() if config.evaluation.on == "held-out" else stream
    learner = Learner.load(folder / MODEL, engine)
    stage = calibrated.stage(learner, calibrator, stream, config)
    for answer, now in stage["raw"].items():
        then = record["answers"][answer]["accuracy"]
        if abs(now["accuracy"] - then) > CHANGED:
            raise UserError(
                f"{folder}: the saved learner is right in {now['accuracy']:.2f} % of the test images, its record says "
                f"{then:.2f} %; is the data the same?"
            )
    entry = calibrated.entry(learner, calibrator, stream, [stage], record["answers"], config)
    calibrated.write_temperatures(folder / MODEL, learner.model.temperatures)
    done = record | {"calibrated": record.get("calibrated", {}) | entry}
    write_json(folder / RECORD, done)
    return done
