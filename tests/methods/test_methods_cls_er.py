"""CLS-ER: which mean says the target, weights of the terms, and how the means follow the net (spec 2, 13.1-13.3)."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from support import answer_of, batch_of, terms_of

from ider import Learner, Task, UserError, recipe
from ider.config import LearnerConfig, MemoryConfig, NetConfig, TrainConfig
from ider.methods import CLSER
from ider.nets import NETS, Shape, View
from ider.types import CURRENT, Answer, Average, Parts

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(12, 4)), RNG.integers(0, 4, 12)
W = {name: RNG.normal(size=(4, 4)) for name in ("working", "stable", "plastic")}


class LinearNet:
    """Logits linear in the images, with a mean of each name; it notes what went through it."""

    def __init__(self, name: str = "working") -> None:
        self.name, self.seen = name, []

    def encode(self, images: Parts) -> Parts:
        self.seen.append((tuple(images.sizes), images.groups))
        return images

    def decode(self, z: Parts, y: Parts | None = None, keep: torch.Tensor | None = None) -> Answer:
        assert y is keep is None
        return answer_of(z, z.rows @ torch.tensor(W[self.name]))

    def average(self, name: str) -> "LinearNet":
        return LinearNet(name)


def ce(rows: slice) -> float:
    return float(-log_softmax(X[rows] @ W["working"], 1)[np.arange(len(Y[rows])), Y[rows]].mean())


def consistency(rows: slice) -> float:
    logits = {name: X[rows] @ weight for name, weight in W.items()}
    true = {name: softmax(values, 1)[np.arange(len(values)), Y[rows]] for name, values in logits.items()}
    target = np.where((true["stable"] > true["plastic"])[:, None], logits["stable"], logits["plastic"])
    return float(((logits["working"] - target) ** 2).mean())


def a_batch(method: CLSER, **sizes: int):
    count = sum(sizes.values())
    return batch_of(torch.tensor(X[:count]), torch.tensor(Y[:count]), sizes, method.needs().mixed)


def test_mixed_it_is_one_mean_of_all_rows_and_the_distance_to_the_surer_mean() -> None:
    net, method = LinearNet(), CLSER(consistency_weight=0.15)
    terms = terms_of(method, net, None, a_batch(method, current=7, replay=5))
    assert terms["all"].item() == pytest.approx(ce(slice(0, 12)), rel=1e-6)
    assert terms["consistency"].item() == pytest.approx(0.15 * consistency(slice(7, 12)), rel=1e-6)
    assert net.seen == [(("replay",), (5,)), ((CURRENT, "replay"), (12,))]


def test_equal_parts_weigh_half_each() -> None:
    method = CLSER()
    terms = terms_of(method, LinearNet(), None, a_batch(method, current=6, replay=6))
    assert terms["all"].item() == pytest.approx((ce(slice(0, 6)) + ce(slice(6, 12))) / 2, rel=1e-6)


def test_apart_each_part_has_its_own_mean_and_goes_through_the_net_once() -> None:
    net, method = LinearNet(), CLSER(mixed=False, replay_weight=0.7, consistency_weight=2.0)
    terms = terms_of(method, net, None, a_batch(method, current=7, replay=5))
    assert terms["current"].item() == pytest.approx(ce(slice(0, 7)), rel=1e-6)
    assert terms["replay"].item() == pytest.approx(0.7 * ce(slice(7, 12)), rel=1e-6)
    assert terms["consistency"].item() == pytest.approx(2 * consistency(slice(7, 12)), rel=1e-6)
    assert net.seen == [((CURRENT, "replay"), (7, 5))]


def test_an_empty_memory_leaves_the_current_batch_alone() -> None:
    method = CLSER()
    terms = terms_of(method, LinearNet(), None, a_batch(method, current=7))
    assert {name: term.item() for name, term in terms.items()} == {"all": pytest.approx(ce(slice(0, 7)), rel=1e-6)}


def test_a_tie_goes_to_the_plastic_mean() -> None:
    """A constant added to all logits changes no probability, only the distance."""
    method = CLSER(consistency_weight=1.0)

    class Shifted(LinearNet):
        def average(self, name: str) -> "LinearNet":
            mean = LinearNet("working")
            plain = mean.decode
            mean.decode = lambda z: answer_of(z, plain(z).logits.rows + {"stable": 5.0, "plastic": 3.0}[name])
            return mean

    x = torch.zeros(12, 4, dtype=torch.float64)  # exact ties
    batch = batch_of(x, torch.tensor(Y), {CURRENT: 7, "replay": 5}, mixed=True)
    assert terms_of(method, Shifted(), None, batch)["consistency"].item() == pytest.approx(9.0)


def test_what_it_asks_for() -> None:
    needs = CLSER(stable_rate=0.1, plastic_rate=0.9, decay=0.99).needs()
    assert needs.averages == (Average("stable", 0.99, 0.1), Average("plastic", 0.99, 0.9))
    assert [CLSER(predicts=name).needs().predicts for name in ("stable", "plastic", "working")] == [
        "stable",
        "plastic",
        "",
    ]
    with pytest.raises(UserError, match="replay_weight is 0.5"):
        CLSER(replay_weight=0.5)


def tasks(count: int) -> list[Task]:
    rng = np.random.default_rng(0)
    shape = (20, 1, 6, 6)
    return [Task(rng.integers(0, 256, shape).astype(np.uint8), 2 * n + np.arange(20) % 2) for n in range(count)]


def a_learner(method: CLSER) -> Learner:
    engine = dataclasses.replace(recipe("digits", "er").engine, device="cpu", precision="fp32", threads=1)
    return Learner(
        LearnerConfig(
            method=method,
            net=NetConfig(name="small-conv", width=4, classes=4, label_input=False),
            memory=MemoryConfig(size=10),
            train=TrainConfig(epochs=2, batch=5, replay_batch=4, lr=0.05),
            engine=engine,
        ),
        seed=0,
    )


def a_net_of(learner: Learner):
    """The net as a learner of this seed draws it."""
    other = Learner(learner.config, learner.seed)
    other.prepare(tasks(1)[0].images)
    return other.net


def flat(net: torch.nn.Module) -> torch.Tensor:
    """All weights in a row."""
    return torch.cat([weight.detach().double().flatten() for weight in net.parameters()])


def test_the_means_follow_by_the_published_rule() -> None:
    """With a rate of 1: d = min(1 - 1 / (s + 1), decay) after step s, parameters only."""
    learner = a_learner(CLSER(stable_rate=1.0, plastic_rate=0.0, decay=0.8))
    first, expected, steps = None, {}, 0
    for _ in learner.learning(tasks(1)[0]):
        weights = {name: weight.detach().clone() for name, weight in learner.net.named_parameters()}
        steps += 1
        if first is None:
            # The means begin as the net did: half way after the first step.
            start = dict(learner.model.averages["plastic"].named_parameters())
            first = {name: weight.clone() for name, weight in start.items()}
            expected = dict(first)
        d = min(1 - 1 / (steps + 1), 0.8)
        expected = {name: d * expected[name] + (1 - d) * weight for name, weight in weights.items()}
        for name, weight in learner.model.averages["stable"].named_parameters():
            torch.testing.assert_close(weight, expected[name], rtol=1e-5, atol=1e-6)
    assert steps == 8
    assert learner.model.steps == 8
    for name, weight in learner.model.averages["plastic"].named_parameters():
        assert torch.equal(weight, first[name])  # type: ignore[index]


def test_at_the_published_decay_the_first_999_steps_ramp_and_no_statistics_move() -> None:
    """d = 1 / 2 after the first step, 1 - 1 / 999 after step 998, 0.999 from step 999 on (spec 13.1)."""
    learner, found = a_learner(CLSER(stable_rate=1.0)), {}
    fresh = a_net_of(learner)
    before = flat(fresh)
    for number, _ in enumerate(learner.learning(tasks(1)[0]), 1):
        mean, net = flat(learner.model.averages["stable"]), flat(learner.net)
        if number != 3:
            found[int(learner.model.steps)] = 1 - float(
                (mean - before) @ (net - before) / (net - before).square().sum()
            )
        if number == 1:  # the memory was empty, so no mean has seen an image: the call moved its parameters alone
            buffers = dict(fresh.named_buffers())
            for name, values in learner.model.averages["stable"].named_buffers():
                assert torch.equal(values, buffers[name]), name
        if number == 3:
            learner.model.steps.fill_(997)
        before = mean
    assert {step: found[step] for step in (1, 998, 999, 1000)} == pytest.approx(
        {1: 0.5, 998: 1 - 1 / 999, 999: 0.999, 1000: 0.999}, abs=2e-7
    )


def test_the_target_carries_no_gradient() -> None:
    """The gradient of the distance is 2 (z - target) / count through the replayed logits alone."""
    torch.manual_seed(0)
    net, plastic = (NETS["small-conv"](Shape((1, 6, 6), 4, 3)) for _ in range(2))
    means = {"stable": net.averaged(), "plastic": plastic.averaged()}
    x, method = torch.randn(9, 1, 6, 6), CLSER(mixed=False, consistency_weight=1.0)
    batch = batch_of(x, torch.arange(9) % 4, {CURRENT: 5, "replay": 4})
    view = View(net, averages=means)
    first = view.decode(view.encode(batch.images))
    term = method.further(first, (view, None), batch)["consistency"]
    logits = {name: mean.decode(mean.encode(x[5:])) for name, mean in means.items()}
    assert not any(values.requires_grad for values in logits.values())
    true = {name: values.softmax(1)[torch.arange(4), torch.arange(5, 9) % 4] for name, values in logits.items()}
    target = torch.where((true["stable"] > true["plastic"])[:, None], logits["stable"], logits["plastic"])
    (found,) = torch.autograd.grad(term, first.logits.rows)
    torch.testing.assert_close(found[5:], 2 * (first.logits["replay"] - target).detach() / target.numel())
    assert not found[:5].any()


# The horizons of specification 2.6, S and P, in steps.
@pytest.mark.parametrize(
    ("stable", "plastic", "horizons"),
    [
        (0.1, 0.3, (10_000, 3_333)),
        (0.1, 0.9, (10_000, 1_111)),
        (0.8, 1.0, (1_250, 1_000)),
        (0.04, 0.08, (25_000, 12_500)),
    ],
)
def test_a_horizon_in_steps_is_the_published_pair(stable: float, plastic: float, horizons: tuple[int, int]) -> None:
    by_rates = CLSER(stable_rate=stable, plastic_rate=plastic).needs().averages
    by_steps = CLSER(stable_horizon=horizons[0], plastic_horizon=horizons[1]).needs().averages
    assert [item.rate for item in by_steps] == pytest.approx([item.rate for item in by_rates], rel=1e-3)
    assert {item.decay for item in (*by_rates, *by_steps)} == {0.999}


@pytest.mark.parametrize(("epochs", "rate", "decay"), [(50, 0.1, 0.999), (25, 0.2, 0.999), (1, 1.0, 0.995)])
def test_horizons_shrink_with_the_schedule_if_asked(epochs: int, rate: float, decay: float) -> None:
    """Tuned for 50 epochs, 10,000 steps: with one epoch 200 steps, which no rate gives at a decay of 0.999."""
    stable = CLSER(stable_rate=0.1, tuned_epochs=50).needs().averages[0].over(epochs)
    assert (stable.rate, stable.decay) == (pytest.approx(rate), pytest.approx(decay))
    assert 1 / (stable.rate * (1 - stable.decay)) == pytest.approx(10_000 * epochs / 50)
    untold = CLSER(stable_rate=0.1).needs().averages[0]
    assert untold.over(epochs) == untold
    never = CLSER(stable_rate=0.0, tuned_epochs=50).needs().averages[0]
    assert never.over(epochs) == never


def test_the_learner_scales_the_horizons() -> None:
    """From 8 epochs to 2: the mean follows at every step, not one in four, as it does without the word."""
    followed = {}
    for tuned in (0, 8):
        learner = a_learner(CLSER(stable_rate=0.25, tuned_epochs=tuned))
        before, followed[tuned] = None, 0
        for _ in learner.learning(tasks(1)[0]):
            now = [weight.clone() for weight in learner.model.averages["stable"].parameters()]
            followed[tuned] += before is not None and not all(map(torch.equal, before, now))
            before = now
    assert followed[8] == 7
    assert followed[0] < 7


def test_a_mean_follows_as_often_as_its_rate_says() -> None:
    learner = a_learner(CLSER(stable_rate=0.3, plastic_rate=1.0))
    learner.config = dataclasses.replace(learner.config, train=dataclasses.replace(learner.config.train, epochs=60))
    followed = total = 0
    before: list[torch.Tensor] = []
    for _ in learner.learning(tasks(1)[0]):
        now = [weight.clone() for weight in learner.model.averages["stable"].parameters()]
        followed += bool(before) and not all(map(torch.equal, before, now))
        before, total = now, total + 1
    assert total == 240
    assert abs(followed / total - 0.3) < 4 * (0.3 * 0.7 / total) ** 0.5


@pytest.mark.parametrize("own", [True, False])
def test_running_statistics_of_a_mean_are_of_the_memory_or_the_net_s(own: bool) -> None:
    learner = a_learner(CLSER(own_statistics=own)).learn(tasks(1)[0])
    mean, net = (
        {name: values for name, values in one.named_buffers() if "running" in name}
        for one in (learner.model.averages["stable"], learner.net)
    )
    same = all(torch.equal(values, net[name]) for name, values in mean.items())
    assert same is not own
    assert all(values.any() for name, values in mean.items() if "mean" in name)


def test_the_learner_answers_by_the_mean_that_was_chosen() -> None:
    images = tasks(1)[0].images
    found = {}
    for name in ("stable", "plastic", "working"):
        learner = a_learner(CLSER(predicts=name)).learn(tasks(1)[0])
        found[name] = learner.answers(images).first
        chosen = learner.model.averages.get(name, learner.net)
        assert chosen.training  # as before the answer
        with torch.no_grad():
            chosen.eval()
            x = torch.from_numpy(images).float() / 255 - learner.model.mean_std()[0][:, None, None]
            x = x / learner.model.mean_std()[1][:, None, None]
            expected = chosen.decode(chosen.encode(x))
        np.testing.assert_allclose(found[name], expected.numpy(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(found["stable"], found["working"])


def test_means_grow_and_resume_with_everything_else(tmp_path) -> None:
    first, second = tasks(2)
    config = a_learner(CLSER(stable_rate=0.7)).config
    config = dataclasses.replace(config, net=dataclasses.replace(config.net, classes=0))
    whole = Learner(config, seed=1).learn(first).learn(second)
    assert {net.classes for net in (whole.net, *whole.model.averages.values())} == {4}
    part = Learner(config, seed=1).learn(first)
    for number, _ in enumerate(part.learning(second)):
        if number == 4:
            part.save(tmp_path / "part")
            break
    rest = Learner.load(tmp_path / "part").learn(second)
    for (name, mine), (other, theirs) in zip(whole.model.tensors().items(), rest.model.tensors().items(), strict=True):
        assert name == other
        assert torch.equal(mine, theirs), name
