"""The command line: every command parses, calls the library and prints; none of them computes."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ider import cli_data, cli_methods
from ider.analysis.by_task import by_task_table
from ider.analysis.render import to_csv, to_latex, to_markdown, to_rich
from ider.analysis.tables import answers_table, calibration_notes, calibration_table, comparison_table, run_table
from ider.calibration import CALIBRATORS
from ider.cli_methods import first_line, typed
from ider.config import EngineConfig, RunConfig, as_dict, read
from ider.console import guarded, main, out, say, show_rows
from ider.data import datasets
from ider.engine.device import resolve
from ider.errors import UserError, unknown
from ider.methods import METHODS
from ider.progress import Display
from ider.recipes import BENCHMARKS, recipe, recipes
from ider.records import Summary, load_records
from ider.settings import overlay, override, override_all, settings, to_toml
from ider.streams import build
from ider.sweeps import calibration, folders

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback(epilog="Start with: ider compare --methods er,er+id")(main)
app.add_typer(cli_data.app, name="data")
app.command("check-method", epilog="Example: ider check-method my_method.py:MyMethod")(cli_methods.check_method)

Benchmark = Annotated[
    str | None, typer.Option("--benchmark", "-b", help=r"The stream of tasks \[digits] (see: ider list benchmarks).")
]
Data = Annotated[str | None, typer.Option(help="Your own data: folder:PATH (a folder a class) or npz:PATH.")]
Tasks = Annotated[int | None, typer.Option(help=r"Number of tasks \[the benchmark's].")]
DataDir = Annotated[str | None, typer.Option(help=r"Folder of the datasets \[$IDER_DATA, then the user's cache].")]
Memory = Annotated[int | None, typer.Option(help=r"Slots of the memory \[the benchmark's first published size].")]
Seeds = Annotated[str | None, typer.Option(help=r"Seeds, such as 0,1,2 \[0].")]
NumSeeds = Annotated[int | None, typer.Option(min=1, help="Seeds 0 to N-1.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over each task; the learning-rate schedule scales along.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Any setting (see: ider list settings); repeatable."),
]
Device = Annotated[str | None, typer.Option(help=r"auto, cpu or cuda \[auto].")]
Precision = Annotated[str | None, typer.Option(help=r"auto, fp32 or bf16 \[auto].")]
Capture = Annotated[str | None, typer.Option(help=r"off, compile or graph \[auto: graph on a GPU].")]
Calibrate = Annotated[
    str | None, typer.Option(help="Calibrate after every task: temperature, rc or t-cil (see: ider list calibrators).")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help=r"Folder for the results \[below runs/].")]
Folder = Annotated[Path, typer.Argument(help="Folder of a run or a comparison.")]


@app.command(epilog="Example: ider run --method er+id --memory 30 --num-seeds 3 --set train.lr=0.05")
@guarded
def run(
    benchmark: Benchmark = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method", "-m", help=r"A method or recipe \[er+id] (see: ider list recipes), or your own: FILE.py:CLASS."
        ),
    ] = None,
    data: Data = None,
    tasks: Tasks = None,
    memory: Memory = None,
    seeds: Seeds = None,
    num_seeds: NumSeeds = None,
    epochs: Epochs = None,
    set_: Set = None,
    device: Device = None,
    precision: Precision = None,
    capture: Capture = None,
    data_dir: DataDir = None,
    calibrate: Calibrate = None,
    out_: Out = None,
    config: Annotated[
        Path | None, typer.Option(help="A configuration (TOML), or the record of a run to repeat (JSON).")
    ] = None,
) -> None:
    """Take one method through a benchmark, with one or more seeds."""
    if config is None:
        base = recipe(_benchmark(benchmark, data), typed(method or "er+id"), memory)
    elif benchmark or data or (method and not cli_methods.in_a_file(method)):
        raise UserError("--config says which benchmark and method; leave out --benchmark, --data and --method")
    else:
        typed(method or "er+id")  # the file of the method that the configuration names
        base = _from_file(config, memory)
    assignments = _assignments(tasks, epochs, (device, precision, capture), data_dir, calibrate) + (set_ or [])
    chosen = _adjusted(base, assignments, _seeds(seeds, num_seeds))
    folder = out_ or Path("runs") / f"{_folder_name(chosen)}-{chosen.recipe}"
    resolved = replace(chosen, engine=resolve(chosen.engine, len(chosen.seeds)))
    _prepare([chosen])
    say(to_toml(as_dict(resolved)))
    with Display(out, len(chosen.seeds)) as display:
        summary = folders.start_run(chosen, folder, display)
    _report([summary], folder)


@app.command(epilog="Example: ider compare --methods finetune,er,er+id --memory 30 --num-seeds 5")
@guarded
def compare(
    benchmark: Benchmark = None,
    methods: Annotated[
        str, typer.Option("--methods", "-m", help="Methods, recipes or FILE.py:CLASS, separated by commas.")
    ] = "finetune,er,er-matched,er+id,joint",
    data: Data = None,
    tasks: Tasks = None,
    memory: Memory = None,
    seeds: Seeds = None,
    num_seeds: NumSeeds = None,
    epochs: Epochs = None,
    set_: Set = None,
    device: Device = None,
    precision: Precision = None,
    capture: Capture = None,
    data_dir: DataDir = None,
    calibrate: Calibrate = None,
    out_: Out = None,
) -> None:
    """Take several methods through the same benchmark with the same seeds, and set them side by side."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise UserError("--methods names no method")
    bases = [recipe(_benchmark(benchmark, data), typed(name), memory) for name in names]
    assignments = _assignments(tasks, epochs, (device, precision, capture), data_dir, calibrate) + (set_ or [])
    chosen = [_adjusted(base, assignments, _seeds(seeds, num_seeds)) for base in bases]
    folder = out_ or Path("runs") / _folder_name(chosen[0])
    _prepare(chosen)
    with Display(out, sum(len(config.seeds) for config in chosen)) as display:
        summaries = folders.start_comparison(chosen, folder, display)
    _report(summaries, folder)


@app.command(epilog="Example: ider bench --benchmark cifar100 --method er+id --num-seeds 5")
@guarded
def bench(
    benchmark: Benchmark = None,
    method: Annotated[str, typer.Option("--method", "-m", help="A method, a recipe or FILE.py:CLASS.")] = "er+id",
    memory: Memory = None,
    num_seeds: NumSeeds = None,
    set_: Set = None,
    device: Device = None,
    precision: Precision = None,
    capture: Capture = None,
    seconds: Annotated[float, typer.Option(min=0, help="How long to measure, after warming up.")] = 5.0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how fast a method trains here, on random images of a benchmark's shape; no data is needed."""
    from ider.bench import measure  # what counts operations takes a while to import

    base = recipe(_benchmark(benchmark, None), typed(method), memory)
    assignments = _assignments(None, None, (device, precision, capture), None) + (set_ or [])
    found = measure(_adjusted(base, assignments, _seeds(None, num_seeds)), seconds)
    if json_:
        typer.echo(json.dumps(asdict(found), indent=1))
    else:
        values = {item: getattr(found, item.name) for item in fields(found)}
        texts = {item: f"{value:,.3f}" if isinstance(value, float) else value for item, value in values.items()}
        rows = [{"measured": i.name, "value": text, "what it is": i.metadata["help"]} for i, text in texts.items()]
        show_rows(rows)


@app.command(epilog="Example: ider resume runs/digits-m30")
@guarded
def resume(folder: Folder, method: cli_methods.Files = None) -> None:
    """Go on with an interrupted run or comparison; its results are those of an uninterrupted one."""
    cli_methods.run_files(method or [])
    names = (
        [folder]
        if (folder / folders.CONFIG).exists()
        else sorted(path.parent for path in folder.glob(f"*/{folders.CONFIG}"))
    )
    with Display(out, sum(len(folders.saved_config(name).seeds) for name in names)) as display:
        summaries = folders.resume(folder, display)
    _report(summaries, folder)


@app.command(epilog="Example: ider calibrate runs/digits-m30 --with temperature")
@guarded
def calibrate(
    folder: Folder,
    with_: Annotated[str, typer.Option("--with", help="temperature, rc or t-cil.")],
    set_: Set = None,
    device: Device = None,
    data_dir: DataDir = None,
    method: cli_methods.Files = None,
) -> None:
    """Calibrate a finished run or comparison: its confidence changes, its predictions do not."""
    cli_methods.run_files(method or [])
    engine = EngineConfig(device=device) if device else None  # type: ignore[arg-type]  # resolved, or refused there
    _report(calibration.calibrate(folder, calibration.chosen(with_, set_ or []), data_dir, engine), folder)


@app.command(epilog="Example: ider show runs/digits-m30 --format latex")
@guarded
def show(
    folder: Folder,
    format_: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
) -> None:
    """Print the tables of a finished run or comparison."""
    writers: dict[str, Callable[[Any], str]] = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}
    if format_ not in {"text", *writers}:
        raise unknown("format", format_, ["text", *writers])
    for table in _tables(folders.load_summaries(folder), folder):
        if format_ == "text":
            out.print(to_rich(table))
        else:
            typer.echo(writers[format_](table))


@app.command(epilog="Example: ider plot runs/digits-m30")
@guarded
def plot(
    folder: Folder,
    formats: Annotated[str, typer.Option(help="File formats, separated by commas.")] = "png,pdf",
) -> None:
    """Draw the figures of a finished run or comparison."""
    from ider.analysis.figures import draw_all  # matplotlib takes a while to import

    for path in draw_all(folder, tuple(formats.split(","))):
        typer.echo(path)


@app.command("list", epilog="Example: ider list settings --method er+id")
@guarded
def list_(
    what: Annotated[str, typer.Argument(help="methods, benchmarks, recipes, calibrators or settings.")],
    benchmark: Benchmark = None,
    method: Annotated[str, typer.Option("--method", "-m", help="Whose settings (may be FILE.py:CLASS).")] = "er+id",
    data_dir: DataDir = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the methods, benchmarks, recipes, calibrators, or all settings of a recipe."""
    method = typed(method)
    listings: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "methods": cli_methods.listed,
        "benchmarks": lambda: _benchmarks(data_dir),
        "recipes": lambda: _recipes(benchmark),
        "calibrators": _calibrators,
        "settings": lambda: _settings(recipe(benchmark or "digits", method)),
    }
    if what not in listings:
        raise unknown("listing", what, listings)
    rows = listings[what]()
    typer.echo(json.dumps(rows, indent=1)) if json_ else show_rows(rows)


def _benchmark(name: str | None, data: str | None) -> str:
    if name and data:
        raise UserError("--data makes a benchmark of your own data; leave out --benchmark")
    if data and ":" not in data:
        raise UserError(f"--data is {data!r}; it takes folder:PATH or npz:PATH, such as folder:{data}")
    return data or name or "digits"


def _prepare(configs: Sequence[RunConfig]) -> None:
    """Read the data before anything is written: what is wrong with it leaves no folder, and it is decoded only once."""
    for stream, data_dir in {(config.stream, config.engine.data_dir) for config in configs}:
        build(stream, data_dir)


def _folder_name(config: RunConfig) -> str:
    """A default name below runs/: the benchmark (of the user's own data the last part of its path) and the memory."""
    name = Path(config.benchmark.partition(":")[2]).stem if ":" in config.benchmark else config.benchmark
    return f"{name or 'data'}-m{config.memory.size}"


def _from_file(path: Path, memory: int | None) -> RunConfig:
    """The configuration in a file, on top of the recipe that it names."""
    content = read(path)
    base = recipe(str(content.get("benchmark", "digits")), _named(content))
    config = overlay(base, content, METHODS)
    return config if memory is None else override(config, f"memory.size={memory}", METHODS)


def _named(content: dict[str, Any]) -> str:
    """The recipe that a configuration is laid over: of a method that has none, the method itself."""
    method = content.get("method")
    name = str(method.get("name")) if isinstance(method, dict) else ""
    return name if name and name not in METHODS.own else str(content.get("recipe", "er+id"))


def _assignments(
    tasks: int | None,
    epochs: int | None,
    engine: tuple[str | None, str | None, str | None],
    data_dir: str | None,
    calibrator: str | None = None,
) -> list[str]:
    """The options that stand for a setting; `engine`: device, precision, capture."""
    device, precision, capture = engine
    short = {
        "stream.tasks": tasks,
        "train.epochs": epochs,
        "engine.device": device,
        "engine.precision": precision,
        "engine.capture": capture,
        "engine.data_dir": data_dir,
        "calibration.name": calibrator,
    }
    return [f"{path}={value}" for path, value in short.items() if value is not None]


def _adjusted(config: RunConfig, assignments: Iterable[str], seeds: tuple[int, ...] | None) -> RunConfig:
    config = override_all(config, assignments, METHODS)
    return config if seeds is None else replace(config, seeds=seeds)


def _seeds(listed: str | None, count: int | None) -> tuple[int, ...] | None:
    if listed is not None and count is not None:
        raise UserError("give --seeds or --num-seeds, not both")
    if count is not None:
        return tuple(range(count))
    try:
        return None if listed is None else tuple(int(seed) for seed in listed.split(","))
    except ValueError:
        raise UserError(f"--seeds is {listed!r}; it takes whole numbers separated by commas, such as 0,1,2") from None


def _report(summaries: Sequence[Summary], folder: Path) -> None:
    """The tables, the figures, and where everything is."""
    from ider.analysis.figures import draw_all  # matplotlib takes a while to import

    for table in _tables(summaries, folder):
        out.print(to_rich(table))
    for note in calibration_notes(summaries):
        say(note)
    draw_all(folder)
    say(f"Records in {folder}, figures in {folder / 'figures'}")


def _tables(summaries: Sequence[Summary], folder: Path) -> list[Any]:
    first = comparison_table(summaries) if len(summaries) > 1 else run_table(summaries[0])
    calibrated = [calibration_table(summaries)] if any(summary.get("calibrated") for summary in summaries) else []
    return [first, answers_table(summaries), *calibrated, by_task_table(load_records(folder))]


def _calibrators() -> list[dict[str, Any]]:
    own = {name: list(settings(found, CALIBRATORS))[1:] for name, found in CALIBRATORS.items()}
    return [
        {
            "calibrator": name,
            "what it is": first_line(found),
            "settings": " ".join(f"{path}={value}" for path, value, _ in own[name]) or "none",
        }
        for name, found in CALIBRATORS.items()
    ]


def _benchmarks(data_dir: str | None) -> list[dict[str, Any]]:
    folder = Path(data_dir) if data_dir else None
    here = {name: datasets.status(name, folder).path is not None for name in datasets.DATASETS}
    rows = []
    for name, known in BENCHMARKS.items():
        data = known.base.stream.data
        where = "here" if here[data] else f"ider data fetch {data}"
        memories = ", ".join(map(str, known.memories))
        rows.append({"benchmark": name, "what it is": known.description, "memory": memories, "data": where})
    return rows


def _recipes(benchmark: str | None) -> list[dict[str, Any]]:
    if benchmark is not None and benchmark not in BENCHMARKS:
        raise unknown("benchmark", benchmark, BENCHMARKS)
    names = [benchmark] if benchmark else list(BENCHMARKS)
    sizes = [(name, size) for name in names for size in BENCHMARKS[name].memories]
    return [
        {
            "benchmark": name,
            "recipe": config.recipe,
            "memory": size,
            "source": BENCHMARKS[name].table(size)[config.recipe].source,
            "epochs": config.train.epochs,
            "lr": config.train.lr,
            "policy": config.memory.policy,
            "method": cli_methods.described(config.method),
        }
        for name, size in sizes
        for config in recipes(name, size).values()
    ]


def _settings(config: RunConfig) -> list[dict[str, Any]]:
    return [{"setting": path, "value": value, "what it is": text} for path, value, text in settings(config, METHODS)]
