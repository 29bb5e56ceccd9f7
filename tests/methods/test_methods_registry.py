"""Methods that are not ider's own: in a file that the user names, in an installed package, built by `+id`."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import methods_as_before
from typer.testing import CliRunner, Result

import ider
from ider import METHODS, Learner, RunConfig, Task, UserError, recipe
from ider.cli import app
from ider.config import as_dict, from_dict, run_id
from ider.engine.run import running
from ider.methods import ER, Finetune, Idempotent, LwF, load_method
from ider.methods.files import digest_of
from ider.settings import name_of, override

MINE = '''
from dataclasses import dataclass

from ider.losses import cross_entropy
from ider.methods.base import Supervised
from ider.options import option
from ider.types import CURRENT, Batch, Draw, Needs, Parts, Terms


@dataclass(frozen=True, kw_only=True)
class Mine(Supervised):
    """Weighted cross-entropy."""

    labelled = (CURRENT, "again")
    weight: float = option(0.5, "weight of the replayed cross-entropy", least=0)

    def needs(self) -> Needs:
        return Needs(draws=(Draw("again"),))

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        terms = {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}
        if "again" in logits:
            terms["again"] = self.weight * cross_entropy(logits["again"], batch.labels["again"])
        return terms
'''
QUICK = ["--epochs", "1", "--set", "net.width=4", "--device", "cpu", "--set", "engine.threads=1"]


@pytest.fixture(autouse=True)
def _methods_as_before() -> Iterator[None]:
    with methods_as_before():
        yield


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ider.analysis.figures.draw_all", lambda folder: [])
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def forget() -> None:
    """As in another process."""
    for name in [name for name in METHODS if name not in METHODS.own]:
        del METHODS[name]
    METHODS.origins.clear()


def test_a_method_in_a_file_is_known_by_file_and_class(mine: Path) -> None:
    method = load_method("mine.py:Mine")
    assert (type(method).__name__, method.weight) == ("Mine", 0.5)  # type: ignore[attr-defined]
    assert METHODS["mine.py:Mine"] is method
    assert name_of(method, METHODS) == "mine.py:Mine"
    assert load_method(str(mine) + ":Mine") == method  # the same class: equal
    assert METHODS.others() == (f"{mine}:Mine",)
    plus = load_method("mine.py:Mine+id")
    assert plus == Idempotent(base=method)  # type: ignore[arg-type]
    assert METHODS.others() == (f"{mine}:Mine", f"{mine}:Mine+id")


def test_it_takes_the_settings_of_er_and_its_plus_id_those_of_er_id(mine: Path) -> None:
    load_method("mine.py:Mine")
    config, er = recipe("digits", "mine.py:Mine", 20), recipe("digits", "er", 20)
    assert (config.recipe, config.train, config.memory, config.net) == ("Mine", er.train, er.memory, er.net)
    plus, er_id = recipe("cifar100", "mine.py:Mine+id"), recipe("cifar100", "er+id")
    assert (plus.recipe, plus.train, plus.memory) == ("Mine+id", er_id.train, er_id.memory)
    assert plus.net.label_input
    assert isinstance(plus.method, Idempotent)
    assert (plus.method.current_weight, plus.method.memory_weight) == (0.4, 0.5)
    assert override(config, "method.weight=0.25", METHODS).method.weight == 0.25  # type: ignore[attr-defined]


def test_its_configuration_comes_back_and_does_not_depend_on_the_folder(mine: Path, tmp_path: Path) -> None:
    load_method("mine.py:Mine")
    config = recipe("digits", "mine.py:Mine+id")
    content = json.loads(json.dumps(as_dict(config)))
    assert content["method"]["name"] == "mine.py:Mine+id"
    assert content["method"]["base"] == {"name": "mine.py:Mine", "weight": 0.5}
    assert from_dict(content) == config
    known = run_id(config, 0)
    forget()
    moved = tmp_path / "elsewhere" / "mine.py"
    moved.parent.mkdir()
    mine.rename(moved)
    load_method(f"{moved}:Mine")
    assert run_id(from_dict(content), 0) == known


def test_a_file_is_never_run_because_something_that_is_read_names_it(mine: Path, tmp_path: Path) -> None:
    mine.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n" + MINE)
    content = {"benchmark": "digits", "recipe": "Mine", "method": {"name": "mine.py:Mine"}}
    with pytest.raises(
        UserError, match=r"'mine.py:Mine' is code in a file.*only a file that you name yourself.*--method"
    ):
        from_dict(content)
    for name in (f"{mine}:Mine", "mine.py:Mine+id", "./mine.py:Mine"):
        with pytest.raises(UserError, match="only a file that you name yourself"):
            from_dict({"method": {"name": name}})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text('benchmark = "digits"\n[method]\nname = "mine.py:Mine"\n')
    (tmp_path / "record.json").write_text(json.dumps({"config": content}))
    for arguments in (
        ["resume", "run"],
        ["run", "--config", "record.json"],
        ["run", "--set", "method.name=mine.py:Mine"],
    ):
        result = command(*arguments)
        assert (result.exit_code, result.stderr.count("only a file that you name yourself")) == (2, 1)
    assert not (tmp_path / "ran").exists()
    assert command("list", "settings", "--method", "mine.py:Mine").exit_code == 0
    assert (tmp_path / "ran").exists()


def test_a_saved_learner_of_it_is_loaded_once_its_file_is_named(mine: Path, tmp_path: Path) -> None:
    load_method("mine.py:Mine")
    images = np.random.default_rng(0).integers(0, 256, (12, 1, 8, 8)).astype(np.uint8)
    config = override(recipe("digits", "mine.py:Mine"), "train.epochs=1", METHODS)
    learner = Learner(config).learn(Task(images, np.arange(12) % 2))
    learner.save(tmp_path / "learner.safetensors")
    forget()
    with pytest.raises(UserError, match="only a file that you name yourself"):
        Learner.load(tmp_path / "learner.safetensors")
    load_method("mine.py:Mine")
    again = Learner.load(tmp_path / "learner.safetensors")
    assert np.array_equal(again.predict_proba(images), learner.predict_proba(images))


def test_runs_side_by_side_in_processes_know_it(mine: Path, tmp_path: Path) -> None:
    arguments = ["--num-seeds", "2", "--set", "engine.at_once=2", "--set", "method.base.weight=0.25", *QUICK]
    result = command("run", "--method", "mine.py:Mine+id", *arguments, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    records = [json.loads((tmp_path / "run" / f"seed-{seed}" / "record.json").read_text()) for seed in (0, 1)]
    assert {record["method"] for record in records} == {"Mine+id"}
    assert {record["config"]["method"]["base"]["weight"] for record in records} == {0.25}
    assert all(len(record["provenance"]["method_sha256"]) == 64 for record in records)
    forget()
    assert command("resume", "run").exit_code == 2
    assert command("resume", "run", "--method", "er").stderr.startswith(
        "ider: --method is 'er'; here it takes the file"
    )
    assert command("resume", "run", "--method", "mine.py:Mine").exit_code == 0
    assert "Mine+id" in command("show", "run").output


def test_a_run_is_finished_with_the_file_that_it_was_begun_with(mine: Path, tmp_path: Path) -> None:
    load_method("mine.py:Mine")
    assignments = ["train.epochs=1", "engine.checkpoint_every=1", "engine.device=cpu"]
    config = recipe("digits", "mine.py:Mine")
    for assignment in assignments:
        config = override(config, assignment, METHODS)
    content = as_dict(config)
    for _ in zip(running(config, 0, tmp_path), range(3), strict=False):
        pass
    mine.write_text(MINE + "# changed\n")
    load_method("mine.py:Mine")
    with pytest.raises(UserError, match="was begun with another state of the file that its method is in"):
        next(running(from_dict(content), 0, tmp_path))
    mine.write_text(MINE)
    load_method("mine.py:Mine")
    assert next(running(from_dict(content), 0, tmp_path)).step > 1


def test_a_finished_run_of_it_is_calibrated_with_the_file_that_it_was_learnt_with(mine: Path, tmp_path: Path) -> None:
    assert command("run", "--method", "mine.py:Mine", *QUICK, "--out", "run").exit_code == 0
    forget()
    calibrate = ["calibrate", "run", "--with", "temperature"]
    assert "add --method FOLDER/mine.py:Mine" in command(*calibrate).stderr
    mine.write_text(MINE + "# changed\n")
    result = command(*calibrate, "--method", "mine.py:Mine")
    assert (result.exit_code, "another state of the file" in result.stderr) == (2, True)
    mine.write_text(MINE)
    assert command(*calibrate, "--method", "mine.py:Mine").exit_code == 0
    record = json.loads((tmp_path / "run" / "seed-0" / "record.json").read_text())
    assert set(record["calibrated"]) == {"temperature"}


def test_a_method_around_another_one_is_told_by_its_own_file(mine: Path) -> None:
    around = "from ider.methods import ER\n" + MINE.replace(
        '    weight: float = option(0.5, "weight of the replayed cross-entropy", least=0)',
        '    base: ER = ER()\n    weight: float = option(0.5, "weight of the replayed cross-entropy", least=0)',
    )
    mine.write_text(around)
    expected = hashlib.sha256(around.encode()).hexdigest()
    assert digest_of(load_method("mine.py:Mine")) == expected
    assert digest_of(load_method("mine.py:Mine+id")) == expected
    assert digest_of(METHODS["er+id"]) is None


def test_a_file_that_has_changed_is_run_again(mine: Path) -> None:
    first = load_method("mine.py:Mine+id")
    assert load_method("mine.py:Mine+id") == first
    mine.write_text(MINE.replace("0.5", "0.75"))
    again = load_method("mine.py:Mine+id")
    assert again != first
    assert isinstance(again, Idempotent)
    assert again.base.weight == 0.75  # type: ignore[attr-defined]


def test_a_setting_that_the_file_no_longer_has_is_named(mine: Path) -> None:
    load_method("mine.py:Mine")
    content = as_dict(recipe("digits", "mine.py:Mine"))
    mine.write_text(MINE.replace("weight", "factor"))
    load_method("mine.py:Mine")
    with pytest.raises(UserError, match=r"unknown setting 'method.weight'.*allowed: method.factor"):
        from_dict(content)


WRONG_FILES = {
    "syntax": ("x = (\n", r"mine.py cannot be run: SyntaxError: '\(' was never closed \(line 1\)"),
    "import": ("import x\n\nimport no_such_thing\n".replace("import x\n", "\n"), r"ModuleNotFoundError.*line 3\)"),
    "error": ("a = 1\nb = a / 0\n", r"ZeroDivisionError: division by zero \(line 2\)"),
    "exit": ("import sys\nsys.exit(3)\n", r"mine.py cannot be run: SystemExit: 3 \(line 2\)"),
    "own check": (
        MINE + "\n    def __post_init__(self):\n        assert self.weight > 1, 'too light'\n",
        "mine.py:Mine cannot be made with its defaults: AssertionError: too light",
    ),
    "no class": (MINE.replace("class Mine", "class Other"), r"unknown class in mine.py 'Mine' \(allowed: Other\)"),
    "imported class": ("from ider.methods import ER\nMine = 3\n", r"unknown class in mine.py 'Mine'"),
    "no method": ("class Mine: pass\n", r"mine.py:Mine lacks needs, step, .*derive it from .*Supervised"),
    "no dataclass": (MINE.replace("@dataclass(frozen=True, kw_only=True)", ""), r"mine.py:Mine must be a dataclass"),
    "no default": (
        MINE.replace(' = option(0.5, "weight of the replayed cross-entropy", least=0)', ""),
        r"mine.py:Mine cannot be made without arguments.*give every field a default",
    ),
}


@pytest.mark.parametrize("what", WRONG_FILES)
def test_a_file_that_holds_no_method_is_a_users_mistake(what: str, mine: Path) -> None:
    content, words = WRONG_FILES[what]
    mine.write_text(content)
    with pytest.raises(UserError, match=words):
        load_method("mine.py:Mine")
    result = command("check-method", "mine.py:Mine")
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1)


def test_other_mistakes_of_names(mine: Path, tmp_path: Path) -> None:
    for name, words in {
        "other.py:Mine": "cannot read .*other.py: No such file or directory",
        "mine.py": "'mine.py' is a file; a method in it is named by its class too: mine.py:MyMethod",
        "mime": "unknown method 'mime'",
        "joint+id": r"\+id needs a stream of tasks",
        "icarl+id": r"\+id asks for a cross-entropy of two answers, which ICaRL cannot give",
        "er+id+id": r"\+id needs a method that derives from Supervised, and Idempotent does not",
    }.items():
        with pytest.raises(UserError, match=words):
            load_method(name)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "mine.py").write_text(MINE)
    load_method("mine.py:Mine")
    with pytest.raises(UserError, match="have the same name, mine.py:Mine; rename one"):
        load_method("below/mine.py:Mine")
    mine.write_text(MINE.replace("class Mine", "class ER"))
    result = command("compare", "--methods", "er,mine.py:ER", "--out", tmp_path / "c", *QUICK)
    assert (result.exit_code, "none may be named twice" in result.stderr) == (2, True)


def test_check_method_says_what_is_wrong_and_ends_with_1(mine: Path) -> None:
    mine.write_text(MINE.replace(", least=0)", ")").replace('"weight of the replayed cross-entropy"', '""'))
    result = command("check-method", "mine.py:Mine")
    assert result.exit_code == 1
    assert "wrong  a frozen dataclass" in result.output
    assert "the field weight has no help" in result.output
    assert result.stderr.strip() == "ider: mine.py:Mine: 1 of 14 checks say that something is wrong"
    assert command("check-method", "derp").stderr.startswith("ider: unknown method 'derp'; did you mean 'derpp'?")


def test_plus_id_goes_on_any_method_that_takes_it() -> None:
    assert METHODS["lwf+id"] == Idempotent(base=LwF(), teacher_statistics="running")
    assert override(recipe("digits", "er+id"), "method.name=lwf+id", METHODS).method == METHODS["lwf+id"]
    METHODS["my-er"] = ER()
    with pytest.raises(UserError, match="unknown method or recipe 'lwf\\+id'"):
        recipe("digits", "lwf+id")  # ider's own have published settings or none


def test_a_method_named_from_python_needs_no_recipe() -> None:
    class Own(Finetune):
        """A user's own."""

    METHODS["own"] = Own()
    config = recipe("digits", "own")
    assert (config.recipe, config.method) == ("own", Own())
    assert from_dict(as_dict(config)) == config


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two installed packages: `fine` has a method as class and as instance, `broken` cannot be imported."""
    modules = {"fine_methods.py": MINE + "\nLIGHT = Mine(weight=0.125)\n", "broken_methods.py": "import not_there\n"}
    points = {
        "fine": "mine = fine_methods:Mine\nmine-light = fine_methods:LIGHT\ner = fine_methods:Mine\n",
        "broken": "shaky = broken_methods:Mine\nbad name = fine_methods:Mine\n",
    }
    folder = tmp_path / "site"
    folder.mkdir()
    for name, content in modules.items():
        (folder / name).write_text(content)
    for name, lines in points.items():
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ider.methods]\n{lines}")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("ider.analysis.figures.draw_all", lambda folder: [])
    for name in modules:
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    return folder


def test_a_package_is_imported_when_its_method_is_asked_for(packages: Path) -> None:
    code = (
        "import sys, ider; from ider import METHODS, recipe; recipe('digits', 'er');"
        "print('fine_methods' in sys.modules, 'importlib.metadata' in sys.modules);"
        "print(METHODS['mine-light'].weight, 'fine_methods' in sys.modules, 'broken_methods' in sys.modules)"
    )
    path = os.pathsep.join([str(packages), str(Path(ider.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0].startswith("False"), done.stderr
    assert done.stdout.splitlines()[1] == "0.125 True False"


def test_methods_of_packages_are_names_like_any_other(packages: Path, tmp_path: Path) -> None:
    assert METHODS["mine"].weight == 0.5  # type: ignore[attr-defined]
    assert METHODS["mine+id"] == Idempotent(base=METHODS["mine"])  # type: ignore[arg-type]
    assert METHODS["er"] == ER()
    config = recipe("digits", "mine+id")
    forget()
    assert (
        from_dict(as_dict(config) if "mine+id" in METHODS else {"method": {"name": "mine+id"}}).method
        == METHODS["mine+id"]
    )
    forget()
    arguments = ["--num-seeds", "2", "--set", "engine.at_once=2", *QUICK, "--out", tmp_path / "run"]
    result = command("run", "--method", "mine", *arguments)
    assert result.exit_code == 0, result.output
    forget()
    assert command("resume", tmp_path / "run").exit_code == 0  # an installed package is trusted as it is


def test_a_broken_package_costs_one_line_and_nothing_else(packages: Path) -> None:
    result = command("list", "methods", "--json")
    assert result.exit_code == 0
    assert {"mine", "mine-light", "er", "er+id"} <= {row["method"] for row in json.loads(result.stdout)}
    lines = sorted(result.stderr.splitlines())
    assert lines == [
        "ider: the method 'bad name' of the package broken is not named as a method can be: by letters, digits, and "
        "any of _-.+ (left out)",
        "ider: the method 'shaky' of the package broken cannot be loaded: ModuleNotFoundError: No module named "
        "'not_there' (left out)",
        "ider: the package fine names a method 'er', as ider does (left out)",
    ]
    with pytest.raises(UserError, match="'shaky' of the package broken cannot be loaded"):
        RunConfig(method=METHODS["shaky"])
    assert command("run", "--method", "shaky").exit_code == 2
    assert "allowed: " in command("run", "--method", "min").stderr
    assert "mine-light" in command("run", "--method", "min").stderr


def test_what_is_no_method_cannot_be_one() -> None:
    METHODS["strange"] = object()  # type: ignore[assignment]
    with pytest.raises(UserError, match="derives from Supervised, and object does not"):
        METHODS["strange+id"]
