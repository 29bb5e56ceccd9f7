"""A method that asks for everything at once: nothing gets in the way of anything else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support import methods_as_before, tiny_learner, tiny_tasks
from torch import Tensor, nn, no_grad, zeros

from ider import Learner
from ider.engine.ledger import Progress
from ider.engine.replicas import take_turns
from ider.losses import cross_entropy
from ider.methods import METHODS, Idempotent
from ider.methods.base import Supervised
from ider.protocols import Desk, Method, Net, Predict
from ider.types import CURRENT, TASKS, Answer, Average, Batch, Draw, Field, Needs, Parts, Side, Terms

REPLAY = "replay"
FIRST, SECOND = Average("first", 0.9, 0.5), Average("second", 0.8, 0.7, own_statistics=False)


@dataclass(frozen=True, kw_only=True)
class Everything(Supervised):
    """Whose side grows with classes and tasks, and is drawn afresh for each task or lasts."""

    labelled = (CURRENT, REPLAY)
    lasting: bool = True
    mixed: bool = False

    def needs(self) -> Needs:
        return Needs(
            draws=(Draw(REPLAY),),
            averages=(FIRST, SECOND),
            predicts=FIRST.name,
            stores=(Field("logits", per_class=True), Field("sum")),
            coins=(REPLAY,),
            dice=(REPLAY,),
            side=Side(lr=0.01, momentum=0.3, lasting=self.lasting),
            mixed=self.mixed,
            after_epochs=True,
            clip=0.5,
            warm_up=0.4,
        )

    def side(self, classes: int, features: int, tasks: int) -> nn.Module:
        return nn.Linear(features, classes + tasks)

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        return {"steps": zeros(()), "met": zeros(classes, features)}

    def noise(self, classes: int, features: int) -> Mapping[str, tuple[int | str, ...]]:
        return {"tasks": (TASKS, classes), "rows": (REPLAY, 2)}

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        terms = {name: cross_entropy(logits[name], batch.labels[name]) for name in logits.sizes}
        return terms | ({REPLAY: terms[REPLAY] * batch.coins[REPLAY]} if REPLAY in terms else {})

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        assert batch.side is not None
        terms = {"side": batch.side(first.features[CURRENT]).square().mean() * batch.noise["tasks"].mean()}
        if REPLAY in first.logits:
            mean, logits = nets[0].average(SECOND.name), first.logits[REPLAY]
            said = mean.decode(mean.encode(batch.images.pick(REPLAY))).logits[REPLAY]
            chance = batch.dice[REPLAY].mean() * batch.noise["rows"].mean()
            terms["stored"] = chance * (logits - batch.stored["logits"][REPLAY]).square().mean()
            terms["mean"] = (logits - said).square().mean()
        return terms

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        return {"logits": first.logits[CURRENT], "sum": first.logits[CURRENT].sum(1)}

    def counted(self, first: Answer, batch: Batch) -> Mapping[str, Tensor]:
        return {"steps": batch.state["steps"] + 1}

    def after_epoch(self, desk: Desk, epoch: int) -> None:
        desk.state["met"].add_(desk.answers(desk.task, augmented=True).features.rows.mean(0))


ALL = {
    "lasting": Everything(),
    "afresh": Everything(lasting=False),
    "mixed": Everything(mixed=True),
    "a mean as it was": Idempotent(base=Everything(mixed=True), teacher_of=SECOND.name),
    "a mean as it is": Idempotent(base=Everything(lasting=False), teacher_of=FIRST.name, teacher_lives=True),
}
each = pytest.mark.parametrize("method", ALL.values(), ids=ALL)


@pytest.fixture(autouse=True)
def _named() -> Iterator[None]:
    with methods_as_before():
        METHODS["everything"], METHODS["everything+id"] = ALL["lasting"], ALL["a mean as it was"]
        yield


def a_learner(method: Method) -> Learner:
    """Its head grows, its memory is full only in the second task."""
    return tiny_learner(method, size=37, classes=0, momentum=0.5, milestones=(0.5,))


def saved(learner: Learner, folder: Path) -> bytes:
    learner.save(folder / "saved")
    return (folder / "saved").read_bytes()


@each
def test_saved_in_mid_task_it_goes_on_as_if_nothing_had_happened(method: Method, tmp_path: Path) -> None:
    tasks, places, files = tiny_tasks(3, images=18), [(0, 1, 4), (1, 0, 2), (2, 1, 1)], {}
    whole = a_learner(method)
    for task in tasks:
        for now in whole.learning(task):
            if (where := (now.task, now.epoch, now.step)) in places:
                files[where] = tmp_path / "-".join(map(str, where))
                whole.save(files[where])
    assert len(files) == len(places)
    assert whole.model.state["steps"] == 24
    for (number, _, _), file in files.items():
        rest = Learner.load(file)
        for task in tasks[number:]:
            rest.learn(task)
        assert saved(rest, tmp_path) == saved(whole, tmp_path), file


STOPS: list[bool] = []
"""Whether the user interrupts what is done after the first epoch of the second task, last call first."""


@dataclass(frozen=True, kw_only=True)
class Stopped(Everything):
    """Everything, interrupted."""

    def after_epoch(self, desk: Desk, epoch: int) -> None:
        if epoch == 0 and desk.classes.past.any() and STOPS.pop():
            raise KeyboardInterrupt
        super().after_epoch(desk, epoch)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_hook_that_was_interrupted_is_called_again(elsewhere: bool, tmp_path: Path) -> None:
    METHODS["stopped"] = Stopped()
    STOPS[:] = [False, True]
    tasks, learner, whole = tiny_tasks(2, images=18), a_learner(Stopped()), a_learner(Everything())
    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[0]).learn(tasks[1])
    if elsewhere:
        learner.save(tmp_path / "interrupted")
        learner = Learner.load(tmp_path / "interrupted")
    learner.learn(tasks[1])
    found, expected = (one.model.tensors() for one in (learner, whole.learn(tasks[0]).learn(tasks[1])))
    assert all(values.equal(expected[name]) for name, values in found.items())
    assert learner.history == whole.history


@dataclass(frozen=True, kw_only=True)
class Recalling(Everything):
    """Answers every image by what it says of the first image that it remembers."""

    def needs(self) -> Needs:
        return replace(super().needs(), recalls=True)

    def predictor(self, desk: Desk) -> Predict:
        said = desk.answers(desk.remembered()).logits.rows[:1]
        return lambda logits, features: said.expand(len(logits), -1)


def test_a_look_at_the_memory_is_that_of_the_net_that_answers() -> None:
    task, learner = tiny_tasks(1)[0], a_learner(Recalling())
    learner.learn(task)
    images, expected = learner.memory.images[:1].numpy(), []
    for net in (learner.model.averages[FIRST.name], learner.net):
        with no_grad():
            net.eval()
            expected.append(net.decode(net.encode(learner.model.shown(images))).numpy())
            net.train()
    assert abs(expected[0] - expected[1]).max() > 1e-3
    assert abs(learner.answers(task.images).first - expected[0]).max() < 1e-5


@each
def test_learners_that_take_turns_are_what_they_are_alone(method: Method, tmp_path: Path) -> None:
    tasks = tiny_tasks(3, images=18)
    alone, others = a_learner(method), [a_learner(method) for _ in range(3)]

    def way(learner: Learner) -> Iterator[Progress]:
        for task in tasks:
            yield from learner.learning(task)

    list(way(alone))
    list(take_turns(map(way, others), 2, "cpu"))
    assert {saved(learner, tmp_path) for learner in others} == {saved(alone, tmp_path)}
