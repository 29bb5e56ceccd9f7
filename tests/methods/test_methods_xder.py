"""X-DER: every term by loops on fixed logits, logit surgery, counters, and what is done after a task (spec 6.7)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Hand, answer_of, batch_of, classes_of, terms_of

from ider.methods import XDER
from ider.methods.xder import COUNTER
from ider.types import CURRENT, Answer, Batch, Choice, Draw, Field, LabelledViews, Parts, Samples, Views

C, BLOCK = 10, 2
RNG = np.random.default_rng(11)
Z = RNG.normal(size=(13, C)) * 2  # the images are their own logits
Y = np.array([4, 5, 5, 4, 5, 0, 3, 2, 1, 1, 0, 3, 2])
SIZES = {CURRENT: 5, "recalled": 4, "replay": 4}
SLOTS = np.array([3, 0, 7, 5, 7, 2, 3, 1])  # 7 and 3 twice
LOGITS, COUNTS = RNG.normal(size=(8, C)) * 2, np.array([0.0, 1, 2, 3, 2, 0, 0, 1])
DICE = np.array([0.999, 0.49, 0.34, 0.24, 0.3, 0.99, 0.2, 0.51])
VIEWED = np.repeat([4, 5, 4, 2], 3)
V = RNG.normal(size=(12, C))


class Mirror:
    """A net whose logits are its images; it notes whether its running statistics would have moved."""

    def __init__(self, tracks: bool = True) -> None:
        self.tracks, self.seen = tracks, []

    def encode(self, images: Parts) -> Parts:
        self.seen.append((self.tracks, images.groups))
        return images

    def decode(self, z: Parts, y: Parts | None = None, keep: torch.Tensor | None = None) -> Answer:
        assert y is keep is None
        return answer_of(z, z.rows)

    def untracked(self) -> "Mirror":
        quiet = Mirror(tracks=False)
        quiet.seen = self.seen
        return quiet


def a_batch(past: range = range(4), now: range = range(4, 6), memory: int = 8, views: bool = True) -> Batch:
    """A step of the task with the classes `now`; nothing is drawn from a memory of 0."""
    sizes = SIZES if memory else {CURRENT: 5}
    names = {name: size for name, size in sizes.items() if name != CURRENT}
    shown = Parts(torch.tensor(V), {"views": 12}), Parts(torch.tensor(VIEWED), {"views": 12})
    dice = Parts(torch.tensor(DICE[:memory]), names)
    return batch_of(
        torch.tensor(Z[: 5 + memory]),
        torch.tensor(Y[: 5 + memory]),
        sizes,
        classes=classes_of(C, past, now, len(past) // BLOCK, BLOCK),
        slots=Parts(torch.tensor(SLOTS[:memory]), names),
        stored={"logits": torch.tensor(LOGITS[:memory]), COUNTER: torch.tensor(COUNTS[:memory])},
        dice={name: dice[name] for name in names},
        views=LabelledViews(*shown) if views else None,
    )


def first_task() -> Batch:
    return a_batch(range(0), memory=0)


def log_softmax(row: np.ndarray) -> np.ndarray:
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


def mean_of_positive(values: list[float]) -> float:
    positive = [value for value in values if value > 0]
    return sum(positive) / len(positive) if positive else 0.0


def contrast(outputs: np.ndarray, labels: np.ndarray, heads: list[range], views: int, tau: float) -> float:
    """Supervised contrastive loss, anchor by anchor."""
    total = 0.0
    for head in heads:
        unit = [row[list(head)] / np.linalg.norm(row[list(head)]) for row in outputs]
        for i in range(len(unit)):
            others = [j for j in range(len(unit)) if j != i]
            denominator = np.log(sum(np.exp(unit[i] @ unit[j] / tau) for j in others))
            alike = [unit[i] @ unit[j] / tau - denominator for j in others if labels[j] == labels[i]]
            total -= sum(alike) / len(alike) / views
    return total / (len(heads) * (len(outputs) // views))


METHOD = XDER(
    logit_weight=0.2,
    replay_weight=0.7,
    margin=0.9,
    margin_weight=0.3,
    contrast_weight=0.5,
    contrast_temperature=3.0,
    contrast_views=3,
)


def expected_terms() -> dict[str, float]:
    """By the table of the specification, in task 2 of 5 with 2 classes each."""
    short = []
    for z in Z[:5]:
        p = np.exp(log_softmax(z[:6]))
        short.append(max(p[:4]) + 0.9 - max(p[4:]))
    past = mean_of_positive(short)
    short, met = [], set()
    for row, z in enumerate(Z):
        if row >= 5:
            if SLOTS[row - 5] in met:
                continue
            met.add(SLOTS[row - 5])
        head = Y[row] // BLOCK * BLOCK
        short.append(max(z[6:]) + 0.9 - max(z[head : head + BLOCK]))
    assert len(short) == 5 + 6
    future = mean_of_positive(short)
    return {
        "current": -np.mean([log_softmax(z[4:6])[y - 4] for z, y in zip(Z[:5], Y[:5], strict=True)]),
        "recalled": 0.2 * ((Z[5:9] - LOGITS[:4]) ** 2).mean(),
        "replay": -0.7 * np.mean([log_softmax(z[:4])[y] for z, y in zip(Z[9:], Y[9:], strict=True)]),
        "past": 0.3 * past,
        "future": 0.3 * future,
        "contrast": 0.5 * contrast(V, VIEWED, [range(6, 8), range(8, 10)], 3, 3.0),
    }


def values(batch: Batch, method: XDER = METHOD) -> dict[str, float]:
    return {name: term.item() for name, term in terms_of(method, Mirror(), None, batch).items()}


def test_all_terms_by_loops() -> None:
    found = values(a_batch())
    assert found == pytest.approx(expected_terms(), rel=1e-5)
    assert min(found.values()) > 0


def test_each_part_and_the_views_go_through_the_net_once_and_the_views_leave_no_trace() -> None:
    net = Mirror()
    terms_of(METHOD, net, None, a_batch())
    assert net.seen == [(True, (5, 4, 4)), (False, (12,))]


def test_the_first_task_has_no_past_and_no_memory() -> None:
    found = values(first_task())
    assert set(found) == {"current", "past", "future", "contrast"}
    assert found["past"] == 0
    assert min(found[name] for name in ("current", "future", "contrast")) > 0


def test_the_last_task_has_no_future() -> None:
    found = values(a_batch(range(4), range(4, 10)))
    assert found["future"] == found["contrast"] == 0
    assert found["past"] > 0
    assert found["recalled"] == pytest.approx(expected_terms()["recalled"], rel=1e-5)


def test_a_last_head_of_fewer_classes_counts_with_those_it_has() -> None:
    """Nine classes in blocks of two: the last head is class 8 alone, whose direction is its sign."""
    shown = Parts(torch.tensor(V[:, :9]), {"views": 12}), Parts(torch.tensor(VIEWED), {"views": 12})
    narrow = batch_of(
        torch.tensor(Z[:5, :9]),
        torch.tensor(Y[:5]),
        {CURRENT: 5},
        classes=classes_of(9, range(4), range(4, 6), 2, BLOCK),
        views=LabelledViews(*shown),
    )
    expected = 0.5 * contrast(V[:, :9], VIEWED, [range(6, 8), range(8, 9)], 3, 3.0)
    assert values(narrow)["contrast"] == pytest.approx(expected, rel=1e-5)


def test_in_tasks_of_unequal_size_no_class_to_come_belongs_to_the_present_head() -> None:
    """Task 1 brings class 3 alone of the block (3, 4, 5): the margin is to be kept from 4 and 5."""
    logits = torch.tensor([[0.0, 0, 0, 1, 5, 0, 0]], dtype=torch.float64)
    batch = batch_of(logits, torch.tensor([3]), {CURRENT: 1}, classes=classes_of(7, range(3), [3], 1, 3))
    found = values(batch, XDER(margin=0.5, margin_weight=1.0))
    assert found["future"] == pytest.approx(5 + 0.5 - 1)


def test_no_gradient_goes_through_the_past_s_best_probability() -> None:
    batch = a_batch()
    images = batch.images.rows.requires_grad_()
    (found,) = torch.autograd.grad(terms_of(METHOD, Mirror(), None, batch)["past"], images)
    step, expected = 1e-6, np.zeros_like(Z)

    def margins(z: np.ndarray, bar: float) -> float:
        return bar + 0.9 - np.exp(log_softmax(z[:6]))[4:].max()

    bars = [np.exp(log_softmax(z[:6]))[:4].max() for z in Z[:5]]
    count = sum(margins(z, bar) > 0 for z, bar in zip(Z[:5], bars, strict=True))
    for row, bar in enumerate(bars):
        if margins(Z[row], bar) > 0:
            for c in range(C):
                nudge = np.eye(C)[c] * step
                slope = (margins(Z[row] + nudge, bar) - margins(Z[row] - nudge, bar)) / (2 * step)
                expected[row, c] = 0.3 * slope / count
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert np.abs(expected).max() > 1e-3


def test_a_single_view_has_nothing_to_compare_with() -> None:
    rows = torch.tensor(V[:1], requires_grad=True)
    shown = LabelledViews(Parts(rows, {"views": 1}), Parts(torch.tensor([4]), {"views": 1}))
    batch = batch_of(torch.tensor(Z[:1]), torch.tensor(Y[:1]), {CURRENT: 1}, views=shown)
    batch = Batch(**{**vars(batch), "classes": classes_of(C, (), (4, 5), 0, BLOCK)})
    term = terms_of(XDER(contrast_views=1), Mirror(), None, batch)["contrast"]
    assert term.item() == 0
    assert torch.autograd.grad(term, rows)[0].abs().max() == 0


def test_without_a_contrastive_term_there_are_no_views() -> None:
    method = XDER(contrast_weight=0.0)
    assert method.needs().views is None
    assert "contrast" not in values(a_batch(views=False), method)


def test_what_it_asks_for() -> None:
    needs = METHOD.needs()
    assert needs.views == Views(current=64, memory=64, times=3)
    assert needs.draws == (Draw("recalled"), Draw("replay"))
    assert needs.stores == (Field("logits", per_class=True), Field(COUNTER))
    assert (needs.memory, needs.policy, needs.disjoint, needs.teacher) == ("tasks", "class-quota", True, None)


def graft(old: np.ndarray, new: np.ndarray, label: int, where: range, factor: float) -> np.ndarray:
    """One row, by the text; true logits here are positive."""
    true, put = old[label], new[list(where)].copy()
    if put.max() > true:
        put *= factor * true / put.max()
    result = old.copy()
    result[list(where)] = put
    return result


def test_grafting_is_the_formula_row_by_row() -> None:
    old, new, labels = np.abs(LOGITS), Z[:8], Y[5:]
    found = XDER(graft_factor=0.8).graft(
        torch.tensor(old), torch.tensor(new), torch.tensor(labels), torch.arange(C) >= 4
    )
    expected = [graft(*row, range(4, C), 0.8) for row in zip(old, new, labels, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    exceeded = new[:, 4:].max(1) > old[np.arange(8), labels]
    assert 0 < exceeded.sum() < 8
    np.testing.assert_allclose(
        found.numpy()[exceeded, 4:].max(1), 0.8 * old[np.arange(8), labels][exceeded], rtol=1e-12
    )


rows = st.lists(st.floats(-50, 50), min_size=6, max_size=6)


@settings(deadline=None, max_examples=200)
@given(old=rows, new=rows, label=st.integers(0, 2), factor=st.floats(0, 1))
def test_a_grafted_logit_never_exceeds_the_true_class_and_stays_bounded(
    old: list[float], new: list[float], label: int, factor: float
) -> None:
    found = XDER(graft_factor=factor).graft(
        torch.tensor([old]), torch.tensor([new]), torch.tensor([label]), torch.arange(6) >= 3
    )[0]
    assert found[:3].tolist() == torch.tensor(old[:3]).tolist()
    most, true = max(new[3:]), old[label]
    if most <= true:
        assert found[3:].tolist() == torch.tensor(new[3:]).tolist()
    else:
        limit = factor * true if true > 0 else true
        assert found[3:].max().item() == pytest.approx(limit, rel=1e-5, abs=1e-5)
    assert found.abs().max() <= 200


def test_a_true_logit_below_zero_does_not_let_the_others_explode() -> None:
    """The factor of the formula would be -1,700,000 here, and a class the net thinks impossible the likeliest."""
    found = XDER().graft(
        torch.tensor([[-2.0, 0, 0]]), torch.tensor([[0.0, 1e-6, -3]]), torch.tensor([0]), torch.arange(3) > 0
    )
    np.testing.assert_allclose(found[0].numpy(), [-2, -2, -5], rtol=1e-5)


def test_stored_logits_take_in_the_present_with_a_chance_of_one_in_the_count() -> None:
    batch = a_batch()
    revised = METHOD.revised(answer_of(batch.images, batch.images.rows.float()), batch)
    np.testing.assert_array_equal(revised[COUNTER].rows.numpy(), COUNTS + 1)
    chosen = DICE < 1 / (COUNTS + 1)
    assert chosen.tolist() == [True, True, False, True, True, True, True, False]
    for row in range(8):
        expected = LOGITS[row]
        if chosen[row]:
            now, label = torch.tensor(Z[5 + row][None]), torch.tensor([Y[5 + row]])
            expected = METHOD.graft(torch.tensor(expected[None]), now, label, torch.arange(C) >= 4)[0].numpy()
        np.testing.assert_allclose(revised["logits"].rows[row].numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(revised["logits"].rows[:, :4].numpy(), LOGITS[:, :4])


def test_nothing_is_revised_without_a_memory() -> None:
    batch = first_task()
    assert METHOD.revised(answer_of(batch.images, batch.images.rows), batch) == {}


class Desk(Hand):
    """Two samples stay, three enter; answers are given one after the other."""

    def choose(self) -> Choice:
        return Choice(torch.tensor([1, 3]), torch.tensor([2, 0, 1]))

    def answers(self, samples: Samples, augmented: bool = False, statistics: str = "running") -> Answer:
        assert (augmented, statistics) == (True, "batch")
        self.calls.append(samples.labels.tolist())
        parts = Parts(torch.tensor(self.outputs[len(self.calls) - 1]), {CURRENT: len(samples)})
        return Answer(parts, parts)

    def refill(self, choice: Choice, **fields: torch.Tensor) -> None:
        self.entered = fields["logits"].clone()
        assert fields[COUNTER].tolist() == [0, 0, 0]
        self.fields["logits"] = torch.cat([self.fields["logits"][choice.stay], fields["logits"]])
        self.fields[COUNTER] = torch.ones(5)

    def remembered(self) -> Samples:
        return Samples(torch.zeros(5, 1), torch.tensor([1, 3, 4, 4, 5]))

    def stored(self, field: str) -> torch.Tensor:
        return self.fields[field]


def a_desk(past: range) -> Desk:
    outputs = [np.abs(RNG.normal(size=(3, C))), np.abs(RNG.normal(size=(5, C)))]
    return Desk(
        outputs=outputs,
        classes=classes_of(C, past, range(4, 6), len(past) // BLOCK, BLOCK),
        task=Samples(torch.zeros(3, 1), torch.tensor([4, 5, 4])),
        fields={"logits": torch.tensor(np.abs(LOGITS[:4])), COUNTER: torch.ones(4)},
    )


def test_after_a_task_new_samples_have_a_bounded_past_and_old_ones_the_present() -> None:
    desk = a_desk(range(4))
    METHOD.after_task(desk)
    assert desk.calls == [[4, 4, 5], [1, 3, 4, 4, 5]]
    outputs = desk.outputs
    new = [graft(z, z, y, range(4), 0.85) for z, y in zip(outputs[0], (4, 4, 5), strict=True)]
    np.testing.assert_allclose(desk.entered.numpy(), new, rtol=1e-6)
    stayed = np.abs(LOGITS)[[1, 3]]
    old = [graft(z, now, y, range(4, C), 0.85) for z, now, y in zip(stayed, outputs[1][:2], (1, 3), strict=True)]
    np.testing.assert_allclose(desk.fields["logits"].numpy(), [*old, *new], rtol=1e-6)
    assert not desk.fields[COUNTER].any()
    assert np.abs(np.array(new) - outputs[0]).max() > 0.01


def test_after_the_first_task_logits_are_stored_as_they_are() -> None:
    desk = a_desk(range(0))
    METHOD.after_task(desk)
    np.testing.assert_allclose(desk.entered.numpy(), desk.outputs[0], rtol=1e-6)
    np.testing.assert_allclose(desk.fields["logits"][2:].numpy(), desk.outputs[0], rtol=1e-6)
