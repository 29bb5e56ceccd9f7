"""Strong views on their way to a method: of which images, with which labels and random numbers."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from replay import a_learner, tasks

from ider.memory.plan import Schedule, plan_epoch
from ider.memory.policy import Slots, reservoir
from ider.methods import XDER
from ider.protocols import Net
from ider.randomness import generators
from ider.types import CURRENT, Batch, Draw, Outcome, Views


def plan(filled: int, views: Views, count: int = 21) -> list[Mapping[str, np.ndarray]]:
    slots = Slots(np.where(np.arange(12) < filled, 1, -1), filled)
    schedule = Schedule(
        batch=8, replay_batch=4, drop_last=False, draws=(Draw("replay"),), coins=(), pad=0, flip=False, offers=False,
        views=views,
    )  # fmt: skip
    segments, _ = plan_epoch(np.ones(count, np.int64), slots, schedule, (reservoir, generators(0)))
    return [segment.arrays for segment in segments]


@pytest.mark.parametrize(("filled", "memory", "rows"), [(0, 6, 0), (1, 6, 1), (12, 6, 6), (12, 64, 12), (12, 0, 0)])
def test_views_are_of_the_first_current_rows_and_of_other_slots_each_step(filled: int, memory: int, rows: int) -> None:
    whole, last = plan(filled, Views(current=6, memory=memory, times=3))
    assert whole["views"].shape == (2, 3 * (6 + rows), 11)
    assert last["views"].shape == (1, 3 * (5 + rows), 11)
    for arrays in (whole, last):
        numbers = arrays["views"].ravel()
        assert len(np.unique(numbers)) > 0.99 * numbers.size
        assert ("view_reads" in arrays) is (rows > 0)
        if rows:
            assert arrays["view_reads"].shape == (len(arrays["views"]), rows)
            assert all(len(set(step)) == rows and max(step) < filled for step in arrays["view_reads"].tolist())


def test_the_slots_of_views_are_drawn_uniformly_and_apart_from_the_replayed_ones() -> None:
    (arrays,) = plan(12, Views(current=1, memory=4, times=1), count=8 * 3000)
    found = np.bincount(arrays["view_reads"].ravel(), minlength=12)
    assert np.abs(found - 1000).max() < 5.5 * (3000 * (1 / 3) * (2 / 3)) ** 0.5  # twelve slots beyond that: 5e-7
    common = [len(set(a) & set(b)) for a, b in zip(arrays["view_reads"], arrays["reads/replay"], strict=True)]
    assert np.mean(common) == pytest.approx(4 * 4 / 12, abs=0.1)


class Witness(XDER):
    """Notes the views."""

    def step(self, net: Net, teacher: Net | None, batch: Batch) -> Outcome:
        NOTED.append(batch)
        return super().step(net, teacher, batch)


NOTED: list[Batch] = []


def test_views_are_made_of_images_as_they_came_and_keep_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def seen(images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        given.append(numbers)
        return images.float() / 255

    monkeypatch.setattr("ider.engine.step.strong_views", seen)
    NOTED.clear()
    learner, (first, second) = a_learner(Witness(contrast_views=3), size=5), tasks(2, 2)
    known = {image.tobytes(): label for task in (first, second) for image, label in zip(task.images, task.labels)}  # noqa: B905
    learner.learn(first)
    steps = len(NOTED)
    remembered = {image.tobytes() for image in learner.memory.images[:-1].numpy()}
    learner.learn(second)
    for number, (batch, numbers) in enumerate(zip(NOTED, given, strict=True)):
        images, labels = batch.views.images.rows, batch.views.labels.rows
        old = 5 if number >= steps else 0
        assert len(images) == len(labels) == len(numbers) == 3 * (8 + old)
        raw = [image.tobytes() for image in (images * 0.25 + 0.3).mul(255).round().to(torch.uint8).numpy()]
        assert [known[image] for image in raw] == labels.tolist()
        assert raw[0::3] == raw[1::3] == raw[2::3]
        assert labels[: 3 * 8 : 3].tolist() == batch.labels[CURRENT].tolist()
        assert set(raw[3 * 8 :]) == (remembered if old else set())


def test_views_move_no_running_statistics() -> None:
    """With a rate of zero the views are all that two learners could differ by."""
    viewing, plain = (
        a_learner(XDER(contrast_weight=weight), augmented=False, lr=0.0).learn(tasks(2)[0]) for weight in (1.0, 0.0)
    )
    assert viewing.history[0]["contrast"] > 0
    for name, values in viewing.net.state_dict().items():
        assert torch.equal(values, plain.net.state_dict()[name]), name
        assert values.any() or not name.endswith("running_mean")
