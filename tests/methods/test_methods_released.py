"""Whole training losses against the released step (spec 6.3 and 6.12 [R]), derived anew: in NumPy and pass by pass.

The NumPy net below repeats the small net from its formulas, with batch statistics; the released step sends every part
through it separately, the current images twice. Ours sends all parts at once and each of them once.
"""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import softmax
from support import Array, ByHand, batch_of, ce, terms_of, two_nets, values
from torch import Tensor

from ider.methods import ER, METHODS, Finetune, Idempotent
from ider.methods.er import REPLAY
from ider.methods.idempotence import DISTILL
from ider.nets import TwoInputNet, View
from ider.nets.norm import PartNorm2d
from ider.protocols import Method
from ider.types import CURRENT, Batch, Teacher

CLASSES = 5
SIZES = {CURRENT: 6, REPLAY: 5, DISTILL: 4}


def nets(seed: int = 0) -> tuple[TwoInputNet, TwoInputNet]:
    return two_nets(CLASSES, seed)


def batch(method: Method, sizes: dict[str, int], coins: dict[str, float] | None = None) -> Batch:
    rng, count, mixed = np.random.default_rng(1), sum(sizes.values()), method.needs().mixed
    images, labels = rng.normal(size=(count, 1, 6, 6)), rng.integers(0, CLASSES, count)
    tensors = {name: torch.tensor(coin) for name, coin in (coins or {}).items()}
    return batch_of(torch.tensor(images), torch.tensor(labels), sizes, mixed, coins=tensors)


def view(old: TwoInputNet, statistics: Any = "batch") -> View:
    return View(old.frozen(statistics), Teacher(statistics=statistics))


def released(
    net: ByHand, old: ByHand | None, step: Batch, weights: dict[str, float], one_hot: tuple[str, ...] = ()
) -> dict[str, float]:
    """Steps 1 to 4 of the specification; `one_hot`: the parts whose coin chose the label."""

    def answers(name: str) -> tuple[Array, Array]:
        x, y = step.images[name].numpy(), step.labels[name].numpy()
        u = np.eye(CLASSES)[y] if name in one_hot else net.prior(len(x))
        h = net.trunk(x)
        y1 = net.head(h, u)
        return y1, net.head(h, softmax(y1, 1))

    def fixed_point(name: str) -> float:
        assert old is not None
        x = step.images[name].numpy()
        a1 = net.head(net.trunk(x), net.prior(len(x)))
        a2 = old.head(old.trunk(x), softmax(a1, 1))
        return float(((a1 - a2) ** 2).mean())

    found = {}
    y1, y2 = answers(CURRENT)
    labels = step.labels[CURRENT].numpy()
    found |= {"first/current": 0.5 * ce(y1, labels), "second/current": 0.5 * ce(y2, labels)}
    if old is not None:
        found["fixed_point/current"] = weights["cur"] * fixed_point(CURRENT)
    if REPLAY in step.images:
        y1, y2 = answers(REPLAY)
        labels = step.labels[REPLAY].numpy()
        found |= {
            "first/replay": weights["rep"] * ce(y1, labels),
            "second/replay": weights["rep"] * ce(y2, labels),
        }
        if old is not None:
            found["fixed_point/distill"] = weights["mem"] * fixed_point(DISTILL)
    return found


RELEASED = {"mem": 0.5, "cur": 0.4, "rep": 0.5}


def test_er_id_with_its_defaults_is_the_released_step() -> None:
    net, old = nets()
    step = batch(METHODS["er+id"], SIZES)
    expected = released(ByHand(net), ByHand(old), step, RELEASED)
    found = values(terms_of(METHODS["er+id"], View(net), view(old), step))
    assert found == pytest.approx(expected, rel=1e-6)
    assert sum(found.values()) == pytest.approx(sum(expected.values()), rel=1e-6)
    assert min(found.values()) > 1e-3


@pytest.mark.parametrize("sizes", [{CURRENT: 6}, {CURRENT: 6, REPLAY: 5}, {CURRENT: 1, REPLAY: 1}])
def test_in_the_first_task_there_is_no_fixed_point_term(sizes: dict[str, int]) -> None:
    net, _ = nets()
    step = batch(METHODS["er+id"], sizes)
    found = values(terms_of(METHODS["er+id"], View(net), None, step))
    assert found == pytest.approx(released(ByHand(net), None, step, RELEASED), rel=1e-6)
    assert not any(name.startswith("fixed_point") for name in found)


def test_with_a_teacher_and_no_memory_only_the_current_images_have_a_fixed_point_term() -> None:
    net, old = nets()
    step = batch(METHODS["er+id"], {CURRENT: 6})
    found = values(terms_of(METHODS["er+id"], View(net), view(old), step))
    assert found == pytest.approx(released(ByHand(net), ByHand(old), step, RELEASED), rel=1e-6)
    assert set(found) == {"first/current", "second/current", "fixed_point/current"}


def test_other_weights_and_the_running_statistics_of_the_teacher() -> None:
    net, old = nets()
    method = Idempotent(
        base=ER(mixed=False, replay_weight=3.0),
        current_weight=0.05,
        memory_weight=0.07,
        teacher_statistics="running",
    )
    step = batch(method, SIZES)
    expected = released(ByHand(net), ByHand(old, "running"), step, {"mem": 0.07, "cur": 0.05, "rep": 1.5})
    assert values(terms_of(method, View(net), view(old, "running"), step)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("heads", [(), (CURRENT,), (REPLAY,), (CURRENT, REPLAY)])
def test_a_coin_turns_the_second_input_of_the_supervised_answers_into_the_label(heads: tuple[str, ...]) -> None:
    net, old = nets()
    method = Idempotent(prior_probability=0.6)
    step = batch(method, SIZES, {name: 0.61 if name in heads else 0.6 for name in (CURRENT, REPLAY)})
    expected = released(ByHand(net), ByHand(old), step, RELEASED, heads)
    assert values(terms_of(method, View(net), view(old), step)) == pytest.approx(expected, rel=1e-6)


def test_mixed_er_is_one_mean_over_one_pass_of_the_joint_batch() -> None:
    net, _ = nets()
    step = batch(ER(), {CURRENT: 6, REPLAY: 5})
    by_hand = ByHand(net)
    logits = by_hand.head(by_hand.trunk(step.images.rows.numpy()), by_hand.prior(11))
    found = values(terms_of(ER(), View(net), None, step))
    assert found == {"all": pytest.approx(ce(logits, step.labels.rows.numpy()), rel=1e-6)}


@pytest.mark.parametrize("method", [ER(mixed=False), Finetune()])
def test_separate_parts_have_their_own_statistics(method: ER | Finetune) -> None:
    net, _ = nets()
    step = batch(method, {CURRENT: 6} | {draw.name: 5 for draw in method.needs().draws})
    by_hand, expected = ByHand(net), {}
    for name in step.images.sizes:
        x = step.images[name].numpy()
        expected[name] = ce(by_hand.head(by_hand.trunk(x), by_hand.prior(len(x))), step.labels[name].numpy())
    assert values(terms_of(method, View(net), None, step)) == pytest.approx(expected, rel=1e-6)


def pass_by_pass(net: TwoInputNet, old: TwoInputNet, step: Batch) -> Tensor:
    """The released step with torch: nothing shared, nothing detached, the old net in train mode and not frozen."""

    def answers(some: TwoInputNet, x: Tensor) -> tuple[Tensor, Tensor]:
        h = some.encode(x)
        y1 = some.decode(h, torch.full((len(x), CLASSES), 1 / CLASSES, dtype=x.dtype))
        return y1, some.decode(h, y1.softmax(1))

    def fixed_point(x: Tensor) -> Tensor:
        a1 = net.decode(net.encode(x), torch.full((len(x), CLASSES), 1 / CLASSES, dtype=x.dtype))
        return F.mse_loss(a1, old.decode(old.encode(x), a1.softmax(1)))

    x, m, d = (step.images[name] for name in (CURRENT, REPLAY, DISTILL))
    loss = 0.5 * sum(F.cross_entropy(y, step.labels[CURRENT]) for y in answers(net, x)) + 0.4 * fixed_point(x)
    loss = loss + 0.5 * sum(F.cross_entropy(y, step.labels[REPLAY]) for y in answers(net, m))
    return loss + 0.5 * fixed_point(d)


def test_shared_passes_leave_the_gradient_of_the_released_step_as_it_is() -> None:
    net, old = nets()
    apart, step = copy.deepcopy(net), batch(METHODS["er+id"], SIZES)
    loss = torch.stack(list(terms_of(METHODS["er+id"], View(net), view(old), step).values())).sum()
    loss.backward()
    pass_by_pass(apart, copy.deepcopy(old), step).backward()
    for (name, ours), theirs in zip(net.named_parameters(), apart.parameters(), strict=True):
        assert ours.grad is not None, name
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-7, msg=name)


def watch(net: TwoInputNet) -> list[tuple[str, tuple[int, ...]]]:
    """A list in which every normalisation layer notes the groups that go through it."""
    seen: list[tuple[str, tuple[int, ...]]] = []
    for half in ("lower", "upper"):
        for module in getattr(net, half).modules():
            if isinstance(module, PartNorm2d):
                module.register_forward_hook(lambda _, args, __, half=half: seen.append((half, args[1])))
    return seen


def test_shared_work_is_done_once() -> None:
    net, old = nets()
    teacher = old.frozen("batch")
    through_net, through_teacher = watch(net), watch(teacher)
    terms_of(METHODS["er+id"], View(net), View(teacher, Teacher()), batch(METHODS["er+id"], SIZES))
    assert through_net == [("lower", (6, 5, 4)), ("upper", (6, 5, 4)), ("upper", (6, 5))]
    assert through_teacher == [("lower", (6, 4)), ("upper", (6, 4))]
