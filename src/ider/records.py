"""What a run leaves on disk, read and written in one place: JSON files, replaced atomically.

A run's folder holds ``config.toml``, ``summary.json`` and one ``seed-S/record.json`` a seed; a comparison's folder
holds one such folder a method and ``comparison.json``. Percentages are 0..100; what is undefined is null.
"""

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ider.errors import UserError

SCHEMA = 1
RECORD, SUMMARY, COMPARISON = "record.json", "summary.json", "comparison.json"
ANSWERS = ("first", "second", "mean")

Record = dict[str, Any]
Summary = dict[str, Any]


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content` so that a reader, or a crash, sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # only POSIX lets a folder be opened and synced
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that any reader accepts: floats that are not finite become null."""
    text = json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"
    write_bytes(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read one of this project's JSON files, or say which one is missing or broken."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a readable record: {error}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise UserError(f"{path} has schema {found!r}; this version of ider reads schema {SCHEMA}")
    return content


def summarise(records: Sequence[Record]) -> Summary:
    """Mean, sample standard deviation and count over the seeds of one run."""
    first, calibrated = records[0], _summarise_calibrated(records)
    return {
        "schema": SCHEMA,
        **{key: first[key] for key in ("benchmark", "method", "memory", "config")},
        "seeds": [record["seed"] for record in records],
        "provenance": {
            **first["provenance"],
            "seconds": sum(record["provenance"]["seconds"] for record in records),
        },
        "metrics": _spread([record["metrics"] for record in records]),
        "answers": {answer: _spread([record["answers"][answer] for record in records]) for answer in ANSWERS},
        **({"calibrated": calibrated} if calibrated else {}),
    }


def _summarise_calibrated(records: Sequence[Record]) -> dict[str, Any]:
    """By calibrator the same of the calibrated answers, over the seeds that it was applied to."""
    each = [record.get("calibrated", {}) for record in records]
    found = {name: [entries[name] for entries in each if name in entries] for some in each for name in some}
    return {
        name: {
            "calibrator": entries[0]["calibrator"],
            "metrics": _spread([entry["metrics"] for entry in entries]),
            "answers": {answer: _spread([entry["answers"][answer] for entry in entries]) for answer in ANSWERS},
            "withheld": entries[0]["withheld"],
            "held_out": mean_std([entry["history"][-1]["held_out"] for entry in entries]),
        }
        for name, entries in found.items()
    }


def side_by_side(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records or summaries, each followed by one for each calibrator, which is named as its `calibration`."""
    found = []
    for result in results:
        found.append(result)
        for name, entry in result.get("calibrated", {}).items():
            found.append({**result, **entry, "calibration": name, "calibrated": {}})
    return found


def load_run(folder: Path) -> list[Record]:
    """The finished records of a run's folder, by seed."""
    found = [read_json(path) for path in folder.glob(f"seed-*/{RECORD}")]
    return sorted(found, key=lambda record: int(record["seed"]))


def load_records(folder: Path) -> dict[str, list[Record]]:
    """The records of a run's or a comparison's folder, by method, in the order in which they were asked for."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    if (folder / COMPARISON).exists():
        names: Iterable[str] = read_json(folder / COMPARISON)["methods"]
        found = {name: load_run(folder / name) for name in names}
    else:
        records = load_run(folder)
        found = {records[0]["method"]: records} if records else {}
    found = {name: records for name, records in found.items() if records}
    if not found:
        raise UserError(f"{folder} holds no finished record (continue an interrupted run with: ider resume {folder})")
    return found


def _spread(metrics: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, float | int | None]]:
    return {name: mean_std([row[name] for row in metrics]) for name in metrics[0]}


def mean_std(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Mean, sample standard deviation and number of the values that are known."""
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
        "n": len(known),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
