"""SARL: every term from its definition by loops, groups, prototypes, and when they begin (spec 5)."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from support import Hand, LinearNet, batch_of, classes_of, terms_of

from ider import Learner, Task
from ider.config import EngineConfig, LearnerConfig, MemoryConfig, NetConfig, TrainConfig
from ider.methods.sarl import ACTIVE, COUNTS, GROUPS, LEARNED, MET, MET_COUNTS, SARL, STEPS, SUMS
from ider.types import CURRENT, Answer, Batch, Field, Parts, Samples, Sparsity, Teacher

CLASSES, FEATURES = 6, 5
PAST, NEW = (0, 1, 2), (3, 4)
RNG = np.random.default_rng(5)
X = np.abs(RNG.normal(size=(13, FEATURES)))
Y = np.array([3, 4, 3, 3, 4, 4, 3, 0, 1, 1, 4, 0, 3])  # seven current ones, six replayed
W, OLD, STORED = (RNG.normal(size=shape) for shape in ((FEATURES, CLASSES), (FEATURES, CLASSES), (6, CLASSES)))


def state(active: float = 1.0) -> dict[str, torch.Tensor]:
    made = dict(SARL().state({}, CLASSES, FEATURES))
    made[SUMS] = torch.tensor(np.abs(RNG.normal(size=(CLASSES, FEATURES)))).float()
    made[COUNTS] = torch.tensor([4.0, 3, 2, 0, 0, 0])
    made[LEARNED][list(PAST)] = True
    made[GROUPS] = torch.tensor(RNG.random((CLASSES, CLASSES)) < 0.5)
    made[GROUPS].fill_diagonal_(True)
    made[ACTIVE] = torch.tensor(active)
    return made


def a_batch(held: dict[str, torch.Tensor]) -> Batch:
    return batch_of(
        torch.tensor(X),
        torch.tensor(Y),
        {CURRENT: 7, "replay": 6},
        state=held,
        stored={"logits": torch.tensor(STORED)},
        classes=classes_of(CLASSES, PAST, NEW, 1),
    )


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_all_terms_by_loops() -> None:
    method, held = SARL(logit_weight=0.2, prototype_weight=0.5, distill_weight=1.5, group_weight=0.7), state()
    terms = terms_of(method, LinearNet(W), LinearNet(OLD), a_batch(held))
    rows, h = -log_softmax(X @ W, 1)[np.arange(13), Y], unit(X)
    sums, counts = held[SUMS].double().numpy(), held[COUNTS].numpy()
    prototype = {c: sums[c] / counts[c] for c in PAST}
    expected = {
        "current": rows[:7].mean(),
        "replay": rows[7:].mean(),
        "recalled": 0.2 * ((X[7:] @ W - STORED) ** 2).mean(),
        "distill": 1.5 * ((X[:7] @ W - X[:7] @ OLD) ** 2).mean(),
    }
    expected["prototypes"] = 0.5 * sum(
        ((h[7:][Y[7:] == c].mean(0) - prototype[c]) ** 2).mean() for c in PAST if (Y[7:] == c).any()
    )
    point = prototype | {c: h[:7][Y[:7] == c].mean(0) for c in NEW}
    ratio = 0.0
    for c in NEW:
        within = without = 0.0
        for other in (*PAST, *NEW):
            if other != c:
                distance = ((point[c] - point[other]) ** 2).mean()
                within, without = (
                    (within + distance, without) if held[GROUPS][c, other] else (within, without + distance)
                )
        ratio += within / without if without else 0.0
    expected["groups"] = 0.7 * ratio
    assert ratio > 0
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-5)


def test_before_the_warm_up_is_over_neither_the_old_net_nor_groups_count() -> None:
    terms = terms_of(SARL(), LinearNet(W), LinearNet(OLD), a_batch(state(active=0.0)))
    assert terms["distill"].item() == terms["groups"].item() == 0
    assert terms["prototypes"].item() > 0


def test_the_first_task_has_no_term_of_the_past() -> None:
    terms = terms_of(SARL(), LinearNet(W), None, a_batch(state()))
    assert set(terms) == {"current", "replay", "recalled"}


def test_a_group_of_all_gives_no_repulsion_and_no_gradient_that_is_not_a_number() -> None:
    held = state()
    held[GROUPS].fill_(True)
    batch = a_batch(held)
    images = batch.images.rows.requires_grad_()
    term = terms_of(SARL(group_weight=1.0), LinearNet(W), LinearNet(OLD), batch)["groups"]
    assert term.item() == 0
    assert torch.autograd.grad(term, images)[0].isfinite().all()


def test_what_it_asks_for() -> None:
    needs = SARL(share=0.7).needs()
    assert needs.sparsity == Sparsity("local", (0.7,))
    assert needs.stores == (Field("logits", per_class=True),)
    assert needs.teacher == Teacher(statistics="running")


class Desk(Hand):
    """Features of the task are given; passes over samples are noted."""

    def answers(self, samples: Samples, augmented: bool = False, statistics: str = "running") -> Answer:
        assert (augmented, statistics) == (True, "running")
        self.calls.append("answers")
        parts = Parts(torch.tensor(X[:7]), {CURRENT: 7})
        return Answer(parts, parts)

    def re_estimate(self, samples: Samples) -> None:
        self.calls.append("re-estimate")


def desk(held: dict[str, torch.Tensor], past: tuple[int, ...] = PAST) -> Desk:
    task = Samples(torch.zeros(7, 1), torch.tensor(Y[:7]))
    return Desk(state=held, classes=classes_of(CLASSES, past, NEW, 1), task=task, remembered=lambda: task)


def test_groups_are_the_classes_whose_means_point_the_same_way() -> None:
    method, held = SARL(similarity=0.8, warm_up=2), state(active=0.0)
    method.after_epoch(desk(held), 1)
    assert held[ACTIVE] == 0
    method.after_epoch(desk(held), 2)
    assert held[ACTIVE] == 1
    sums, counts = held[SUMS].double().numpy(), held[COUNTS].numpy()
    mean = {c: sums[c] / counts[c] for c in PAST} | {c: unit(X[:7])[Y[:7] == c].mean(0) for c in NEW}
    expected = np.zeros((CLASSES, CLASSES), bool)
    for c in NEW:
        for other in mean:
            expected[c, other] = unit(mean[c]) @ unit(mean[other]) > 0.8
    np.testing.assert_array_equal(held[GROUPS].numpy(), expected)
    assert all(expected[c, c] for c in NEW)
    groups = held[GROUPS].clone()
    held[SUMS].zero_()
    method.after_epoch(desk(held), 3)
    assert torch.equal(held[GROUPS], groups)  # once a task
    method.before_task(desk(held))
    assert held[ACTIVE] == 0


def test_the_first_task_never_becomes_active() -> None:
    held = state(active=0.0)
    SARL(warm_up=0).after_epoch(desk(held, past=()), 0)
    assert held[ACTIVE] == 0


def test_after_a_task_statistics_come_first_and_prototypes_add_up() -> None:
    held = state()
    before, counts = held[SUMS].clone(), held[COUNTS].clone()
    here = desk(held)
    SARL().after_task(here)
    assert here.calls == ["re-estimate", "answers"]
    added = np.array([unit(X[:7])[Y[:7] == c].sum(0) for c in range(CLASSES)])
    np.testing.assert_allclose((held[SUMS] - before).numpy(), added, rtol=1e-4, atol=1e-6)
    assert (held[COUNTS] - counts).tolist() == [0, 0, 0, 4, 3, 0]
    assert held[LEARNED].nonzero().flatten().tolist() == [0, 1, 2, 3, 4]


def test_the_old_net_keeps_the_statistics_from_before_they_were_estimated_on_the_memory() -> None:
    learner = Learner(tiny(SARL()), seed=0).learn(tasks()[0])
    assert learner.teacher is not None
    for mine, theirs in zip(learner.teacher.parameters(), learner.net.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    for mine, theirs in zip(learner.teacher.norms(), learner.net.norms(), strict=True):
        assert not torch.equal(mine.running_mean, theirs.running_mean)
        assert not torch.equal(mine.running_var, theirs.running_var)


def test_distillation_and_groups_begin_after_the_warm_up_of_a_later_task() -> None:
    learner = Learner(tiny(SARL(warm_up=1, similarity=-0.5), epochs=4), seed=0)
    for task in tasks():
        learner.learn(task)
    first, later = learner.history[:4], learner.history[4:]
    assert not any("distill" in entry or "groups" in entry for entry in first)
    assert [entry["distill"] > 0 for entry in later] == [False, False, True, True]
    assert [entry["distill"] for entry in later[:2]] == [0, 0]


WARM = 2
STEPS_OF = [[3, 3, 4], [4, 3], [3, 5, 3], [5, 4, 3]]  # labels of four batches; class 5 comes after the warm-up only


def test_online_groups_come_from_the_first_batch_after_the_warm_up_and_prototypes_from_all_later_ones() -> None:
    method = SARL(warm_up_steps=WARM, similarity=0.8, distill_weight=1.0, group_weight=1.0)
    held = dict(method.state({}, CLASSES, FEATURES)) | {
        name: values for name, values in state(0.0).items() if name in (SUMS, COUNTS, LEARNED)
    }
    prototype = {c: (held[SUMS][c] / held[COUNTS][c]).double().numpy() for c in PAST}
    rng, met, expected = np.random.default_rng(8), {c: [] for c in (3, 4, 5)}, None
    for step, labels in enumerate(STEPS_OF):
        x = np.abs(rng.normal(size=(len(labels), FEATURES)))
        classes = classes_of(CLASSES, PAST, (3, 4, 5), 1)
        batch = batch_of(torch.tensor(x), torch.tensor(labels), {CURRENT: len(labels)}, state=held, classes=classes)
        outcome = method.step(LinearNet(W), LinearNet(OLD), batch)
        distance = ((x @ W - x @ OLD) ** 2).mean()
        assert outcome.terms["distill"].item() == pytest.approx(distance if step >= WARM else 0, rel=1e-5)
        if step >= WARM:
            for row, label in zip(unit(x), labels, strict=True):
                met[label].append(row)
        if step == WARM:
            mean = prototype | {c: np.mean(met[c], 0) for c in (3, 5)}
            expected = np.zeros((CLASSES, CLASSES), bool)
            for c in (3, 5):
                for other in mean:
                    expected[c, other] = unit(mean[c]) @ unit(mean[other]) > 0.8
        held = {name: values.clone() for name, values in (held | dict(outcome.state)).items()}
    np.testing.assert_array_equal(held[GROUPS].numpy(), expected)
    assert not held[GROUPS][4].any()  # it came in the warm-up, and too late for a group: an empty one
    for c in (3, 4, 5):
        np.testing.assert_allclose(held[MET][c], np.sum(met[c], 0), rtol=1e-5)
        assert held[MET_COUNTS][c] == len(met[c])
    here = desk(held)
    method.after_task(here)
    assert here.calls == ["re-estimate"]  # no extra pass over the task
    method.before_task(here)
    assert not any(held[name].any() for name in (STEPS, MET, MET_COUNTS, GROUPS, ACTIVE))


def test_online_a_class_that_came_in_the_warm_up_alone_has_no_prototype() -> None:
    method = SARL(warm_up_steps=WARM)
    held = dict(method.state({}, CLASSES, FEATURES))
    held[MET][3], held[MET_COUNTS][3] = torch.ones(FEATURES), torch.tensor(2.0)
    method.after_task(desk(held, past=()))
    assert held[LEARNED].nonzero().flatten().tolist() == [3]
    assert held[SUMS].isfinite().all()
    assert torch.equal(held[SUMS][3], torch.ones(FEATURES))


def test_online_it_asks_for_no_hook_after_epochs_and_resumes_in_mid_task(tmp_path) -> None:
    method = SARL(warm_up_steps=3)
    assert not method.needs().after_epochs
    whole = Learner(tiny(method), seed=1)
    for task in tasks():
        whole.learn(task)
    part = Learner(tiny(method), seed=1).learn(tasks()[0])
    for number, _ in enumerate(part.learning(tasks()[1])):
        if number == 4:
            part.save(tmp_path / "part")
            break
    rest = Learner.load(tmp_path / "part").learn(tasks()[1])
    for (name, mine), theirs in zip(whole.model.tensors().items(), rest.model.tensors().values(), strict=True):
        assert torch.equal(mine, theirs), name


def tasks() -> list[Task]:
    rng = np.random.default_rng(0)
    shape = (20, 1, 6, 6)
    return [Task(rng.integers(0, 256, shape).astype(np.uint8), 2 * n + np.arange(20) % 2) for n in range(2)]


def tiny(method: SARL, epochs: int = 2) -> LearnerConfig:
    return LearnerConfig(
        method=method,
        net=NetConfig(name="small-conv", width=4, classes=4),
        memory=MemoryConfig(size=10),
        train=TrainConfig(epochs=epochs, batch=5, replay_batch=4, lr=0.05),
        engine=EngineConfig(device="cpu", precision="fp32", capture="off", threads=1),
    )
