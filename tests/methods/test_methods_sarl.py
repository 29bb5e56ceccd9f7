"""SARL: every term from its definition by loops, groups, prototypes, and when they begin (spec 5)."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from support import Hand, answer_of, batch_of, classes_of, terms_of

from ider.methods.sarl import ACTIVE, COUNTS, GROUPS, LEARNED, SARL, SUMS
from ider.types import CURRENT, Answer, Batch, Field, Parts, Samples, Sparsity, Teacher

CLASSES, FEATURES = 6, 5
PAST, NEW = (0, 1, 2), (3, 4)
RNG = np.random.default_rng(5)
X = np.abs(RNG.normal(size=(13, FEATURES)))
Y = np.array([3, 4, 3, 3, 4, 4, 3, 0, 1, 1, 4, 0, 3])  # seven current ones, six replayed
W, OLD, STORED = (RNG.normal(size=shape) for shape in ((FEATURES, CLASSES), (FEATURES, CLASSES), (6, CLASSES)))


class LinearNet:
    """Features are the images."""

    def __init__(self, weight: np.ndarray) -> None:
        self.weight = weight

    def encode(self, images: Parts) -> Parts:
        return images

    def decode(self, z: Parts, y: Parts | None = None, keep: torch.Tensor | None = None) -> Answer:
        return answer_of(z, z.rows @ torch.tensor(self.weight))


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
