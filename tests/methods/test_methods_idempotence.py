"""`+id`: what it asks for, which terms it has, and where its gradient flows; on nets whose Jacobians are known."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import rel_entr, softmax
from support import answer_of, batch_of, terms_of
from torch import Tensor

from ider.errors import UserError
from ider.methods import ER, METHODS, Finetune, Idempotent
from ider.nets import NETS, Shape, TwoInputNet, View
from ider.types import CURRENT, Answer, Average, Batch, Draw, Needs, Parts, Teacher

CLASSES, ROWS = 4, 3
RNG = np.random.default_rng(2)
WEIGHTS = ("answer_weight", "current_weight", "memory_weight")


class BareNet:
    """f(x, y) = x + y A: the gradient of the image is that of the first answer, as a teacher lets none through here."""

    def __init__(self, seed: int, teaches: bool = False) -> None:
        self.teaches = teaches
        generator = torch.Generator().manual_seed(seed)
        self.A = torch.randn(CLASSES, CLASSES, generator=generator, dtype=torch.float64)
        self.A.requires_grad_()

    def encode(self, images: Parts) -> Parts:
        return images.like(images.rows.detach()) if self.teaches else images

    def decode(self, z: Parts, y: Parts | None = None, keep: Tensor | None = None) -> Answer:
        return answer_of(z, z.rows + (self.A.mean(0) if y is None else y.rows @ self.A))


def batch(images: Tensor, *names: str, coins: dict[str, float] | None = None) -> Batch:
    sizes = dict.fromkeys(names, ROWS)
    labels = torch.arange(len(images)) % CLASSES
    tensors = {name: torch.tensor(coin) for name, coin in (coins or {}).items()}
    return batch_of(images, labels, sizes, coins=tensors)


def images(parts: int) -> Tensor:
    return torch.tensor(RNG.normal(size=(parts * ROWS, CLASSES)), requires_grad=True)


def all_parts(**changes: Any) -> tuple[Idempotent, dict[str, Tensor], Tensor]:
    """The terms of a step with everything present, and the images that they came from."""
    method, x = Idempotent(**changes), torch.tensor(np.linspace(-1, 1, 36).reshape(9, 4) ** 3, requires_grad=True)
    return method, terms_of(method, BareNet(1), BareNet(2, teaches=True), batch(x, CURRENT, "replay", "distill")), x


def gradient(**changes: Any) -> Tensor:
    _, terms, x = all_parts(**changes)
    return torch.autograd.grad(torch.stack(list(terms.values())).sum(), x)[0]


def total(terms: dict[str, Tensor]) -> float:
    return sum(term.item() for term in terms.values())


def test_the_gradient_of_a_fixed_point_term_is_the_closed_form() -> None:
    method = Idempotent(answer_weight=0.0, current_weight=1.0, memory_weight=0.0)
    net, teacher, x = BareNet(1), BareNet(2, teaches=True), images(1)
    term = terms_of(method, net, teacher, batch(x, CURRENT))["fixed_point/current"]
    found = torch.autograd.grad(term, x)[0].numpy()
    y = x.detach().numpy() + net.A.detach().numpy().mean(0)
    for row, answer in enumerate(y):
        p = softmax(answer)
        j_softmax, j_g = np.diag(p) - np.outer(p, p), teacher.A.detach().numpy().T
        gap = answer - (x.detach().numpy()[row] + p @ teacher.A.detach().numpy())
        expected = 2 / (ROWS * CLASSES) * (np.eye(CLASSES) - j_g @ j_softmax).T @ gap
        np.testing.assert_allclose(found[row], expected, rtol=1e-5, atol=1e-7)


def test_a_detached_target_leaves_only_the_identity() -> None:
    method = Idempotent(answer_weight=0.0, current_weight=1.0, memory_weight=0.0, teacher_gradient=False)
    net, teacher, x = BareNet(1), BareNet(2, teaches=True), images(1)
    found = torch.autograd.grad(terms_of(method, net, teacher, batch(x, CURRENT))["fixed_point/current"], x)[0]
    y = net.decode(Parts(x, {CURRENT: ROWS})).logits.rows
    gap = y - teacher.decode(Parts(x, {CURRENT: ROWS}), Parts(y.softmax(1), {CURRENT: ROWS})).logits.rows
    torch.testing.assert_close(found, (2 / (ROWS * CLASSES) * gap).detach(), rtol=1e-5, atol=1e-7)


def test_the_gradient_through_the_teacher_changes_no_value() -> None:
    (_, flowing, _), (_, stopped, _) = all_parts(), all_parts(teacher_gradient=False)
    assert flowing.keys() == stopped.keys()
    assert all(torch.equal(flowing[name], stopped[name]) for name in flowing)
    assert (gradient() - gradient(teacher_gradient=False)).abs().max() > 1e-3


def test_the_second_answers_gradient_flows_through_the_first() -> None:
    net, x = BareNet(1), images(1)
    terms = terms_of(Idempotent(), net, None, batch(x, CURRENT))
    found = torch.autograd.grad(terms["second/current"], x)[0].numpy()
    a = net.A.detach().numpy()
    first = x.detach().numpy() + a.mean(0)
    for row in range(ROWS):
        p = softmax(first[row])
        q = softmax(x.detach().numpy()[row] + p @ a)
        upstream = 0.5 / ROWS * (q - np.eye(CLASSES)[row % CLASSES])
        expected = (np.eye(CLASSES) + a.T @ (np.diag(p) - np.outer(p, p))).T @ upstream
        np.testing.assert_allclose(found[row], expected, rtol=1e-5, atol=1e-7)


def test_the_distance_may_be_a_divergence() -> None:
    method, x, net, teacher = (
        Idempotent(distance="kl", current_weight=0.3),
        images(1),
        BareNet(1),
        BareNet(2, teaches=True),
    )
    term = terms_of(method, net, teacher, batch(x, CURRENT))["fixed_point/current"]
    first = net.decode(Parts(x, {CURRENT: ROWS})).logits.rows.detach().numpy()
    target = x.detach().numpy() + softmax(first, 1) @ teacher.A.detach().numpy()
    expected = 0.3 * rel_entr(softmax(target, 1), softmax(first, 1)).sum(1).mean()
    assert term.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("weight", "term"), [("current_weight", "current"), ("memory_weight", "distill")])
def test_a_weight_of_zero_is_the_terms_absence(weight: str, term: str) -> None:
    _, whole, _ = all_parts()
    _, without, _ = all_parts(**{weight: 0.0})
    assert set(whole) - set(without) == {f"fixed_point/{term}"}
    assert total(without) == pytest.approx(total(whole) - whole[f"fixed_point/{term}"].item(), rel=1e-9)


def test_without_fixed_point_weights_the_teacher_is_not_asked() -> None:
    method = Idempotent(current_weight=0.0, memory_weight=0.0)
    x = images(2)
    step = batch(x, CURRENT, "replay")
    assert terms_of(method, BareNet(1), None, step) == terms_of(method, BareNet(1), object(), step)


REPLAYED = (Draw("replay"),)
BOTH = (*REPLAYED, Draw("distill", later=True))


@pytest.mark.parametrize(
    ("method", "draws", "teacher", "coins"),
    [
        (Idempotent(), BOTH, Teacher(), ()),
        (Idempotent(current_weight=0.0), BOTH, Teacher(), ()),
        (Idempotent(memory_weight=0.0), REPLAYED, Teacher(), ()),
        (Idempotent(current_weight=0.0, memory_weight=0.0), REPLAYED, None, ()),
        (Idempotent(teacher_statistics="running"), BOTH, Teacher(statistics="running"), ()),
        (Idempotent(prior_probability=0.9), BOTH, Teacher(), (CURRENT, "replay")),
        (Idempotent(base=Finetune(), prior_probability=0.0), BOTH[1:], Teacher(), (CURRENT,)),
    ],
)
def test_what_it_asks_for_depends_on_its_weights(
    method: Idempotent, draws: tuple[Draw, ...], teacher: Teacher | None, coins: tuple[str, ...]
) -> None:
    assert method.needs() == Needs(draws=draws, teacher=teacher, coins=coins, second_input=True)


def test_it_doubles_the_cross_entropies_of_whatever_is_underneath() -> None:
    x, net = images(1), BareNet(1)
    terms = terms_of(Idempotent(base=Finetune(), answer_weight=0.5), net, None, batch(x, CURRENT))
    first = terms_of(Finetune(), net, None, batch(x, CURRENT))["current"].item()
    assert terms["first/current"].item() == pytest.approx(first / 2)
    assert set(terms) == {"first/current", "second/current"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fond(Finetune):
    """Finetune with a term of its own on the first answer."""

    def further(self, first: Answer, nets: Any, batch: Batch) -> dict[str, Tensor]:
        return {"further": first.logits.rows.sum()}


@pytest.mark.parametrize("coin", [0.0, 0.9])
def test_the_further_terms_of_what_is_underneath_come_once_and_from_the_prior(coin: float) -> None:
    x, net = images(2), BareNet(1)
    step = batch(x, CURRENT, "distill", coins={CURRENT: coin})
    terms = terms_of(Idempotent(base=Fond(), prior_probability=0.5), net, BareNet(2, teaches=True), step)
    first = net.decode(Parts(x[:ROWS], {CURRENT: ROWS})).logits.rows
    assert terms["further"].item() == pytest.approx(first.sum().item())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tossing(Finetune):
    """Finetune that tosses a coin of its own."""

    def needs(self) -> Needs:
        return Needs(coins=(CURRENT,))

    def further(self, first: Answer, nets: Any, batch: Batch) -> dict[str, Tensor]:
        return {"tossed": batch.coins[CURRENT] * first.logits.rows.sum()}


def test_coins_of_what_is_underneath_stay_its_own() -> None:
    method, x, net = Idempotent(base=Tossing()), images(1), BareNet(1)
    assert method.needs().coins == (CURRENT,)
    terms = terms_of(method, net, None, batch(x, CURRENT, coins={CURRENT: 0.75}))
    plain = terms_of(Idempotent(base=Finetune()), net, None, batch(x, CURRENT))
    sum_of_logits = net.decode(Parts(x, {CURRENT: ROWS})).logits.rows.sum().item()
    assert terms.pop("tossed").item() == pytest.approx(0.75 * sum_of_logits)
    assert {name: term.item() for name, term in terms.items()} == {name: term.item() for name, term in plain.items()}
    with pytest.raises(UserError, match="prior_probability is 0.5.* coins of current itself; it must be 1"):
        Idempotent(base=Tossing(), prior_probability=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnStep(Finetune):
    """Finetune whose step is its own."""

    def step(self, net: Any, teacher: Any, batch: Batch) -> Any:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnDraw(Finetune):
    """Finetune with a draw that has the name of the one that `+id` adds."""

    def needs(self) -> Needs:
        return Needs(draws=(Draw("distill"),))


@pytest.mark.parametrize(
    ("base", "words"), [(OwnStep(), "OwnStep has a step of its own"), (OwnDraw(), "OwnDraw must give its draw another")]
)
def test_what_it_would_pass_over_is_refused(base: Finetune, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Idempotent(base=base)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taught(Finetune):
    """Finetune that is taught by a running mean of the net, as the previous task left it."""

    def needs(self) -> Needs:
        return Needs(teacher=Teacher("running", "slow"), averages=(Average("slow", 0.9, 1.0),))


def test_the_teacher_of_what_is_underneath_stays_its_own() -> None:
    assert Idempotent(base=Taught(), teacher_statistics="running").needs().teacher == Teacher("running", "slow")


def test_er_id_is_er_with_separate_parts_and_the_released_weights() -> None:
    assert METHODS["er+id"] == Idempotent(
        base=ER(mixed=False, replay_weight=1.0),
        answer_weight=0.5,
        current_weight=0.4,
        memory_weight=0.5,
        prior_probability=1.0,
        distance="mse",
        teacher_statistics="batch",
        teacher_gradient=True,
    )


def test_without_second_answer_and_fixed_point_it_is_the_method_underneath() -> None:
    """A net whose second input does nothing has one answer: the halves of its two cross-entropies add up to ER."""
    net, x = BareNet(1), images(2)
    net.A = torch.zeros(CLASSES, CLASSES, dtype=torch.float64)
    step, base = batch(x, CURRENT, "replay"), ER(mixed=False)
    assert total(terms_of(Idempotent(base=base), net, None, step)) == pytest.approx(
        total(terms_of(base, net, None, step))
    )


@pytest.mark.parametrize(("coin", "starts_from_label"), [(0.0, False), (0.5, False), (0.51, True), (0.999, True)])
def test_a_coin_above_the_prior_probability_starts_from_the_label(coin: float, starts_from_label: bool) -> None:
    net, x = BareNet(1), images(1)
    step = batch(x, CURRENT, coins={CURRENT: coin})
    terms = terms_of(Idempotent(prior_probability=0.5), net, None, step)
    labels = torch.arange(ROWS) % CLASSES
    u = torch.eye(CLASSES, dtype=torch.float64)[labels] if starts_from_label else torch.full((1, CLASSES), 1 / CLASSES)
    expected = 0.5 * torch.nn.functional.cross_entropy(x + u.double() @ net.A, labels)
    assert terms["first/current"].item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_fixed_point_terms_start_from_the_prior_whatever_the_coin() -> None:
    net, teacher, x = BareNet(1), BareNet(2, teaches=True), images(3)
    names = (CURRENT, "replay", "distill")
    plain = terms_of(Idempotent(), net, teacher, batch(x, *names))
    for coin in (0.1, 0.9):
        step = batch(x, *names, coins={CURRENT: coin, "replay": coin})
        tossed = terms_of(Idempotent(prior_probability=0.5), net, teacher, step)
        assert tossed.keys() == plain.keys()
        for name in ("fixed_point/current", "fixed_point/distill"):
            assert torch.equal(tossed[name], plain[name])
        assert (tossed["first/replay"] != plain["first/replay"]) == (coin > 0.5)


@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_a_step_leaves_the_teacher_bit_for_bit_as_it_was(statistics: Any) -> None:
    torch.manual_seed(0)
    net = NETS["small-conv"](Shape((1, 6, 6), CLASSES, 4, 1, True))
    teacher = net.frozen(statistics)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    method, sizes = Idempotent(teacher_statistics=statistics), {CURRENT: 5, "replay": 4, "distill": 4}
    step = batch_of(torch.randn(13, 1, 6, 6), torch.arange(13) % CLASSES, sizes)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        terms = terms_of(method, View(net), View(teacher, method.needs().teacher), step)
        optimiser.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        optimiser.step()
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert all(weight.grad is None for weight in teacher.parameters())
    assert not any(torch.equal(value, before[name]) for name, value in net.named_parameters())


def test_every_weight_of_the_two_input_resnet_learns_in_one_step() -> None:
    torch.manual_seed(0)
    net: TwoInputNet = NETS["resnet18"](Shape((3, 8, 8), CLASSES, 4, 4, True))
    sizes = {CURRENT: 5, "replay": 4, "distill": 4}
    step = batch_of(torch.randn(13, 3, 8, 8), torch.arange(13) % CLASSES, sizes)
    terms = terms_of(Idempotent(), View(net), View(net.frozen("batch"), Teacher()), step)
    torch.stack(list(terms.values())).sum().backward()
    dead = [name for name, weight in net.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert dead == []


@pytest.mark.parametrize("probability", [-0.1, 1.5, float("nan")])
def test_a_wrong_probability_is_named_with_its_value(probability: float) -> None:
    with pytest.raises(UserError, match=f"prior_probability is {probability}.* 0..1"):
        Idempotent(prior_probability=probability)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("value", [-0.25, float("nan"), float("inf")])
def test_a_wrong_weight_is_named_with_its_value(weight: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{weight} is {value}"):
        Idempotent(**{weight: value})


@pytest.mark.parametrize(
    ("name", "value", "meant"), [("distance", "mes", "mse"), ("teacher_statistics", "bacth", "batch")]
)
def test_a_wrong_choice_is_named_with_what_is_allowed(name: str, value: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"{name}.*{value}.*{meant}"):
        Idempotent(**{name: value})


def test_it_is_a_value() -> None:
    assert Idempotent() == Idempotent(base=ER(mixed=False))
    assert hash(Idempotent()) == hash(Idempotent())
    with pytest.raises(dataclasses.FrozenInstanceError):
        Idempotent().answer_weight = 1.0
