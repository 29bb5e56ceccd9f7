"""docs/methods.md: every method has its row and its paragraph, and the costs in its table are those of a step."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ider.contract.stage import Case, stage
from ider.methods import OWN
from ider.recipes import BENCHMARKS, recipes
from ider.types import Needs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text()
NOT_PUBLISHED = ("digits", "fashion-mnist")
ROWS = 4


def rows() -> dict[str, list[str]]:
    table = PAGE[PAGE.index("| method | lower |") : PAGE.index("## Without a memory")]
    cells = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in table.strip().splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_method_has_a_row_and_a_paragraph() -> None:
    assert list(rows()) == list(OWN)
    for name in OWN:
        base, plus, _ = name.partition("+id")
        if plus:
            assert re.search(
                rf"^\| .*`{re.escape(name)}`.* \|", PAGE[PAGE.index("| name | what is particular |") :], re.M
            )
        paragraph = PAGE.partition(f"### `{base}`\n")[2].partition("\n#")[0]
        assert re.search(r"^    \S", paragraph, re.M), f"{base} has no loss"
        assert len(paragraph.split()) > 12, f"{base} has no words"


class Meter:
    """Counts the rows that go through a module."""

    def __init__(self, module: nn.Module) -> None:
        self.rows = 0
        module.register_forward_pre_hook(self._note)

    def _note(self, module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        self.rows += len(arguments[0])


@pytest.mark.parametrize("name", OWN)
def test_the_passes_of_a_step_are_those_of_the_table(name: str) -> None:
    method = OWN[name]
    needs = method.needs()
    here = stage(method, Case(current=ROWS, drawn=ROWS, later=True))
    lower, upper = Meter(here.net.lower), Meter(here.net.upper)
    teacher = [Meter(here.teacher.upper)] if here.teacher is not None else []
    means = [Meter(net.upper) for net in here.averages.values()]
    here.outcome(method)
    views = len(here.batch.views.labels.rows) if here.batch.views is not None else 0
    end = " + views" if views else ""
    expected = [f"{(meter.rows - views) // ROWS}{end}" for meter in (lower, upper)]
    expected += [str(sum(meter.rows for meter in meters) // ROWS) for meters in (teacher, means)]
    assert rows()[name][:4] == expected
    assert rows()[name][4] == stored(needs)
    assert ("teacher" in rows()[name][5]) == (needs.teacher is not None)
    assert ("mean" in rows()[name][5].replace("`C` x `D` means", "")) == bool(needs.averages)


def stored(needs: Needs) -> str:
    words = ["`C`" if item.per_class else "1" for item in needs.stores]
    return " + ".join(words) or "–"


def published_scale(summary: dict[str, Any]) -> bool:
    """Whether a summary on record was made with a published recipe as it is, on all seeds that it says."""
    config = summary["config"]
    if summary["benchmark"] not in BENCHMARKS or summary["benchmark"] in NOT_PUBLISHED:
        return False
    known = recipes(summary["benchmark"], summary["memory"]).get(summary["method"])
    if known is None:
        return False
    same = (config["net"]["name"], config["net"]["width"]) == (known.net.name, known.net.width)
    return same and config["train"]["epochs"] >= known.train.epochs


def test_reproduction_is_verified_where_there_is_a_record_and_nowhere_else() -> None:
    summaries = [
        summary
        for path in (ROOT / "results").glob("**/*.json")
        for summary in json.loads(path.read_text()).get("summaries", [])
    ]
    verified = {summary["config"]["method"]["name"] for summary in summaries if published_scale(summary)}
    for name, row in rows().items():
        assert row[6] == ("verified" if name in verified else "not yet"), name


def test_a_record_of_paper_scale_is_told_from_a_small_one() -> None:
    known = recipes("cifar100", 500)["er+id"]
    config = {"net": {"name": "resnet18", "width": 64}, "train": {"epochs": known.train.epochs}}
    summary = {"benchmark": "cifar100", "memory": 500, "method": "er+id", "config": config}
    assert published_scale(summary)
    assert not published_scale(summary | {"config": config | {"net": {"name": "resnet18", "width": 8}}})
    assert not published_scale(summary | {"config": config | {"train": {"epochs": 2}}})
    assert not published_scale(summary | {"benchmark": "digits", "memory": 30})
