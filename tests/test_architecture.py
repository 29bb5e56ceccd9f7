"""What the design promises of the source as a whole: direction of imports, light imports, short files, public names."""

import ast
import dataclasses
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import ider

PACKAGE = Path(ider.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}

# From the bottom to the top: what stands in a line imports only from the lines above it, or from itself.
LAYERS = (
    ("errors", "version"),
    ("options", "types"),
    ("protocols",),
    ("calibration", "losses", "meanwhile", "metrics", "randomness", "records", "settings"),
    ("data", "memory", "methods", "nets"),
    ("streams",),
    ("config",),
    ("engine",),
    ("recipes",),
    ("sweeps", "bench", "contract"),
    ("console", "progress"),
    ("cli_data", "cli_methods"),
    ("cli",),
)
HEIGHT = {unit: height for height, units in enumerate(LAYERS) for unit in units}
ANALYSIS_IMPORTS = {"analysis", "errors", "metrics", "records"}
PUBLIC = [
    "METHODS",
    "Learner",
    "LearnerConfig",
    "RunConfig",
    "RunError",
    "Stream",
    "Task",
    "UserError",
    "__version__",
    "gcil",
    "recipe",
    "split",
]
BARRED = (
    *("typer", "click", "rich", "matplotlib", "PIL", "pooch", "sklearn", "pandas", "scipy", "requests", "tqdm"),
    *("tensorboard", "mlflow", "ray", "avalanche", "torchvision", "torchmetrics", "pydantic", "yaml"),
)


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def unit_of(path: Path) -> str:
    """The folder or file directly below the package; "" for the package itself."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py").replace("__init__", "")


def imports_of(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, wherever in the file it does so."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def units_imported(path: Path) -> set[str]:
    """The units of this package that a file imports; "" for the package itself."""
    known = {unit_of(file) for file in FILES}
    names = (name for name in imports_of(path) if name.split(".")[0] == "ider")
    seconds = {[*name.split("."), ""][1] for name in names}
    return {second if second in known else "" for second in seconds}


def python(code: str) -> str:
    """What a fresh interpreter prints for this code, with nothing but this package's source added to its path."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_unit_has_its_place():
    assert {unit_of(path) for path in FILES} - {"", "analysis"} == set(HEIGHT)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_one_way(path):
    unit, imported = unit_of(path), units_imported(path)
    assert "" not in imported
    if unit == "":
        assert not imported & {"cli", "progress", "sweeps", "analysis"}
    elif unit == "analysis":
        assert imported <= ANALYSIS_IMPORTS
    else:
        assert "analysis" not in imported or unit == "cli"
        assert all(HEIGHT[other] < HEIGHT[unit] for other in imported - {unit, "analysis"})


def test_the_search_for_imports_sees_what_is_there():
    found = {unit_of(path): units_imported(path) for path in FILES if path.name in ("cli.py", "run.py", "tables.py")}
    assert {"analysis", "config", "recipes", "sweeps", "progress", "records"} <= found["cli"]
    assert {"config", "records", "streams", "engine"} <= found["engine"]
    assert {"analysis", "errors", "records"} <= found["analysis"] <= ANALYSIS_IMPORTS


def test_only_the_command_line_and_the_analysis_use_their_libraries():
    allowed = {
        "typer": {"cli", "cli_data", "cli_methods", "console"},
        "rich": {"cli", "cli_data", "console", "progress", "analysis"},
        "matplotlib": {"analysis"},
        "safetensors": {"engine"},
        "torch": {
            "bench",
            "meanwhile",
            "contract",
            "data",
            "engine",
            "losses",
            "memory",
            "methods",
            "nets",
            "protocols",
            "randomness",
            "types",
        },
    }
    for path in FILES:
        for library in {name.split(".")[0] for name in imports_of(path)} & set(allowed):
            assert unit_of(path) in allowed[library], f"{name_of(path)} imports {library}"


def test_the_engine_imports_with_torch_numpy_and_safetensors_alone():
    code = f"""
import sys
barred = {BARRED}
class Bar:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in barred:
            raise ModuleNotFoundError("barred: " + name, name=name)
sys.meta_path.insert(0, Bar())
import ider, ider.engine.run
print(sorted(name for name in sys.modules if name.split(".")[0] in barred))
print("ider.cli" in sys.modules, any(name.startswith("ider.analysis") for name in sys.modules))
"""
    assert python(code).splitlines() == ["[]", "False False"]


def test_importing_takes_little_longer_than_importing_torch():
    # Processor time, which on a quiet machine is the time that passes: on a busy one that may be several times as long.
    code = "import torch, time; t = time.process_time(); import ider; print(time.process_time() - t)"
    seconds: list[float] = []
    while len(seconds) < 5 and min(seconds, default=1) > 0.15:
        seconds.append(float(python(code)))
    assert min(seconds) <= 0.15


def test_the_public_names_are_exactly_these():
    assert sorted(ider.__all__) == sorted(PUBLIC)
    assert len(set(ider.__all__)) == len(ider.__all__)
    public = {name for name, value in vars(ider).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(PUBLIC) - {"__version__"}


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in ("METHODS", "__version__")])
def test_every_public_name_has_a_docstring_of_its_own(name):
    item = getattr(ider, name)
    text = vars(item)["__doc__"] if inspect.isclass(item) else item.__doc__
    assert text
    assert not text.startswith(f"{name}(")  # what dataclasses write if there is none


def test_every_method_has_a_docstring_of_its_own():
    assert isinstance(ider.METHODS, dict)
    for method in ider.METHODS.values():
        assert dataclasses.is_dataclass(method)
        assert not vars(type(method))["__doc__"].startswith(f"{type(method).__name__}(")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_says_what_it_is_for(path):
    assert ast.get_docstring(TREES[path])


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_and_functions_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno + 1 <= 50, f"{node.name} in line {node.lineno}"


def test_no_file_names_what_lies_beside_the_repository():
    for path in (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        assert b"../shared" not in path.read_bytes(), path
        assert b"/work/" not in path.read_bytes(), path


def test_nothing_unpickles_with_the_default_unpickler():
    calls = re.compile(r"\bpickle\.loads?\(|\btorch\.load\(|allow_pickle=True|\bjoblib\.load\(|\bshelve\.open\(")
    assert [name_of(path) for path in FILES if calls.search(path.read_text(encoding="utf-8"))] == []


def declared() -> list[str]:
    """What the distribution requires; from the source tree, what `pyproject.toml` declares."""
    try:
        return importlib.metadata.requires("ider") or []
    except importlib.metadata.PackageNotFoundError:
        source = PACKAGE.parents[1] / "pyproject.toml"
        if not source.exists():
            pytest.skip("ider is neither installed as a distribution nor run from its source tree")
        found: list[str] = tomllib.loads(source.read_text(encoding="utf-8"))["project"]["dependencies"]
        return found


def closure(requirements: list[str], known: set[str]) -> set[str]:
    """The names of all distributions that these requirements bring, without extras; grows `known`."""
    for requirement in map(Requirement, requirements):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and name not in known:
            known.add(name)
            try:
                closure(importlib.metadata.requires(name) or [], known)
            except importlib.metadata.PackageNotFoundError:
                pytest.skip(f"{name} is required but not installed, so what it requires is unknown")
    return known


def test_the_dependencies_beside_torch_are_few():
    extra = closure(declared(), set()) - closure(["torch"], set())
    assert {"numpy", "safetensors"} <= extra
    assert len(extra) <= 28, sorted(extra)
