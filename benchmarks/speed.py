"""The record of the engine's speed, and the check that it has not become slower.

    python benchmarks/speed.py record cifar100 er+id 500 5   # benchmark, method, memory, seeds: adds to speed.json
    python benchmarks/speed.py check                         # measures again what speed.json has of this device

A measurement is compared by `times_floor`, the time of a step in units of what its arithmetic takes in a large matrix
product, measured in the same process: times drift on shared machines, this ratio less so. The check fails where the
latest record of a case is exceeded by more than 10 %, the best of three measurements counting.
"""

import argparse
import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ider import recipe
from ider.bench import Measurement, measure
from ider.config import EngineConfig
from ider.engine.device import device_name, resolve

RECORDS = Path(__file__).with_name("speed.json")
ALLOWED = 1.10
CASE = ("benchmark", "method", "memory", "seeds", "device", "precision", "capture")


def run(case: dict[str, Any]) -> Measurement:
    """Measure a case: as recorded, or with whatever the engine chooses by itself."""
    config = recipe(case["benchmark"], case["method"], case["memory"])
    chosen = {name: case[name] for name in ("precision", "capture") if name in case}
    engine = dataclasses.replace(config.engine, **chosen)
    return measure(dataclasses.replace(config, seeds=tuple(range(case["seeds"])), engine=engine))


def record(case: dict[str, Any]) -> None:
    """Measure a case and add it to the records."""
    found = {"date": datetime.now(UTC).date().isoformat(), **dataclasses.asdict(run(case))}
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    RECORDS.write_text(json.dumps([*records, found], indent=1) + "\n")
    print(json.dumps(found, indent=1))


def check() -> int:
    """Measure the latest record of each case again where it was made on a device like this one; 1 if one is slower."""
    here, slower = device_name(resolve(EngineConfig())), 0
    latest = {tuple(old[name] for name in CASE): old for old in json.loads(RECORDS.read_text())}
    for old in (old for old in latest.values() if old["device"] == here):
        ratio = min(run(old).times_floor for _ in range(3)) / old["times_floor"]
        slower += ratio > ALLOWED
        print(f"{' '.join(str(old[name]) for name in CASE)}: {ratio:.3f} of the record{' SLOWER' * (ratio > ALLOWED)}")
    return int(slower > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    one = commands.add_parser("record")
    for name, kind in (("benchmark", str), ("method", str), ("memory", int), ("seeds", int)):
        one.add_argument(name, type=kind)
    arguments = vars(parser.parse_args())
    if arguments.pop("command") == "check":
        return check()
    record(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
