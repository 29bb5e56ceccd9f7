"""SCoMMER: its terms, who keeps which channels, and what it counts (spec 4)."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from support import Hand, batch_of, classes_of, terms_of

from ider.methods.scommer import ALIVE, ALIVE_OF, CHANCES, SCORES, SCoMMER
from ider.types import CURRENT, Answer, Batch, Parts, Sparsity

CLASSES, CHANNELS = 4, 10
RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(11, 4)), RNG.integers(0, CLASSES, 11)
W, MEAN = RNG.normal(size=(4, CLASSES)), RNG.normal(size=(4, CLASSES))


class LinearNet:
    def __init__(self, weight: np.ndarray = W) -> None:
        self.weight, self.keeps = weight, []

    def encode(self, images: Parts) -> Parts:
        return images

    def decode(self, z: Parts, y: Parts | None = None, keep: torch.Tensor | None = None) -> Answer:
        self.keeps.append(keep)
        return Answer(z.like(z.rows @ torch.tensor(self.weight)), z.like(z.rows.new_zeros(len(z.rows), CHANNELS)))

    def average(self, name: str) -> "LinearNet":
        assert name == "long-term"
        return LinearNet(MEAN)


def a_batch(method: SCoMMER, noise_seed: int = 0, state: dict[str, torch.Tensor] | None = None) -> Batch:
    generator = torch.Generator().manual_seed(noise_seed)
    noise = {name: torch.rand(shape, generator=generator) for name, shape in method.noise(CLASSES, CHANNELS).items()}
    made = dict(method.state({}, CLASSES, CHANNELS)) | (state or {})
    return batch_of(torch.tensor(X), torch.tensor(Y), {CURRENT: 6, "replay": 5}, noise=noise, state=made)


def test_its_terms() -> None:
    method = SCoMMER(consistency_weight=0.3)
    terms = terms_of(method, LinearNet(), None, a_batch(method))
    rows = -log_softmax(X @ W, 1)[np.arange(11), Y]
    assert terms["current"].item() == pytest.approx(rows[:6].mean(), rel=1e-6)
    assert terms["replay"].item() == pytest.approx(rows[6:].mean(), rel=1e-6)
    expected = 0.3 * ((X[6:] @ W - X[6:] @ MEAN) ** 2).mean()
    assert terms["consistency"].item() == pytest.approx(expected, rel=1e-6)


def test_the_net_is_sparse_and_the_mean_predicts() -> None:
    needs = SCoMMER(rate=0.1).needs()
    assert needs.sparsity == Sparsity("global", (0.9, 0.9, 0.9, 0.8))
    assert [(item.name, item.rate, item.decay) for item in needs.averages] == [("long-term", 0.1, 0.999)]
    assert (needs.predicts, SCoMMER(predicts="working").needs().predicts) == ("long-term", "")


def test_before_the_first_task_ends_the_first_channels_are_kept() -> None:
    """floor(1.1 * 0.8 * 10) = 8 channels have a score, and 8 are drawn."""
    method, net = SCoMMER(), LinearNet()
    terms_of(method, net, None, a_batch(method))
    (keep,) = net.keeps
    assert keep.shape == (11, CHANNELS)
    assert torch.equal(keep[:6], torch.tensor([1.0] * 8 + [0.0] * 2).expand(6, -1))
    assert keep[6:].all()  # replayed images keep everything


def test_channels_are_drawn_without_replacement_in_proportion_to_their_scores() -> None:
    """Two of four channels: the chance of each pair by hand, over many draws."""
    method, scores = SCoMMER(shares=(0.5,)), torch.tensor([0.4, 0.3, 0.2, 0.1])
    draws, pairs = 4000, {}
    for seed in range(draws):
        state = dict(method.state({}, CLASSES, 4)) | {SCORES: scores}
        noise = {name: torch.rand(4, generator=torch.Generator().manual_seed(7 * seed)) for name in ("draw", "chance")}
        batch = batch_of(torch.tensor(X[:1]), torch.tensor(Y[:1]), {CURRENT: 1}, noise=noise, state=state)
        pair = tuple(method.keep(batch)[0].nonzero().flatten().tolist())
        pairs[pair] = pairs.get(pair, 0) + 1
    p = scores.tolist()
    for one in range(4):
        for other in range(one):
            expected = p[one] * p[other] / (1 - p[one]) + p[other] * p[one] / (1 - p[other])
            bound = 5 * (expected * (1 - expected) / draws) ** 0.5
            assert abs(pairs.get((other, one), 0) / draws - expected) < bound


def test_a_class_with_habits_keeps_to_them_and_all_images_share_the_numbers() -> None:
    method, chances = SCoMMER(), torch.zeros(CLASSES, CHANNELS)
    chances[1] = torch.linspace(0, 1, CHANNELS)
    batch = a_batch(method, 3, {CHANCES: chances})
    keep = method.keep(batch)[:6].numpy()
    numbers = batch.noise["chance"].numpy()
    for label, row in zip(Y[:6], keep, strict=True):
        expected = numbers < chances[1].numpy() if label == 1 else [True] * 8 + [False] * 2
        np.testing.assert_array_equal(row.astype(bool), expected)


def test_it_counts_where_channels_of_current_images_were_alive() -> None:
    method = SCoMMER()
    batch = a_batch(method, state={ALIVE: torch.full((CHANNELS,), 2.0)})
    features = torch.tensor(np.maximum(RNG.normal(size=(11, CHANNELS)), 0))
    parts = Parts(features, batch.images.sizes)
    counted = method.counted(Answer(parts, parts), batch)
    alive = features[:6].numpy() > 0
    np.testing.assert_array_equal(counted[ALIVE].numpy(), 2 + alive.sum(0))
    by_class = np.array([alive[Y[:6] == label].sum(0) for label in range(CLASSES)])
    np.testing.assert_array_equal(counted[ALIVE_OF].numpy(), by_class)


def test_scores_and_habits_are_exponentials_of_the_shares() -> None:
    method = SCoMMER(avoidance=5.0, habit=2.0, warm_up=3)
    state = dict(method.state({}, CLASSES, CHANNELS))
    alive, by_class = RNG.integers(0, 50, CHANNELS), RNG.integers(0, 50, (CLASSES, CHANNELS))
    by_class[2] = 0
    state[ALIVE], state[ALIVE_OF] = torch.tensor(alive).float(), torch.tensor(by_class).float()
    desk = Hand(state=state, classes=classes_of(CLASSES, (), (0, 1), 0))
    before = state[SCORES].clone()
    method.after_epoch(desk, 2)
    assert not state[CHANCES].any()
    method.after_epoch(desk, 3)
    peaks = by_class.max(1, keepdims=True).clip(1)
    np.testing.assert_allclose(state[CHANCES].numpy(), 1 - np.exp(-2 * by_class / peaks), rtol=1e-5, atol=1e-7)
    assert not state[CHANCES][2].any()  # a class never seen has no habits
    assert torch.equal(state[SCORES], before)
    method.after_task(desk)
    np.testing.assert_allclose(state[SCORES].numpy(), np.exp(-5 * alive / alive.max()), rtol=1e-5)
