"""A growing head: what is known stays as it is, in the net and in its teacher."""

import pytest
import torch
from torch import Tensor

from ider.nets import NETS, Shape, TwoInputNet

OLD, NEW = 3, 5


def build(label_input: bool = True) -> TwoInputNet:
    torch.manual_seed(0)
    return NETS["small-conv"](Shape((1, 6, 6), OLD, 4, 1, label_input)).double()


def normal(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def grow(net: TwoInputNet, classes: int = NEW, seed: int = 1) -> TwoInputNet:
    net.grow(classes, torch.Generator().manual_seed(seed))
    return net


def frozen(net: TwoInputNet, statistics: str) -> TwoInputNet:
    return net if statistics == "learning" else net.frozen(statistics)


def test_head_and_label_input_widen() -> None:
    net = grow(build())
    assert net.label is not None
    assert net.classes == NEW
    assert net.head.weight.shape[0] == net.head.bias.shape[0] == NEW
    assert net.label.weight.shape == (4, NEW)
    assert grow(build(label_input=False)).label is None


@pytest.mark.parametrize("statistics", ["learning", "batch", "running"])
@pytest.mark.parametrize("second", ["prior", "distribution", "one class"])
def test_the_logits_of_old_classes_do_not_move(statistics: str, second: str) -> None:
    net = frozen(build(), statistics)
    z = net.encode(normal(6, 1, 6, 6))
    y = (
        normal(6, OLD, seed=6).softmax(-1)
        if second == "distribution"
        else torch.eye(OLD, dtype=torch.float64)[[0, 1, 2] * 2]
    )
    before = net.decode(z, None if second == "prior" else y)
    grow(net)
    padded = torch.cat([y, y.new_zeros(6, NEW - OLD)], 1)
    after = net.decode(z, None if second == "prior" else padded)
    torch.testing.assert_close(after[:, :OLD], before, rtol=0, atol=1e-12)


def test_a_new_class_says_nothing_as_second_input() -> None:
    net = grow(build())
    z, new = net.encode(normal(6, 1, 6, 6)), torch.eye(NEW, dtype=torch.float64)[-1].expand(6, -1)
    torch.testing.assert_close(net.decode(z, new), net.decode(z), rtol=0, atol=1e-12)


def test_growing_by_steps_keeps_the_old_logits_too() -> None:
    net = build()
    z = net.encode(normal(6, 1, 6, 6))
    before = net.decode(z)
    grow(grow(net, 4), 7, seed=2)
    torch.testing.assert_close(net.decode(z)[:, :OLD], before, rtol=0, atol=1e-12)


def test_net_and_teacher_grow_alike_from_the_same_seed() -> None:
    net = build()
    teacher = grow(net.frozen("batch"))
    grow(net)
    assert all(torch.equal(value, teacher.state_dict()[name]) for name, value in net.state_dict().items())
    assert not torch.equal(grow(build(), seed=2).head.weight[OLD:], net.head.weight[OLD:])


def test_new_rows_are_drawn_like_those_of_a_fresh_layer() -> None:
    net = build()
    grow(net, 2000)
    rows = torch.cat([net.head.weight[OLD:], net.head.bias[OLD:, None]], 1).detach()
    bound = net.head.in_features**-0.5
    assert rows.abs().max() <= bound
    assert rows.std().item() == pytest.approx(bound / 3**0.5, rel=0.01)
    assert rows.mean().item() == pytest.approx(0, abs=0.01 * bound)


@pytest.mark.parametrize("statistics", ["learning", "batch", "running"])
def test_a_teacher_stays_frozen_and_a_net_keeps_learning(statistics: str) -> None:
    net = frozen(build(), statistics)
    learns = [weight.requires_grad for weight in net.parameters()]
    grow(net)
    assert [weight.requires_grad for weight in net.parameters()] == learns
    assert all(weight.is_leaf for weight in net.parameters())
    assert {weight.dtype for weight in net.parameters()} == {torch.float64}


def test_growing_to_the_same_width_changes_nothing() -> None:
    net = build()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    grow(net, OLD)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_growing_draws_from_the_given_generator_alone() -> None:
    net, before = build(), torch.get_rng_state()
    grow(net)
    assert torch.equal(torch.get_rng_state(), before)
