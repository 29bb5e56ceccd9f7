"""Folders of runs and comparisons, laid out before the first step, so that what is interrupted can be resumed."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ider.config import RunConfig, as_dict, from_dict, read
from ider.engine.device import resolve
from ider.errors import RunError, UserError
from ider.methods import METHODS as CHOICES
from ider.records import COMPARISON, SCHEMA, SUMMARY, Summary, load_run, read_json, summarise, write_bytes, write_json
from ider.settings import settings, to_toml
from ider.sweeps.runner import Job, Observer, execute

CONFIG, METHODS = "config.toml", "methods.toml"


def start_run(config: RunConfig, folder: Path, observer: Observer) -> Summary:
    """Run every seed of a configuration in `folder`, going on with what is there already."""
    return _carry_out({folder: config}, observer)[0]


def start_comparison(configs: Sequence[RunConfig], folder: Path, observer: Observer) -> list[Summary]:
    """Run several configurations side by side, each in a folder of its own below `folder`."""
    names = [config.recipe for config in configs]
    if len({name.casefold() for name in names}) < len(names):  # folders that differ in case alone may be one
        raise UserError(f"methods are {names}; none may be named twice")
    if (folder / CONFIG).exists():
        raise UserError(f"{folder} holds a single run; choose another --out for a comparison")
    write_bytes(folder / METHODS, to_toml({"methods": names}).encode())
    summaries = _carry_out({folder / config.recipe: config for config in configs}, observer)
    write_json(folder / COMPARISON, {"schema": SCHEMA, "methods": names, "summaries": summaries})
    return summaries


def resume(folder: Path, observer: Observer) -> list[Summary]:
    """Go on with the run or the comparison in `folder` where it was interrupted."""
    if (folder / METHODS).exists():
        names = tomllib.loads((folder / METHODS).read_text(encoding="utf-8"))["methods"]
        return start_comparison([saved_config(folder / name) for name in names], folder, observer)
    return [start_run(saved_config(folder), folder, observer)]


def saved_config(folder: Path) -> RunConfig:
    """The configuration of the run in `folder`."""
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder} holds no run: it has no {CONFIG}")
    return from_dict(read(folder / CONFIG))


def load_summaries(folder: Path) -> list[Summary]:
    """The summaries of a run's or a comparison's folder."""
    if (folder / COMPARISON).exists():
        summaries: list[Summary] = read_json(folder / COMPARISON)["summaries"]
        return summaries
    if (folder / SUMMARY).exists():
        return [read_json(folder / SUMMARY)]
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist")
    raise UserError(f"{folder} holds no finished run (continue an interrupted one with: ider resume {folder})")


def _carry_out(configs: dict[Path, RunConfig], observer: Observer) -> list[Summary]:
    """Lay out the folders, do all jobs of all configurations at once, then summarise each."""
    count = sum(len(config.seeds) for config in configs.values())
    laid = {folder: _lay_out(config, folder, count) for folder, config in configs.items()}
    jobs = [Job(config, seed, folder / f"seed-{seed}") for folder, config in laid.items() for seed in config.seeds]
    try:
        execute(jobs, observer)
    finally:
        for folder in laid:
            if load_run(folder):
                write_json(folder / SUMMARY, summarise(load_run(folder)))
    return [summarise(load_run(folder)) for folder in laid]


def _lay_out(config: RunConfig, folder: Path, runs: int) -> RunConfig:
    """Save the resolved configuration; a folder already in use must have been made by the same one."""
    if (folder / METHODS).exists():
        raise UserError(f"{folder} holds a comparison; choose another --out for a single run")
    if (folder / CONFIG).exists():
        old = saved_config(folder)
        _check_same(old, config, folder)
        engine = replace(old.engine, at_once=config.engine.at_once)
        config = replace(config, engine=engine, seeds=tuple(dict.fromkeys((*old.seeds, *config.seeds))))
    config = replace(config, engine=resolve(config.engine, runs))
    try:
        write_bytes(folder / CONFIG, to_toml(as_dict(config)).encode())
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror}") from error
    return config


def _check_same(old: RunConfig, new: RunConfig, folder: Path) -> None:
    before, after = (_comparable(config) for config in (old, new))
    changed = [
        f"{path}: {before.get(path)} -> {after.get(path)}"
        for path in before | after
        if before.get(path) != after.get(path)
    ]
    if changed:
        raise UserError(
            f"{folder} holds a run with other settings ({'; '.join(changed)}); choose another --out, or delete it"
        )


def _comparable(config: RunConfig) -> dict[str, object]:
    """What makes a run what it is: everything but the seeds and the machine."""
    return {
        path: value
        for path, value, _ in settings(config, CHOICES)
        if path != "seeds" and not path.startswith("engine.")
    }
