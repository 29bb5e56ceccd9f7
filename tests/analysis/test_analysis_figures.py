"""Figures: that what is drawn are the records' means, that every shape of run can be drawn, and the files."""

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from PIL import Image

from ider.analysis import aggregate, figures, style
from ider.errors import UserError
from ider.records import Record, write_json

Maker = Callable[..., Record]
Runs = dict[str, list[Record]]
DRAW = list(figures.FIGURES.values())


@pytest.fixture
def runs(make_record: Maker) -> Runs:
    return {
        "er": [make_record("er", seed) for seed in range(3)],
        "er+id": [make_record("er+id", seed) for seed in range(3)],
        "joint": [make_record("joint", seed, at_once=True) for seed in range(3)],
    }


def _legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def _axes(figure: Figure) -> list[Any]:
    """The figure's axes; Any, because matplotlib types what they hold by its base classes."""
    return figure.axes


def _panels(figure: Figure) -> list[Any]:
    return [axes for axes in figure.axes if axes.get_title()]


def test_accuracy_lines_are_the_means_over_tasks_and_seeds(runs: Runs) -> None:
    figure = figures.accuracy_after_each_task(runs)
    er, other, joint = _axes(figure)[0].get_lines()
    np.testing.assert_allclose(er.get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(er.get_ydata(), [92.0, 82.0, 72.0])  # seed 1 of seeds 0..2; row means 90, 80, 70
    np.testing.assert_allclose(joint.get_ydata(), [72.0, 72.0])
    assert joint.get_linestyle() == "--"
    assert (er.get_marker(), other.get_marker(), joint.get_marker()) == ("o", "s", "None")
    assert _legend(figure) == ["er", "er+id", "joint (ceiling)"]


def test_accuracy_bands_are_one_sample_standard_deviation(runs: Runs) -> None:
    bands = _axes(figures.accuracy_after_each_task(runs))[0].collections
    assert len(bands) == 2
    corners = bands[0].get_paths()[0].vertices
    np.testing.assert_allclose(sorted({round(float(y), 6) for x, y in corners if x == 1}), [90.0, 94.0])


def test_one_seed_has_neither_band_nor_whiskers(make_record: Maker) -> None:
    one = {"er": [make_record()]}
    assert not figures.accuracy_after_each_task(one).axes[0].collections
    assert not figures.recency_bias(one).axes[0].collections


def test_matrix_draws_means_and_leaves_the_future_blank(runs: Runs) -> None:
    figure = figures.accuracy_matrix(runs)
    panels = _panels(figure)
    assert [axes.get_title() for axes in panels] == ["er", "er+id"]
    mesh = panels[0].collections[0]
    assert isinstance(mesh, QuadMesh)
    drawn: Any = np.ma.filled(np.ma.asarray(mesh.get_array()), np.nan)
    expected: Any = [[92, np.nan, np.nan], [72, 92, np.nan], [52, 72, 92]]
    np.testing.assert_allclose(drawn, expected)
    texts = [text for text in panels[0].texts if text.get_text()]
    assert [text.get_text() for text in texts] == ["92", "72", "92", "52", "72", "92"]
    assert panels[0].get_ylim() == (3.5, 0.5)  # the first task on top
    assert len(figure.axes) == 3  # two panels, one shared colour bar


def test_numbers_in_cells_contrast_with_them(make_record: Maker) -> None:
    record = make_record(tasks=2)
    record["accuracy"] = [[100.0], [0.0, 50.0]]
    texts = _panels(figures.accuracy_matrix({"er": [record]}))[0].texts
    assert [(text.get_text(), text.get_color()) for text in texts] == [
        ("100", "black"), ("0", "white"), ("50", "black"),
    ]  # fmt: skip


def test_a_ceiling_alone_is_one_row_without_a_task_after_which_it_was_tested(make_record: Maker) -> None:
    axes = _panels(figures.accuracy_matrix({"joint": [make_record("joint", at_once=True)]}))[0]
    assert [text.get_text() for text in axes.texts] == ["50", "70", "90"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Tested on task", "")


def test_numbers_are_left_out_where_they_could_not_be_read(make_record: Maker) -> None:
    crowd = {str(name): [make_record(str(name), tasks=20)] for name in range(12)}
    assert not any(axes.texts for axes in figures.accuracy_matrix(crowd).axes)
    ten = figures.accuracy_matrix({"er": [make_record(tasks=10)], "b": [make_record("b", tasks=10)]})
    assert {text.get_fontsize() >= 5 for axes in _panels(ten) for text in axes.texts} == {True}


def test_reliability_pools_the_seeds_by_count(make_record: Maker) -> None:
    bins = aggregate.reliability_bins([make_record(seed=0), make_record(seed=1)])
    np.testing.assert_allclose(bins.share_B[-2:], [20.0, 80.0])
    np.testing.assert_allclose(bins.confidence_B[-2:], [90.0, 95.0])
    np.testing.assert_allclose(bins.accuracy_B[-2:], [80.0, 100 * (300 * 1.0 + 500 * 0.8) / 800])
    assert np.isnan(bins.accuracy_B[:-2]).all()


def test_reliability_shades_over_and_under_confidence_apart(make_record: Maker) -> None:
    figure = figures.reliability_diagram({"er": [make_record(ece=12.34, overconfidence=-4.56)]})
    upper, lower = _axes(figure)
    assert upper.get_title() == "er\nECE 12.3 %, under \N{MINUS SIGN}4.6"
    accuracy, over, under = (list(container) for container in upper.containers)
    assert (accuracy[13].get_height(), over[13].get_height()) == (pytest.approx(80), pytest.approx(10))
    assert (accuracy[14].get_height(), under[14].get_height()) == (pytest.approx(100), pytest.approx(-5))
    assert np.isnan(over[14].get_height())
    assert np.isnan(under[13].get_height())
    assert to_hex(over[13].get_facecolor()) != to_hex(under[14].get_facecolor())
    assert over[13].get_hatch() != under[14].get_hatch()  # told apart in grey, too
    assert [bar.get_height() for bar in lower.patches][-2:] == [25.0, 75.0]
    assert _legend(figure) == ["over-confident", "under-confident", "calibrated"]


def test_reliability_shows_the_headline_answer_and_survives_null_metrics(make_record: Maker) -> None:
    record = make_record(ece=None, overconfidence=None)
    record["config"] = {"evaluation": {"answer": "second"}}
    record["reliability"]["second"] = {"count": [0] * 14 + [8], "confidence": [None] * 14 + [1.0],
                                       "accuracy": [None] * 14 + [0.25]}  # fmt: skip
    upper = _axes(figures.reliability_diagram({"er": [record]}))[0]
    assert upper.get_title() == "er\nECE –"
    assert upper.containers[0][14].get_height() == 25.0


def test_recency_bias_draws_mass_whiskers_and_the_balanced_share(runs: Runs) -> None:
    figure = figures.recency_bias(runs)
    axes = _axes(figure)[0]
    line = next(line for line in axes.get_lines() if line.get_marker() == "o")
    means = np.mean([[1 / 6, 2 / 6, 3 / 6], [2 / 9, 3 / 9, 4 / 9], [3 / 12, 4 / 12, 5 / 12]], axis=0)
    np.testing.assert_allclose(line.get_ydata(), 100 * means)
    first = axes.collections[0].get_segments()[0]
    spread = 100 * np.std([1 / 6, 2 / 9, 3 / 12], ddof=1)
    np.testing.assert_allclose(first[:, 1], [100 * means[0] - spread, 100 * means[0] + spread])
    balanced = axes.patches[0].get_data()
    np.testing.assert_allclose(balanced.values, [100 / 3] * 3)
    assert _legend(figure) == ["er", "er+id", "joint (ceiling)", "balanced"]


def test_forty_methods_look_all_different(make_record: Maker) -> None:
    looks = style.looks({f"m{number}": [make_record(f"m{number}")] for number in range(40)})
    assert len(set(looks.values())) == 40


def test_a_method_looks_the_same_in_every_figure_and_unlike_any_other(make_record: Maker) -> None:
    crowd = {f"m{name}": [make_record(f"m{name}", tasks=2)] for name in range(11)}
    crowd["joint"] = [make_record("joint", tasks=2, at_once=True)]
    looks = style.looks(crowd)
    assert len({look.marker for look in looks.values()}) == 12
    assert len({(look.colour, look.dash) for look in looks.values()}) == 12
    for draw in (figures.accuracy_after_each_task, figures.recency_bias):
        colours = {line.get_marker(): line.get_color() for line in draw(crowd).axes[0].get_lines()}
        assert all(colours[look.marker] == look.colour for look in looks.values() if look.marker)


@pytest.mark.parametrize("draw", DRAW)
@pytest.mark.parametrize(("methods", "tasks", "seeds"), [(1, 1, 1), (1, 5, 1), (5, 1, 2), (12, 20, 2), (4, 10, 1)])
def test_every_shape_of_comparison_can_be_drawn(
    make_record: Maker, draw: Callable[[Runs], Figure], methods: int, tasks: int, seeds: int
) -> None:
    names = [f"method-{name}" for name in range(methods)]
    crowd = {name: [make_record(name, seed, tasks) for seed in range(seeds)] for name in names}
    figure = draw(crowd)
    boxes = _text_boxes(figure)
    page = figure.bbox
    assert [name for name, box in boxes if not (page.x0 <= box.x0 and page.y0 <= box.y0)] == []
    assert [name for name, box in boxes if not (box.x1 <= page.x1 and box.y1 <= page.y1)] == []
    pairs = itertools.combinations(boxes, 2)
    assert [(one, two) for (one, box), (two, other) in pairs if box.overlaps(other)] == []
    if draw in (figures.accuracy_matrix, figures.reliability_diagram):
        assert [axes.get_title().split("\n")[0] for axes in _panels(figure)] == names
    else:
        assert _legend(figure)[:methods] == names


def _text_boxes(figure: Figure) -> list[tuple[str, Bbox]]:
    """Where titles, names of axes, legends and numbers in cells are drawn; drawing also raises layout warnings."""
    figure.savefig(io.BytesIO(), format="png", dpi="figure")
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
    return [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]


@pytest.mark.parametrize("draw", DRAW)
def test_records_that_do_not_belong_together_are_refused(make_record: Maker, draw: Callable[[Runs], Figure]) -> None:
    with pytest.raises(UserError, match="same number of tasks, got er: 3, b: 2 and 4"):
        draw({"er": [make_record()], "b": [make_record("b", tasks=2), make_record("b", tasks=4)]})
    with pytest.raises(UserError, match="at least one record of every method, got none of b"):
        draw({"er": [make_record()], "b": []})
    with pytest.raises(UserError, match="got none of any"):
        draw({})


def test_a_broken_accuracy_matrix_is_refused(make_record: Maker) -> None:
    record = make_record()
    record["accuracy"] = record["accuracy"][:2]
    with pytest.raises(UserError, match="er hold 2 rows of accuracy; 3 tasks leave 3, or 1"):
        figures.accuracy_after_each_task({"er": [record]})


def test_task_numbers_thin_out() -> None:
    assert style.task_ticks(1) == [1]
    assert style.task_ticks(5) == [1, 2, 3, 4, 5]
    assert style.task_ticks(20) == [1, 5, 10, 15, 20]
    assert style.task_ticks(600) == [1, 200, 400, 600]


def test_legends_use_as_many_columns_as_fit() -> None:
    short, long = style.legend_height(["er"] * 4, 3.5), style.legend_height(["a-method-with-a-long-name"] * 4, 3.5)
    assert (round(short, 2), round(long, 2)) == (0.27, 0.78)


def _comparison(folder: Path, runs: Runs) -> Path:
    write_json(folder / "comparison.json", {"schema": 1, "methods": list(runs)})
    for name, records in runs.items():
        for record in records:
            write_json(folder / name / f"seed-{record['seed']}" / "record.json", record)
    return folder


def test_draw_all_writes_valid_files_and_the_same_bytes_twice(tmp_path: Path, runs: Runs) -> None:
    before = dict(matplotlib.rcParams)
    folder = _comparison(tmp_path, runs)
    paths = figures.draw_all(folder, ("png", "pdf", "svg"))
    assert [path.relative_to(folder).as_posix() for path in paths[:4]] == [
        "figures/accuracy_after_each_task.png",
        "figures/accuracy_after_each_task.pdf",
        "figures/accuracy_after_each_task.svg",
        "figures/accuracy_matrix.png",
    ]
    first = {path: path.read_bytes() for path in paths}
    assert len(first) == 12
    assert figures.draw_all(folder, ("png", "pdf", "svg")) == paths
    assert all(path.read_bytes() == content for path, content in first.items())
    assert sorted((folder / "figures").iterdir()) == sorted(paths)  # no temporary file stays behind
    assert dict(matplotlib.rcParams) == before


def test_files_are_print_quality_and_carry_no_dates(tmp_path: Path, make_record: Maker) -> None:
    record = make_record()
    write_json(tmp_path / "seed-0" / "record.json", record)
    for path in figures.draw_all(tmp_path):
        content = path.read_bytes()
        if path.suffix == ".pdf":
            assert content.startswith(b"%PDF")
            assert b"Date" not in content
            assert b"/Type3" not in content.replace(b" ", b"")
        else:
            with Image.open(io.BytesIO(content)) as image:
                image.load()
                assert image.width >= 3.5 * 200
                assert set(image.info) == {"dpi"}
                assert len(image.convert("RGB").getcolors(1 << 24) or []) > 5


def test_draw_all_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown figure format 'pgn'; did you mean 'png'"):
        figures.draw_all(tmp_path, ("pgn",))
    with pytest.raises(UserError, match="holds no finished record"):
        figures.draw_all(tmp_path)


def test_figures_leave_pyplot_and_the_engine_alone(loaded_by: Callable[[str], set[str]]) -> None:
    loaded = loaded_by("ider.analysis.figures")
    ours = {name.split(".")[1] for name in loaded if name.startswith("ider.")}
    assert ours == {"analysis", "errors", "records"}
    assert not {"matplotlib.pyplot", "torch"} & loaded
