"""EWC: the penalty against loops, its information against autograd sample by sample."""

import copy

import numpy as np
import pytest
import torch
from support import LinearNet, batch_of, ce, terms_of, tiny_learner, tiny_tasks

from ider.methods import EWC
from ider.types import CURRENT, Needs

CLASSES = 4
RNG = np.random.default_rng(17)
HEAD, BODY = RNG.normal(size=(3, CLASSES)), RNG.normal(size=(6, 3))
X, Y = RNG.normal(size=(7, 6)), RNG.integers(0, CLASSES, 7)
SHAPES = {"head": HEAD.shape, "body": BODY.shape}
FISHER, ANCHOR = ({name: RNG.random(shape) for name, shape in SHAPES.items()} for _ in "fa")


def a_batch(fisher=FISHER, anchor=ANCHOR):
    state = {f"fisher/{name}": torch.tensor(values) for name, values in fisher.items()}
    state |= {f"anchor/{name}": torch.tensor(values) for name, values in anchor.items()}
    return batch_of(torch.tensor(X), torch.tensor(Y), {CURRENT: 7}, state=state)


def test_the_penalty_is_the_sum_over_all_weights_of_information_times_squared_way() -> None:
    """Times lambda, not half of it."""
    terms = terms_of(EWC(penalty_weight=3.0), LinearNet(HEAD, BODY), None, a_batch())
    expected = 0.0
    for name, weights in (("head", HEAD), ("body", BODY)):
        for where in np.ndindex(*weights.shape):
            expected += FISHER[name][where] * (weights[where] - ANCHOR[name][where]) ** 2
    assert terms["penalty"].item() == pytest.approx(3 * expected, rel=1e-6)
    assert terms["current"].item() == pytest.approx(ce(X @ BODY @ HEAD, Y), rel=1e-6)


def test_the_penalty_by_hand() -> None:
    net = LinearNet(np.array([[1.0, 5.0]]), np.array([[2.0]]))
    fisher = {"head": np.array([[0.5, 0.0]]), "body": np.array([[2.0]])}
    anchor = {"head": np.array([[4.0, 0.0]]), "body": np.array([[1.0]])}
    state = {
        f"{kind}/{name}": torch.tensor(v)
        for kind, of in (("fisher", fisher), ("anchor", anchor))
        for name, v in of.items()
    }
    step = batch_of(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0]), {CURRENT: 1}, state=state)
    assert terms_of(EWC(penalty_weight=10.0), net, None, step)["penalty"].item() == 10 * (0.5 * 9 + 2 * 1)


def test_it_pulls_each_weight_back_by_twice_its_information() -> None:
    net = LinearNet(HEAD, BODY)
    terms_of(EWC(penalty_weight=3.0), net, None, a_batch())["penalty"].backward()
    for name, weight in net.weights().items():
        expected = 2 * 3 * FISHER[name] * (weight.detach().numpy() - ANCHOR[name])
        np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("how", ["first task", "no weight", "at the anchor"])
def test_nothing_pulls(how: str) -> None:
    none = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    step = {
        "first task": a_batch(none, none),
        "no weight": a_batch(),
        "at the anchor": a_batch(anchor={"head": HEAD, "body": BODY}),
    }[how]
    net = LinearNet(HEAD, BODY)
    terms = terms_of(EWC(penalty_weight=0.0 if how == "no weight" else 5.0), net, None, step)
    assert terms["penalty"].item() == 0
    terms["penalty"].backward()
    assert not any(weight.grad.any() for weight in net.weights().values())


def test_it_asks_for_nothing_and_begins_without_information() -> None:
    assert EWC().needs() == Needs()
    learner = tiny_learner(EWC())
    learner.prepare(tiny_tasks(1)[0].images)
    weights = dict(learner.net.named_parameters())
    assert set(learner.model.state) == {f"{kind}/{name}" for kind in ("fisher", "anchor") for name in weights}
    for name, weight in weights.items():
        assert learner.model.state[f"fisher/{name}"].shape == weight.shape
        assert not learner.model.state[f"fisher/{name}"].any()


def fisher_of(net, task) -> dict[str, torch.Tensor]:
    """Image by image as it came, in eval mode: the square of the gradient of its own cross-entropy; their mean."""
    net = copy.deepcopy(net).eval()
    found = {name: torch.zeros_like(weight) for name, weight in net.named_parameters()}
    for image, label in zip(task.images, task.labels, strict=True):
        net.zero_grad()
        x = (torch.from_numpy(image)[None].float() / 255 - 0.5) / 0.25
        loss = -net.decode(net.encode(x)).log_softmax(1)[0, label]
        loss.backward()
        for name, weight in net.named_parameters():
            found[name] += weight.grad**2 / len(task)
    return found


@pytest.mark.parametrize("discount", [1.0, 0.25])
def test_the_information_is_that_of_autograd_and_adds_up_with_a_discount(discount: float) -> None:
    learner = tiny_learner(EWC(penalty_weight=1.0, discount=discount), epochs=3)
    expected = {}
    for task in tiny_tasks(2, images=37):  # more than two chunks, the last one smaller
        learner.learn(task)
        found = fisher_of(learner.net, task)
        expected = {name: discount * expected.get(name, 0.0) + value for name, value in found.items()}
        for name, weight in learner.net.named_parameters():
            mine = learner.model.state[f"fisher/{name}"]
            torch.testing.assert_close(mine, expected[name], rtol=1e-3, atol=1e-7, msg=name)
            assert mine.any(), name
            assert torch.equal(learner.model.state[f"anchor/{name}"], weight), name


def test_measuring_it_moves_neither_the_weights_nor_the_running_statistics() -> None:
    learner = tiny_learner(EWC())
    for _ in learner.learning(tiny_tasks(1)[0]):
        before = {name: value.clone() for name, value in learner.net.state_dict().items()}
    assert all(torch.equal(value, before[name]) for name, value in learner.net.state_dict().items())
    assert learner.net.training


def test_the_penalty_of_a_learner_is_zero_in_the_first_task_and_counts_in_the_second() -> None:
    learner = tiny_learner(EWC(penalty_weight=100.0))
    for task in tiny_tasks(2):
        learner.learn(task)
    assert [entry["penalty"] > 0 for entry in learner.history] == [False, False, True, True]


def test_it_keeps_weights_where_they_were() -> None:
    ways = []
    for weight in (0.0, 1.0, 20.0):
        learner = tiny_learner(EWC(penalty_weight=weight), lr=0.01).learn(tiny_tasks(1)[0])
        before = {name: value.clone() for name, value in learner.net.named_parameters()}
        fisher = {name: learner.model.state[f"fisher/{name}"].clone() for name in before}
        learner.learn(tiny_tasks(2)[1])
        ways.append(sum((fisher[n] * (w - before[n]) ** 2).sum().item() for n, w in learner.net.named_parameters()))
    assert ways[0] > ways[1] > ways[2]


def test_a_head_that_grows_keeps_its_information_and_new_classes_are_free() -> None:
    learner = tiny_learner(EWC(), classes=0).learn(tiny_tasks(1)[0])
    before = {name: values.clone() for name, values in learner.model.state.items()}
    first = next(learner.learning(tiny_tasks(2)[1]))
    assert first.step == 1
    grown = learner.model.state
    for kind in ("fisher", "anchor"):
        assert grown[f"{kind}/head.weight"].shape[0] == 4
        assert torch.equal(grown[f"{kind}/head.weight"][:2], before[f"{kind}/head.weight"])
        assert torch.equal(grown[f"{kind}/label.weight"][:, :2], before[f"{kind}/label.weight"])
    assert not grown["fisher/head.weight"][2:].any()
    assert not grown["fisher/head.bias"][2:].any()
    assert not grown["fisher/label.weight"][:, 2:].any()
