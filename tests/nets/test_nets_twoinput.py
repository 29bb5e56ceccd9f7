"""The two-input net and its view: the prior, the second input, parts together and apart, teachers, the small net."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ider.errors import UserError
from ider.nets import NETS, Shape, TwoInputNet, View
from ider.types import Parts, Teacher

CLASSES, SIZES = 4, {"current": 3, "replay": 2, "distill": 4}
SPLITS = {"resnet18": 4, "small-conv": 1}


def build(name: str, label_input: bool = True, shape: tuple[int, int, int] = (3, 8, 8), width: int = 3) -> TwoInputNet:
    torch.manual_seed(0)
    return NETS[name](Shape(shape, CLASSES, width, SPLITS[name], label_input)).double()


@pytest.fixture(params=sorted(NETS))
def net(request: pytest.FixtureRequest) -> TwoInputNet:
    return build(request.param)


def normal(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def images(rows: int = 9) -> Tensor:
    return normal(rows, 3, 8, 8)


def some_distribution(rows: int) -> Tensor:
    return normal(rows, CLASSES, seed=6).softmax(-1)


def test_every_net_has_a_cut_to_test() -> None:
    assert set(SPLITS) == set(NETS)


def test_the_prior_is_the_uniform_distribution(net: TwoInputNet) -> None:
    z = net.encode(images())
    uniform = torch.full((9, CLASSES), 1 / CLASSES, dtype=torch.float64)
    torch.testing.assert_close(net.decode(z), net.decode(z, uniform), rtol=1e-12, atol=1e-12)


def test_the_second_input_adds_one_constant_per_channel_to_the_map(net: TwoInputNet) -> None:
    assert net.label is not None
    z, y = net.encode(images()), some_distribution(9)
    scores = y.numpy() @ net.label.weight.detach().numpy().T + net.label.bias.detach().numpy()
    feature = torch.from_numpy(np.where(scores > 0, scores, 0.01 * scores))
    assert (feature < 0).any()
    assert (feature > 0).any()
    expected = net.head(net.upper(z + feature[:, :, None, None].expand_as(z)))
    torch.testing.assert_close(net.decode(z, y), expected, rtol=1e-10, atol=1e-12)
    assert (net.decode(z, y) - net.decode(z)).abs().max() > 1e-3


def test_the_answer_to_the_prior_knows_no_order_of_the_label_columns(net: TwoInputNet) -> None:
    assert net.label is not None
    x, y = images(), some_distribution(9)
    from_prior, from_y = net.decode(net.encode(x)), net.decode(net.encode(x), y)
    with torch.no_grad():
        net.label.weight.copy_(net.label.weight[:, [2, 0, 3, 1]])
    torch.testing.assert_close(net.decode(net.encode(x)), from_prior, rtol=1e-11, atol=1e-12)
    assert (net.decode(net.encode(x), y) - from_y).abs().max() > 1e-4


def test_with_the_prior_all_label_columns_have_the_same_gradient(net: TwoInputNet) -> None:
    assert net.label is not None
    F.cross_entropy(net.decode(net.encode(images())), torch.arange(9) % CLASSES).backward()
    gradient = net.label.weight.grad
    assert gradient is not None
    assert gradient.any()
    assert torch.equal(gradient, gradient[:, :1].expand_as(gradient))


def test_parts_together_equal_separate_passes_in_train_mode(net: TwoInputNet) -> None:
    apart = copy.deepcopy(net)
    sizes, x, y = list(SIZES.values()), images(), some_distribution(9)
    together = net.decode(net.encode(x, sizes), y, sizes)
    separate = torch.cat(
        [apart.decode(apart.encode(a), b) for a, b in zip(x.split(sizes), y.split(sizes), strict=True)]
    )
    torch.testing.assert_close(together, separate, rtol=1e-10, atol=1e-11)
    together.square().sum().backward()
    separate.square().sum().backward()
    gradients = [[weight.grad for weight in some.parameters()] for some in (net, apart)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)
    states = [list(some.state_dict().values()) for some in (net, apart)]
    torch.testing.assert_close(*states, rtol=1e-10, atol=1e-11)


def test_without_a_label_input_the_second_answer_is_the_first() -> None:
    net = build("small-conv", label_input=False)
    z = net.encode(images())
    assert torch.equal(net.decode(z, some_distribution(9)), net.decode(z))
    assert net.label is None


@pytest.mark.parametrize(
    ("shape", "features"), [((1, 8, 8), 6 * 16), ((3, 8, 8), 6 * 16), ((3, 7, 9), 6 * 20), ((1, 1, 1), 6)]
)
def test_the_small_net_takes_any_channels_and_odd_sizes(shape: tuple[int, int, int], features: int) -> None:
    net = build("small-conv", shape=shape)
    z = net.encode(normal(5, *shape))
    assert z.shape == (5, 3, *shape[1:])
    assert net.features(z).shape == (5, features)
    assert net.decode(z).shape == (5, CLASSES)
    weights = 9 * shape[0] * 3 + 2 * 3 + 9 * 3 * 6 + 2 * 6 + (features + 1) * CLASSES + (CLASSES + 1) * 3
    assert sum(weight.numel() for weight in net.parameters()) == weights


def test_the_small_net_has_one_cut() -> None:
    with pytest.raises(UserError, match=r"net\.split is 4; .* layer 1 only"):
        NETS["small-conv"](Shape((1, 8, 8), CLASSES, 3, 4, True))


@pytest.mark.parametrize("mixed", [False, True])
def test_a_view_answers_like_the_net_part_by_part(net: TwoInputNet, mixed: bool) -> None:
    parts = Parts(images(), SIZES, mixed)
    groups = (9,) if mixed else (3, 2, 4)
    expected = net.decode(net.encode(parts.rows, groups), None, groups)
    answer = View(net).decode(View(net).encode(parts)).logits
    assert torch.equal(answer.rows, expected)
    assert answer.sizes == SIZES
    assert answer.mixed is mixed


def test_a_frozen_copy_is_a_copy_that_no_step_can_change(net: TwoInputNet) -> None:
    net.decode(net.encode(images()))
    teacher = net.frozen("batch")
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(1)
    teacher.decode(teacher.encode(images()), some_distribution(9))
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert not any(weight.requires_grad for weight in teacher.parameters())
    assert all(weight.requires_grad for weight in net.parameters())
    assert net.training


def test_a_frozen_copy_normalises_as_it_was_told(net: TwoInputNet) -> None:
    for _ in range(3):
        net.encode(images())
    x = 2 * images() + 1
    by_batch, by_running = net.frozen("batch"), net.frozen("running")
    assert torch.equal(by_running.encode(x), net.eval().encode(x))
    assert torch.equal(by_batch.encode(x), net.train().encode(x))
    assert (by_batch.encode(x) - by_running.encode(x)).abs().max() > 0.1


def test_a_teacher_passes_the_gradient_of_its_second_input_only(net: TwoInputNet) -> None:
    teacher = View(net.frozen("batch"), Teacher())
    x, y = images().requires_grad_(), some_distribution(9).requires_grad_()
    z = teacher.encode(Parts(x, SIZES))
    assert not z.rows.requires_grad
    answer = teacher.decode(z, Parts(y, SIZES)).logits.rows
    answer.square().sum().backward()
    assert x.grad is None
    assert y.grad is not None
    assert y.grad.any(1).all()
    assert View(net).encode(Parts(x, SIZES)).rows.requires_grad


def test_a_view_leaves_no_graph_where_the_caller_wants_none(net: TwoInputNet) -> None:
    with torch.no_grad():
        assert not View(net).encode(Parts(images(), SIZES)).rows.requires_grad
    assert torch.is_grad_enabled()
