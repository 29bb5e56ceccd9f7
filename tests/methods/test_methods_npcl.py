"""NPCL: its head against loops and torch.distributions, the loss of a step, prediction, resume (spec 7)."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import norm
from support import answer_of, batch_of, classes_of
from torch import Tensor
from torch.distributions import Independent, kl_divergence
from torch.distributions import Normal as TorchNormal

from ider import Learner, LearnerConfig, Task, UserError
from ider.config import EngineConfig, ImageConfig, MemoryConfig, NetConfig, TrainConfig
from ider.engine.optim import warmed
from ider.memory.plan import noise_shapes
from ider.methods import METHODS, NPCL, Idempotent
from ider.methods.npcl_head import (
    Attention,
    Latent,
    NeuralProcess,
    Normal,
    Sizes,
    TaskLinear,
    TaskNorm,
    context_of,
    normal_numbers,
    surest,
)
from ider.types import CURRENT, TASKS, Answer, Batch, Classes, Parts

CLASSES, FEATURES, LATENT, DECODER, HEADS = 6, 5, 8, 7, 2
SIZES = Sizes(LATENT, HEADS, DECODER)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def a_head(tasks: int, seed: int = 0, sizes: Sizes = SIZES) -> NeuralProcess:
    """A head none of whose weights is left at zero or one."""
    torch.manual_seed(seed)
    head = NeuralProcess(CLASSES, FEATURES, tasks, sizes)
    with torch.no_grad():
        for values in (*head.parameters(), head.old_whole_mean, head.old_own_mean):
            values.add_(0.3 * torch.randn_like(values))
        for values in (head.old_whole_std, head.old_own_std):
            values.uniform_(0.5, 2)
    return head


# What it is made of.


def parameters(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def test_it_has_the_published_numbers_of_parameters() -> None:
    """198,272 a task; 3,329,252 in all for 100 classes, 10 tasks and 512 features (spec 7.1)."""
    counts = [parameters(NPCL().side(100, 512, tasks)) for tasks in (1, 9, 10)]
    assert counts[2] - counts[1] == 198_272
    assert (counts[1] - counts[0]) / 8 == 198_272
    assert counts[2] == 3_329_252


def test_weights_begin_as_xavier_s_and_biases_as_zero() -> None:
    head = NPCL().side(10, 512, 2)
    for module in head.modules():
        if isinstance(module, torch.nn.Linear | TaskLinear):
            bound = math.sqrt(6 / (module.weight.shape[-1] + module.weight.shape[-2]))
            assert 0.97 * bound < module.weight.abs().max() <= bound
            assert module.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
            assert not module.bias.any()


@torch.no_grad()
def test_attention_is_the_plain_loop_over_heads_queries_and_keys() -> None:
    torch.manual_seed(1)
    attention, counts = Attention(3, LATENT, HEADS), torch.tensor([[1.0, 2, 0, 1], [0, 0, 1, 1], [3, 1, 1, 0]])
    query, key, value = numbers(3, 5, LATENT), numbers(3, 4, LATENT, seed=1), numbers(3, 4, LATENT, seed=2)
    found = attention((query, key, value), counts)
    width = LATENT // HEADS
    for task in range(3):
        layers = (attention.query, attention.key, attention.value)
        q, k, v = (
            x[task] @ layer.weight[task] + layer.bias[task]
            for x, layer in zip((query, key, value), layers, strict=True)
        )
        for row in range(5):
            merged = []
            for head in range(HEADS):
                part = slice(head * width, (head + 1) * width)
                shares = [
                    float(n) * math.exp(float(q[row, part] @ k[j, part]) / math.sqrt(LATENT))
                    for j, n in enumerate(counts[task])
                ]
                merged.append(q[row, part] + sum(s / sum(shares) * v[j, part] for j, s in enumerate(shares)))
            o = torch.cat(merged)
            expected = o + F.relu(o @ attention.out.weight[task] + attention.out.bias[task, 0])
            torch.testing.assert_close(found[task, row], expected)


def test_an_element_that_counts_twice_is_two_elements_and_one_that_does_not_count_is_none() -> None:
    head, features, labels = a_head(2), numbers(4, FEATURES), torch.tensor([0, 1, 2, 3])
    own, counts = (torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]]), torch.tensor([[2.0, 1, 0, 1]]))
    whole, summary = head.look((features, labels), counts, own)
    order = torch.tensor([0, 0, 1, 3])
    again, summary_again = head.look((features[order], labels[order]), torch.ones(1, 4), own[:, order])
    torch.testing.assert_close(whole.mean, again.mean)
    torch.testing.assert_close(whole.std, again.std)
    torch.testing.assert_close(summary, summary_again)


def test_a_latent_is_a_hidden_layer_and_two_of_its_own() -> None:
    torch.manual_seed(2)
    latent, x = Latent(2, 3, 4), numbers(2, 3)
    found = latent(x)
    for task in range(2):
        h = F.relu(F.layer_norm(x[task] @ latent.hidden.weight[task], (4,)))
        torch.testing.assert_close(found.mean[task], h @ latent.mean.weight[task])
        torch.testing.assert_close(found.std[task], (h @ latent.log_std.weight[task]).exp() + 0.01)
    only = latent(x[1:], slice(1, 2))
    torch.testing.assert_close(only.mean, found.mean[1:])


def test_normalisation_has_weights_of_each_task() -> None:
    layer = TaskNorm(2, 3)
    with torch.no_grad():
        layer.weight.copy_(numbers(2, 1, 3))
        layer.bias.copy_(numbers(2, 1, 3, seed=1))
    x = numbers(4, 2, 5, 3, seed=2)
    for task in range(2):
        expected = F.layer_norm(x[:, task], (3,), layer.weight[task, 0], layer.bias[task, 0])
        torch.testing.assert_close(layer(x)[:, task], expected)


# Divergences, numbers, contexts.


def test_divergences_are_those_of_torch() -> None:
    one, other = (Normal(numbers(7, LATENT, seed=s), numbers(7, LATENT, seed=s + 1).exp()) for s in (0, 2))
    p, q = (Independent(TorchNormal(some.mean, some.std), 1) for some in (one, other))
    torch.testing.assert_close(one.divergence(other), kl_divergence(p, q))
    assert not one.divergence(one).any()
    assert one.divergence(other).min() > 0


def test_uniform_numbers_become_normal_ones() -> None:
    u = torch.linspace(0, 1, 1001)[:-1]  # as a generator gives them: 0 can come, 1 cannot
    found = normal_numbers(u)
    assert found.isfinite().all()
    np.testing.assert_allclose(found[1:], norm.ppf(u[1:].double()), atol=2e-5)


@pytest.mark.parametrize(
    ("labels", "least", "size"), [([0, 0, 1, 2, 2, 2, 0, 1], 5, 5), ([0, 1, 2, 3, 0, 1, 2, 3], 2, 4)]
)
def test_a_context_has_one_of_each_label_and_others_by_chance(labels: list[int], least: int, size: int) -> None:
    y, taken = torch.tensor(labels), torch.zeros(len(labels))
    for seed in range(400):
        u = torch.rand(len(y), generator=torch.Generator().manual_seed(seed))
        chosen = context_of(u, y, least)
        assert chosen.sum() == size
        assert set(y[chosen.bool()].tolist()) == set(labels)
        first = {label: min((float(u[i]), i) for i in range(len(y)) if labels[i] == label)[1] for label in labels}
        others = sorted((i for i in range(len(y)) if i not in first.values()), key=lambda i: float(u[i]))
        expected = {*first.values(), *others[: max(least - len(first), 0)]}
        assert set(chosen.nonzero().flatten().tolist()) == expected
        taken += chosen
    for label in set(labels):  # no sample of a label is preferred
        shares = taken[y == label] / 400
        assert shares.max() - shares.min() < 0.15


def test_the_surest_task_answers_and_its_draws_are_averaged() -> None:
    logits = 3 * numbers(3, 4, 50, CLASSES)
    found, of_probabilities = surest(logits), surest(logits, True)
    p = torch.softmax(logits.double(), -1).numpy()
    entropy = -(p * np.log(p)).sum(-1).mean(1)
    assert len(set(entropy.argmin(0).tolist())) == 3
    for row in range(50):
        best = entropy[:, row].argmin()
        torch.testing.assert_close(found[row], logits[best, :, row].mean(0))
        np.testing.assert_allclose(of_probabilities[row].exp(), p[best, :, row].mean(0), rtol=1e-4)


def test_probabilities_that_vanish_have_a_logarithm() -> None:
    logits = torch.tensor([[[[300.0, 0.0, 10.0]], [[300.0, 0.0, 10.0]]]])
    torch.testing.assert_close(surest(logits, True), torch.tensor([[0.0, -300.0, -290.0]]))


# The loss of a step.


class Net:
    """Features are the images."""

    def encode(self, images: Parts) -> Parts:
        return images

    def decode(self, z: Parts, y: Parts | None = None, keep: Tensor | None = None) -> Answer:
        return answer_of(z, z.rows.new_zeros(len(z.rows), CLASSES))


METHOD = NPCL(
    draws=3,
    context=0.5,
    latent=LATENT,
    heads=HEADS,
    decoder=DECODER,
    stream_weight=0.2,
    task_weight=0.3,
    past_stream_weight=0.5,
    past_task_weight=0.7,
)
LABELS = torch.tensor([4, 5, 4, 4, 5, 0, 4, 0, 1, 5])  # six current ones; task 1 (classes 2 and 3) is not replayed
TASK_OF = [0, 0, 1, 1, 2, 2]


def a_batch(method: NPCL = METHOD, seed: int = 0, later: bool = True) -> Batch:
    sizes = {CURRENT: 5, "replay": 5}
    shapes = noise_shapes(method.noise(CLASSES, FEATURES), sizes, 3)
    generator = torch.Generator().manual_seed(seed)
    noise = {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
    masks = classes_of(CLASSES, (0, 1, 2, 3), (4, 5), 2)
    classes = Classes(masks.past, masks.current, masks.finished, 2, torch.tensor(TASK_OF))
    return batch_of(numbers(10, FEATURES), LABELS, sizes, classes=classes, noise=noise, side=a_head(3))


def posteriors(head: NeuralProcess, rows: list[int], batch: Batch) -> tuple[TorchNormal, dict[int, Tensor]]:
    """The stream's posterior of a set, and the summary of each task in it, for an ordinary list of elements."""
    x, y = batch.images.rows[rows], batch.labels.rows[rows]
    s = head.element(torch.cat([x, F.one_hot(y, CLASSES).float()], 1))

    def attend(layers: torch.nn.ModuleList, elements: Tensor, task: int) -> Tensor:
        for layer in layers:
            q, k, v = (elements @ part.weight[task] + part.bias[task] for part in (layer.query, layer.key, layer.value))
            parts = torch.arange(LATENT).split(LATENT // HEADS)
            o = torch.cat([q[:, p] + torch.softmax(q[:, p] @ k[:, p].T / LATENT**0.5, 1) @ v[:, p] for p in parts], 1)
            elements = o + F.relu(o @ layer.out.weight[task] + layer.out.bias[task])
        return elements.mean(0)

    whole = distribution(head.whole, attend(head.attention, s, 0), 0)
    tasks = sorted({TASK_OF[label] for label in y.tolist()})
    return whole, {
        task: attend(head.task_attention, s[[TASK_OF[label] == task for label in y.tolist()]], task) for task in tasks
    }


def distribution(latent: Latent, x: Tensor, task: int) -> TorchNormal:
    h = x @ latent.hidden.weight[task] + latent.hidden.bias[task, 0]
    h = F.relu(F.layer_norm(h, (LATENT,), latent.norm.weight[task, 0], latent.norm.bias[task, 0]))
    mean, log_std = (h @ layer.weight[task] + layer.bias[task, 0] for layer in (latent.mean, latent.log_std))
    return TorchNormal(mean, (log_std.exp() + 0.01).clamp(min=0.01))


def kl(p: TorchNormal, q: TorchNormal) -> float:
    return float(kl_divergence(p, q).sum())


def by_hand(part: str, batch: Batch) -> dict[str, float]:
    """All terms of a part, with lists in the place of counts."""
    head, replayed = batch.side, part == "replay"
    rows = list(range(5, 10)) if replayed else list(range(5))
    chosen = context_of(batch.noise[f"context/{part}"], batch.labels[part], 3).bool().tolist()
    context = [row for row, inside in zip(rows, chosen, strict=True) if inside]
    targets = rows if replayed else [*context, *rows]
    draws = normal_numbers(batch.noise[f"draws/{part}"])
    place = {task: task if replayed else 0 for task in range(3)}  # current images know the present task alone
    (whole, own), (whole_c, own_c) = posteriors(head, targets, batch), posteriors(head, context, batch)

    def posterior(whole: TorchNormal, summary: Tensor, task: int, draw: int) -> TorchNormal:
        z = whole.mean + whole.stddev * draws[0, draw, place[task]]
        return distribution(head.own, torch.cat([summary, z]), task)

    drop = (batch.noise[f"dropout/{part}"] >= 0.25).float() / 0.75
    position = {row: number for number, row in enumerate(rows)}
    x = {row: batch.images.rows[row] for row in rows}
    labelled = {row: torch.cat([x[row], F.one_hot(LABELS[row], CLASSES).float()]) for row in rows}
    losses = []
    for row in targets:
        found = (head.query(x[row]) * drop[1, position[row]])[None, None]
        keys = torch.stack([head.key(x[c]) * drop[0, position[c]] for c in context])[None]
        values = torch.stack([head.value(labelled[c]) for c in context])[None]
        for layer in head.cross:
            found = layer((found, keys, values), torch.ones(1, len(context)))
        for draw in range(METHOD.draws):
            task = TASK_OF[LABELS[row]]
            q = posterior(whole, own[task], task, draw)
            v = q.mean + q.stddev * draws[1, draw, place[task]]
            logits = head.answer(head.decoder(torch.cat([x[row], found[0, 0], v])))
            losses.append(float(F.cross_entropy(logits, LABELS[row])))
    last = METHOD.draws - 1
    said = {task: posterior(whole, own[task], task, last) for task in own}
    terms = {
        part: float(np.mean(losses)),
        f"stream/{part}": 0.2 * kl(whole, whole_c),
        f"tasks/{part}": 0.3 * sum(kl(said[task], posterior(whole_c, own_c[task], task, last)) for task in own),
    }
    if replayed:
        old = [TorchNormal(head.old_whole_mean[k], head.old_whole_std[k]) for k in range(2)]
        old_own = [TorchNormal(head.old_own_mean[k], head.old_own_std[k]) for k in range(2)]
        terms["past/stream"] = 0.5 * sum(kl(whole, known) for known in old)
        terms["past/tasks"] = 0.7 * sum(kl(said[task], old_own[task]) for task in own if task < 2)
    return terms


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_of_a_step_is_that_by_hand(seed: int) -> None:
    batch = a_batch(seed=seed)
    terms = METHOD.step(Net(), None, batch).terms
    with torch.no_grad():
        expected = by_hand(CURRENT, batch) | by_hand("replay", batch)
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=2e-4)
    assert min(expected.values()) > 1e-3


def test_a_context_that_is_the_whole_batch_says_what_the_batch_says() -> None:
    """Identical posteriors: with all images in the context, both counts of current ones are alike."""
    method = dataclasses.replace(METHOD, context=1.0)
    terms = method.step(Net(), None, a_batch(method)).terms
    for name in ("stream/current", "stream/replay", "tasks/current", "tasks/replay"):
        assert terms[name].item() == pytest.approx(0, abs=1e-5)


def test_every_weight_of_the_head_learns_and_an_absent_task_does_not() -> None:
    batch = a_batch()
    torch.stack(list(METHOD.step(Net(), None, batch).terms.values())).sum().backward()
    for name, weight in batch.side.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        of_tasks = len(weight) == 3 and (name.startswith("own.") or name.startswith("task_attention."))
        if of_tasks and "key.bias" not in name:  # which moves all scores alike
            assert weight.grad[0].any(), name
            assert not weight.grad[1].any(), name
            assert weight.grad[2].any(), name


# What it asks of the engine.


def test_what_it_asks_for() -> None:
    needs = METHODS["npcl"].needs()
    assert needs.side is not None
    assert (needs.side.lasting, needs.head, needs.disjoint, needs.recalls, needs.warm_up) == (
        True,
        "none",
        True,
        True,
        0.5,
    )
    shapes = NPCL(draws=2, latent=4).noise(5, 6)
    assert shapes["draws/replay"] == (2, 2, TASKS, 4)
    assert noise_shapes(shapes, {CURRENT: 3}, 7) == {
        "context/current": (3,),
        "dropout/current": (2, 3, 4),
        "draws/current": (2, 2, 1, 4),
        "draws/replay": (2, 2, 7, 4),
    }


def test_it_cannot_be_combined_and_says_why() -> None:
    with pytest.raises(UserError, match="NPCL cannot give: its logits are draws of a random variable"):
        Idempotent(base=NPCL())
    with pytest.raises(UserError, match="heads is 3; it must divide latent, which is 128"):
        NPCL(heads=3)


def tasks() -> list[Task]:
    rng = np.random.default_rng(0)
    shape = (22, 1, 6, 6)
    return [Task(rng.integers(0, 256, shape).astype(np.uint8), 2 * n + np.arange(22) % 2) for n in range(3)]


def config(**changes: object) -> LearnerConfig:
    whole = LearnerConfig(
        method=NPCL(draws=2, test_draws=3, latent=8, heads=2, decoder=9),
        net=NetConfig(name="small-conv", width=3, label_input=False),
        memory=MemoryConfig(size=12),
        train=TrainConfig(epochs=2, batch=5, replay_batch=4, lr=0.05, momentum=0.5),
        images=ImageConfig(pad=1, flip=True),
        engine=EngineConfig(device="cpu", precision="fp32", capture="off", threads=1),
    )
    return dataclasses.replace(whole, **changes)  # type: ignore[arg-type]


def test_a_memory_of_nothing_and_classes_that_come_again_are_refused() -> None:
    with pytest.raises(UserError, match="memory.size is 0"):
        config(memory=MemoryConfig(size=0))
    learner = Learner(config()).learn(tasks()[0])
    with pytest.raises(UserError, match=r"classes \[0, 1\] come again"):
        learner.learn(Task(tasks()[0].images[:10], tasks()[0].labels[:10]))


def test_the_head_grows_with_tasks_and_classes_and_keeps_what_it_knows() -> None:
    """Classes are not announced here, so both the tasks of the head and its classes grow at the second task."""
    learner, seen = Learner(config()), []
    for number, task in enumerate(tasks()):
        before = None if learner._model is None else learner.model.side
        held = None if before is None else {name: values.clone() for name, values in before.state_dict().items()}
        steps = learner.learning(task)
        for _ in steps:
            break
        head = learner.model.side
        assert isinstance(head, NeuralProcess)
        assert (head.tasks, head.classes) == (number + 1, 2 * number + 2)
        assert not head.old_own_mean[number].any()  # of a task that has not ended
        if held is not None:
            assert head is not before
            # One small step from what it knew: the rate has hardly begun to climb.
            for name, values in head.state_dict().items():
                corner = values[tuple(slice(size) for size in held[name].shape)]
                torch.testing.assert_close(corner, held[name], atol=1e-3, rtol=0)
        for _ in steps:
            pass
        seen.append(head.old_own_mean.clone())
        assert head.old_own_mean[number].any()
    torch.testing.assert_close(seen[2][:2], seen[1], rtol=0, atol=0)  # what past tasks said stays


def test_after_a_task_the_means_of_its_batches_posteriors_are_noted() -> None:
    """One batch of the whole task and one from the memory, without augmentation: by hand up to the drawn numbers."""
    learner = Learner(config(images=ImageConfig(), train=TrainConfig(epochs=1, batch=22, replay_batch=4, lr=0.05)))
    learner.learn(tasks()[0])
    head, net = learner.model.side, learner.net
    assert isinstance(head, NeuralProcess)
    x = torch.from_numpy(np.concatenate([tasks()[0].images, learner.memory.images[:12].numpy()]))
    y = torch.cat([torch.from_numpy(tasks()[0].labels), learner.memory.labels[:12]])
    mean, std = learner.model.mean_std()
    net.train()
    with torch.no_grad():
        shown = (x / 255 - mean[:, None, None]) / std[:, None, None]
        h = torch.cat([net.features(net.encode(part)) for part in (shown[:22], shown[22:])])
        whole, summary = head.look((h, y), torch.ones(1, 34), torch.ones(1, 34))
        torch.testing.assert_close(head.old_whole_mean[0], whole.mean[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(head.old_whole_std[0], whole.std[0], rtol=1e-4, atol=1e-5)
        z = whole.at(numbers(2000, 1, 8))
        own = head.own_posterior(summary[0], z)
    span = own.mean.std(0)[0]
    assert ((head.old_own_mean[0] - own.mean.mean(0)[0]).abs() < 5 * span + 1e-4).all()


def test_the_rate_climbs_evenly_in_the_first_half_of_each_task() -> None:
    rates: list[float] = []
    learner = Learner(
        config(train=TrainConfig(epochs=2, batch=5, replay_batch=4, lr=0.05, milestones=(0.5,), decay=0.1))
    )
    for task in tasks()[:2]:
        for _ in learner.learning(task):
            assert learner._bench is not None
            (group,) = learner._bench.optimisers["net"].param_groups
            rates.append(float(group["lr"]))
    climb = [1e-5 + (0.05 - 1e-5) * step / 5 for step in range(5)]
    one = [*climb, *[0.005] * 5]  # 10 steps a task: five on the way, and the milestone lies at the sixth
    assert rates == pytest.approx(one * 2, rel=1e-5)
    assert warmed(0.3, 0.0, 0, 10) == 0.3
    assert warmed(0.3, 1.0, 9, 10) == pytest.approx(1e-5 + (0.3 - 1e-5) * 0.9)


def moved(clip: float) -> list[float]:
    """How far the weights of net and head move in each step but the first, by the rate."""
    method = dataclasses.replace(config().method, clip=clip, warm_up=0.0)
    learner = Learner(config(method=method, train=TrainConfig(epochs=1, batch=5, replay_batch=4, lr=0.1)))
    found, before = [], None
    for _ in learner.learning(tasks()[0]):
        weights = [*learner.net.parameters(), *learner.model.side.parameters()]
        now = torch.cat([weight.detach().flatten() for weight in weights])
        found.append(0.0 if before is None else float((now - before).norm()) / 0.1)
        before = now
    return found[1:]


def test_the_gradient_is_scaled_down_to_the_norm_that_is_allowed() -> None:
    free, limited = moved(0.0), moved(0.5)
    assert min(free) > 0.6
    assert limited == pytest.approx([0.5] * len(free), rel=1e-3)


def test_a_prediction_is_a_function_of_the_learner_and_the_image() -> None:
    learner = Learner(config())
    for task in tasks()[:2]:
        learner.learn(task)
    images, state = tasks()[0].images, torch.get_rng_state()
    whole = learner.answers(images).first
    np.testing.assert_array_equal(whole, learner.answers(images).first)
    np.testing.assert_allclose(learner.answers(images[3:7]).first, whole[3:7], rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), state)
    assert learner.net.training


def predicted(learner: Learner, images: np.ndarray) -> np.ndarray:
    return learner.answers(images).first


def test_a_prediction_does_not_depend_on_the_order_of_the_memory() -> None:
    method = dataclasses.replace(config().method, augmented_context=False)
    learner = Learner(config(method=method))
    for task in tasks()[:2]:
        learner.learn(task)
    images = tasks()[1].images
    before, order = predicted(learner, images), torch.randperm(12, generator=torch.Generator().manual_seed(0))
    memory = learner.memory
    for values in (memory.images, memory.labels):
        values[:12] = values[order].clone()
    np.testing.assert_allclose(predicted(learner, images), before, rtol=1e-4, atol=1e-5)
    memory.images[0] = 255 - memory.images[0]
    assert not np.allclose(predicted(learner, images), before, rtol=1e-4, atol=1e-5)


def test_a_prediction_is_the_surest_task_s_by_hand_and_a_task_that_was_forgotten_has_none() -> None:
    method = dataclasses.replace(config().method, augmented_context=False)
    learner = Learner(config(method=method))
    for task in tasks():
        learner.learn(task)
    kept = learner.memory.labels[:12]
    learner.memory.labels[:12] = torch.where((kept == 2) | (kept == 3), torch.tensor(0), kept)  # task 1 is forgotten
    images, head, net = tasks()[1].images, learner.model.side, learner.net
    found = predicted(learner, images)
    assert isinstance(head, NeuralProcess)
    mean, std = learner.model.mean_std()
    net.eval()
    with torch.no_grad():
        h, m = (
            net.features(net.encode((x / 255 - mean[:, None, None]) / std[:, None, None]))
            for x in (torch.from_numpy(images), learner.memory.images[:12])
        )
        labels = learner.memory.labels[:12]
        rng = learner._rng("prediction")
        eps = torch.from_numpy(rng.standard_normal((2, 3, 3, 8))).float()
        relation, answers = head.relate(h, (m, labels), torch.ones(12)), []
        for task in (0, 2):
            own = (labels // 2 == task).float()[None]
            whole, summary = head.look((m, labels), torch.ones(1, 12), own, slice(task, task + 1))
            logits = []
            for draw in range(3):
                z = whole.mean + whole.std * eps[0, draw, task]
                q = head.own_posterior(summary[0], z, slice(task, task + 1))
                v = (q.mean + q.std * eps[1, draw, task]).expand(len(h), -1)
                logits.append(head.answer(head.decoder(torch.cat([h, relation, v], 1))))
            answers.append(torch.stack(logits))
    entropy = torch.stack([torch.distributions.Categorical(logits=logits).entropy().mean(0) for logits in answers])
    best = entropy.argmin(0)
    expected = torch.stack([answers[best[row]][:, row].mean(0) for row in range(len(h))])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-4)


def test_before_any_task_it_knows_nothing() -> None:
    learner = Learner(config(net=NetConfig(name="small-conv", width=3, classes=4, label_input=False)))
    assert not predicted(learner, tasks()[0].images).any()


def test_it_resumes_in_mid_task_bit_for_bit(tmp_path) -> None:
    whole, part = Learner(config(), seed=1), Learner(config(), seed=1)
    for task in tasks():
        whole.learn(task)
    part.learn(tasks()[0])
    for number, task in enumerate(tasks()[1:]):
        for step, _ in enumerate(part.learning(task)):
            if step == 3 + number:
                part.save(tmp_path / f"part {number}")
                break
        part = Learner.load(tmp_path / f"part {number}").learn(task)
    theirs = whole.model.tensors()
    assert "side/old_own_mean" in theirs
    for name, mine in part.model.tensors().items():
        assert torch.equal(mine, theirs[name]), name
    assert part.history == whole.history
    images = tasks()[1].images
    part.save(tmp_path / "between tasks")
    for one in (part, Learner.load(tmp_path / "between tasks")):
        np.testing.assert_array_equal(one.answers(images).first, whole.answers(images).first)
