"""DER and DER++: what is compared with what (spec 6.5 and 6.6), and what the memory stores (spec 4)."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from support import LinearNet, Witness, batch_of, ce, terms_of, tiny_learner, tiny_tasks, values

from ider.methods import BFP, DER, DERPP, METHODS
from ider.types import CURRENT, Draw, Field, Needs

CLASSES = 4
RNG = np.random.default_rng(7)
W = RNG.normal(size=(CLASSES, CLASSES))
X, Y = RNG.normal(size=(16, CLASSES)), RNG.integers(0, CLASSES, 16)
STORED = RNG.normal(size=(9, CLASSES))
SIZES = {CURRENT: 7, "recalled": 5, "replay": 4}


def a_batch(**sizes: int):
    count = sum(sizes.values())
    stored = {"logits": torch.tensor(STORED[: count - sizes[CURRENT]])}
    return batch_of(torch.tensor(X[:count]), torch.tensor(Y[:count]), sizes, stored=stored)


def mse(rows: slice, stored: slice) -> float:
    """The mean over rows and all classes, one number after the other."""
    gaps = [
        (a - b) ** 2
        for row, old in zip(X[rows] @ W, STORED[stored], strict=True)
        for a, b in zip(row, old, strict=True)
    ]
    return sum(gaps) / len(gaps)


def test_der_is_a_cross_entropy_and_the_distance_to_the_stored_logits() -> None:
    terms = terms_of(DER(logit_weight=0.3), LinearNet(W), None, a_batch(current=7, recalled=5))
    expected = {"current": ce(X[:7] @ W, Y[:7]), "recalled": 0.3 * mse(slice(7, 12), slice(0, 5))}
    assert values(terms) == pytest.approx(expected, rel=1e-6)


def test_derpp_also_replays_labels_of_another_draw() -> None:
    terms = terms_of(DERPP(logit_weight=0.1, replay_weight=0.5), LinearNet(W), None, a_batch(**SIZES))
    expected = {
        "current": ce(X[:7] @ W, Y[:7]),
        "recalled": 0.1 * mse(slice(7, 12), slice(0, 5)),
        "replay": 0.5 * ce(X[12:] @ W, Y[12:]),
    }
    assert values(terms) == pytest.approx(expected, rel=1e-6)


def test_the_distance_by_hand() -> None:
    """Three classes: the mean of 0, 4, 4 and of 1, 1, 1."""
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    stored = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    step = batch_of(x, torch.tensor([0, 0, 0]), {CURRENT: 1, "recalled": 2}, stored={"logits": stored})
    terms = terms_of(DER(logit_weight=1.0), LinearNet(np.eye(3)), None, step)
    assert terms["recalled"].item() == pytest.approx((0 + 4 + 4 + 1 + 1 + 1) / 6)


@pytest.mark.parametrize("method", [DER(), DERPP()])
def test_an_empty_memory_leaves_the_current_batch_alone(method: DER | DERPP) -> None:
    terms = terms_of(method, LinearNet(W), None, batch_of(torch.tensor(X[:7]), torch.tensor(Y[:7]), {CURRENT: 7}))
    assert values(terms) == {"current": pytest.approx(ce(X[:7] @ W, Y[:7]), rel=1e-6)}


@pytest.mark.parametrize("method", [DER(), DERPP()])
def test_a_later_task_and_the_labels_of_recalled_images_change_nothing(method: DER | DERPP) -> None:
    sizes = {name: size for name, size in SIZES.items() if name in {CURRENT, *(d.name for d in method.needs().draws)}}
    step = a_batch(**sizes)
    plain = values(terms_of(method, LinearNet(W), None, step))
    labels = step.labels.rows.clone()
    labels[7:12] = (labels[7:12] + 1) % CLASSES
    other = dataclasses.replace(step, labels=step.labels.like(labels))
    assert values(terms_of(method, LinearNet(W), LinearNet(-W), other)) == plain


def test_each_part_is_normalised_by_itself() -> None:
    net = LinearNet(W)
    terms_of(DERPP(), net, None, a_batch(**SIZES))
    assert net.seen == [SIZES]
    assert not DERPP().needs().mixed


@pytest.mark.parametrize(
    ("method", "draws"),
    [
        (DER(), ["recalled"]),
        (DER(logit_weight=0.0), []),
        (DERPP(), ["recalled", "replay"]),
        (DERPP(logit_weight=0.0), ["replay"]),
        (DERPP(replay_weight=0.0), ["recalled"]),
        (DERPP(logit_weight=0.0, replay_weight=0.0), []),
    ],
)
def test_what_weighs_nothing_is_neither_drawn_nor_stored(method: DER | DERPP, draws: list[str]) -> None:
    stores = (Field("logits", per_class=True),) if "recalled" in draws else ()
    assert method.needs() == Needs(draws=tuple(map(Draw, draws)), stores=stores)
    step = a_batch(**{name: size for name, size in SIZES.items() if name in (CURRENT, *draws)})
    whole = terms_of(DERPP(), LinearNet(W), None, a_batch(**SIZES))
    outcome = method.step(LinearNet(W), None, step)
    assert set(outcome.terms) == {"current", *draws}
    assert outcome.terms["current"].item() == whole["current"].item()
    assert set(outcome.kept) == {item.name for item in stores}


STORING = ["der", "derpp", "bfp", "der+id", "derpp+id"]


def on_view(net, view):
    """The logits of one batch alone, from the prior, by a copy of the net in the mode in which it is."""
    with torch.no_grad():
        copied = copy.deepcopy(net)
        return copied.decode(copied.encode(view))


@pytest.mark.parametrize("name", STORING)
def test_what_is_stored_is_the_answer_to_the_view_that_was_learnt_before_the_update(name: str) -> None:
    witness = Witness(METHODS[name])
    learner = tiny_learner(witness, size=15)
    after = [copy.deepcopy(learner.net) for _ in learner.learning(tiny_tasks(1)[0])]
    assert len(witness.seen) == len(after) == 8
    first = tiny_learner(Witness(METHODS[name]), size=15)  # of which only the first three steps are done
    for number, _ in enumerate(first.learning(tiny_tasks(1)[0])):
        if number == 2:
            break
    stored = first.memory.fields["logits"][:15].split(5)
    for number in range(3):
        sight = witness.seen[number]
        view = sight.batch.images[CURRENT]
        assert sight.net.training
        torch.testing.assert_close(stored[number], on_view(sight.net, view), rtol=1e-5, atol=1e-6)
        for other in (after[number], sight.net.eval()):
            assert (stored[number] - on_view(other, view)).abs().max() > 1e-4
        assert torch.equal(first.memory.labels[:15].split(5)[number], sight.batch.labels[CURRENT])


def variants(image: np.ndarray) -> list[np.ndarray]:
    """All crops of an image padded by one, and their mirror images, as the net sees them."""
    padded = np.pad(image.astype(np.float32), ((0, 0), (1, 1), (1, 1)))
    crops = [padded[:, y : y + 6, x : x + 6] for y in range(3) for x in range(3)]
    return [(view / 255 - 0.5) / 0.25 for crop in crops for view in (crop, crop[:, :, ::-1])]


def which(view: torch.Tensor, image: torch.Tensor) -> int:
    """The number of the crop that a view is."""
    matches = [np.allclose(view.numpy(), other, atol=1e-5) for other in variants(image.numpy())]
    assert sum(matches) == 1
    return matches.index(True)


def test_the_memory_holds_the_image_as_it_came_and_each_draw_sees_it_anew() -> None:
    """In the first task, from the second step on."""
    witness = Witness(METHODS["derpp"])
    learner = tiny_learner(witness, size=40, epochs=2)
    learner.learn(tiny_tasks(1)[0])
    assert [set(sight.batch.images.sizes) for sight in witness.seen] == [{CURRENT}] + 7 * [
        {CURRENT, "recalled", "replay"}
    ]
    learnt = torch.cat([torch.stack([*sight.batch.images[CURRENT]]) for sight in witness.seen])
    raw = learner.memory.images
    numbers = [which(view, raw[slot]) for slot, view in enumerate(learnt)]  # slot n took the n-th image
    assert len(set(numbers)) > 5
    same = []
    for sight in witness.seen[1:]:
        for name in ("recalled", "replay"):
            slots = sight.batch.slots[name].tolist()
            assert len(set(slots)) == 4
            seen = [which(view, raw[slot]) for slot, view in zip(slots, sight.batch.images[name], strict=True)]
            same += [now == numbers[slot] for slot, now in zip(slots, seen, strict=True)]
    assert 0 < sum(same) + 1 < len(same) / 3  # by chance one in eighteen


def test_what_is_recalled_is_what_was_stored_with_that_slot() -> None:
    witness = Witness(METHODS["der"])
    tiny_learner(witness, size=40).learn(tiny_tasks(1)[0])
    stored = torch.cat([on_view(sight.net, sight.batch.images[CURRENT]) for sight in witness.seen])
    for sight in witness.seen[1:]:
        found = sight.batch.stored["logits"]["recalled"]
        torch.testing.assert_close(found, stored[sight.batch.slots["recalled"]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", [DER(), DERPP(), BFP()])
def test_policies(method: DER | DERPP | BFP) -> None:
    expected = "class-balanced" if isinstance(method, BFP) else "reservoir"
    assert tiny_learner(method).config.memory.policy == expected
