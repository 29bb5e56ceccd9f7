"""ER, finetune and joint training: means and batches of the cross-entropies, on a linear net without normalisation."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from support import answer_of, batch_of, terms_of
from torch import Tensor

from ider.errors import UserError
from ider.methods import ER, METHODS, Finetune, Joint
from ider.types import Answer, Batch, Draw, Needs, Parts

RNG = np.random.default_rng(0)
W = RNG.normal(size=(6, 4))
X, Y = RNG.normal(size=(64, 6)), RNG.integers(0, 4, 64)
ROWS = -log_softmax(X @ W, 1)[np.arange(64), Y]
"""The cross-entropy of each row."""


class LinearNet:
    """Logits linear in the images; it notes what went through it."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []

    def encode(self, images: Parts) -> Parts:
        self.seen.append(images.groups)
        return images

    def decode(self, z: Parts, y: Parts | None = None, keep: Tensor | None = None) -> Answer:
        assert y is None
        return answer_of(z, z.rows @ torch.tensor(W))


def batch(method: ER | Finetune, **sizes: int) -> Batch:
    count, mixed = sum(sizes.values()), method.needs().mixed
    return batch_of(torch.tensor(X[:count]), torch.tensor(Y[:count]), sizes, mixed)


def test_mixed_er_is_the_mean_over_all_rows_of_one_joint_batch() -> None:
    method, net = ER(), LinearNet()
    terms = terms_of(method, net, None, batch(method, current=40, replay=24))
    assert {name: term.item() for name, term in terms.items()} == {"all": pytest.approx(ROWS.mean(), rel=1e-6)}
    assert net.seen == [(64,)]


def test_separate_er_is_one_mean_per_part() -> None:
    method, net = ER(mixed=False, replay_weight=0.7), LinearNet()
    terms = terms_of(method, net, None, batch(method, current=40, replay=24))
    expected = {"current": ROWS[:40].mean(), "replay": 0.7 * ROWS[40:].mean()}
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-6)
    assert net.seen == [(40, 24)]


@pytest.mark.parametrize(("method", "name"), [(ER(), "all"), (ER(mixed=False), "current"), (Finetune(), "current")])
def test_an_empty_memory_leaves_the_current_batch_alone(method: ER | Finetune, name: str) -> None:
    terms = terms_of(method, LinearNet(), None, batch(method, current=10))
    assert {name: term.item() for name, term in terms.items()} == {name: pytest.approx(ROWS[:10].mean(), rel=1e-6)}


def test_a_replay_weight_of_zero_is_no_replay_term() -> None:
    method = ER(mixed=False, replay_weight=0.0)
    terms = terms_of(method, LinearNet(), None, batch(method, current=10, replay=5))
    assert {name: term.item() for name, term in terms.items()} == {"current": pytest.approx(ROWS[:10].mean(), rel=1e-6)}


def test_what_each_asks_for() -> None:
    assert ER().needs() == Needs(draws=(Draw("replay"),), mixed=True)
    assert ER(mixed=False).needs() == Needs(draws=(Draw("replay"),))
    assert Finetune().needs() == Needs()
    assert Joint().needs() == Needs(joined=True)


def test_joint_training_has_the_loss_of_finetuning() -> None:
    terms = [terms_of(method, LinearNet(), None, batch(method, current=9)) for method in (Joint(), Finetune())]
    assert terms[0] == terms[1]
    assert terms[0]["current"].item() == pytest.approx(ROWS[:9].mean(), rel=1e-6)


def test_the_named_methods_are_the_published_ones() -> None:
    assert METHODS["er"] == ER(mixed=True, replay_weight=1.0)
    assert METHODS["finetune"] == Finetune()
    assert METHODS["joint"] == Joint()


@pytest.mark.parametrize("weight", [-0.5, float("nan"), float("inf")])
def test_a_wrong_replay_weight_is_named_with_its_value(weight: float) -> None:
    with pytest.raises(UserError, match=f"replay_weight is {weight}"):
        ER(replay_weight=weight)
