"""`+id` on the methods with a second memory: it is the method underneath where it should be (spec 3, 6, 13.7-13.9)."""

import dataclasses

import numpy as np
import pytest
import torch
from support import answer_of, batch_of, classes_of, terms_of

from ider import Learner, Task, UserError
from ider.config import EngineConfig, ImageConfig, LearnerConfig, MemoryConfig, NetConfig, TrainConfig
from ider.methods import CLSER, METHODS, SARL, Idempotent, SCoMMER
from ider.methods.base import Supervised
from ider.nets import NETS, Shape, View
from ider.nets.winners import local_winners
from ider.protocols import Method
from ider.types import CURRENT, Answer, Batch, Draw, Parts, Sparsity, Teacher

RNG = np.random.default_rng(6)


def tasks(count: int = 2) -> list[Task]:
    rng = np.random.default_rng(0)
    shape = (21, 1, 6, 6)
    return [Task(rng.integers(0, 256, shape).astype(np.uint8), 2 * n + np.arange(21) % 2) for n in range(count)]


def learner(method: Method, epochs: int = 2) -> Learner:
    """On the two-input net, whether or not the method feeds answers back."""
    config = LearnerConfig(
        method=method,
        net=NetConfig(name="small-conv", width=4, classes=6, label_input=True),
        memory=MemoryConfig(size=12),
        train=TrainConfig(epochs=epochs, batch=5, replay_batch=4, lr=0.05),
        images=ImageConfig(pad=1, flip=True),
        engine=EngineConfig(device="cpu", precision="fp32", capture="off", threads=1),
    )
    return Learner(config, seed=3)


def bare(base: Supervised) -> Idempotent:
    """No fixed point, and first answers alone."""
    statistics = "batch" if base.needs().teacher is None else base.needs().teacher.statistics
    return Idempotent(
        base=base,
        answer_weight=1.0,
        second_answers=False,
        current_weight=0.0,
        memory_weight=0.0,
        teacher_statistics=statistics,
    )


BASES = {
    "cls-er, joint call": CLSER(stable_rate=0.5, plastic_rate=0.9),
    "cls-er, apart": CLSER(mixed=False, replay_weight=0.5, stable_rate=0.5),
    "cls-er, the net's statistics": CLSER(own_statistics=False),
    "sarl": SARL(warm_up=0),
    "sarl, online": SARL(warm_up_steps=3),
    "scommer": SCoMMER(warm_up=0, shares=(0.5, 0.5)),
}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_without_its_terms_it_is_the_method_underneath_step_for_step(base: Supervised) -> None:
    with_id, without = learner(bare(base)), learner(base)
    for task in tasks():
        for _ in zip(with_id.learning(task), without.learning(task), strict=True):
            theirs = without.model.tensors()
            for name, mine in with_id.model.tensors().items():
                assert torch.equal(mine, theirs[name]), name
    losses = [[entry["loss"] for entry in one.history] for one in (with_id, without)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)  # the order of the terms differs
    images = tasks()[0].images
    np.testing.assert_array_equal(with_id.answers(images).first, without.answers(images).first)


def test_the_defaults_are_those_of_the_specification() -> None:
    """The teacher is the net at the end of the task before; ID is not gated; CLS-ER keeps its parts apart."""
    cls_er, sarl, scommer = (METHODS[f"{name}+id"] for name in ("cls-er", "sarl", "scommer"))
    assert cls_er == Idempotent(base=CLSER(mixed=False), current_weight=0.4, memory_weight=0.5, answer_weight=0.5)
    assert cls_er.needs().draws == (Draw("replay"), Draw("distill", later=True))
    assert (cls_er.needs().teacher, cls_er.needs().predicts) == (Teacher("batch", of=""), "stable")
    assert sarl == Idempotent(base=SARL(), teacher_statistics="running")
    assert sarl.needs().teacher == SARL().needs().teacher == Teacher("running")
    assert scommer == Idempotent(base=SCoMMER())
    assert (scommer.needs().sparsity, scommer.needs().predicts) == (SCoMMER().needs().sparsity, "long-term")
    assert all(method.prior_probability == 1 and method.teacher_gradient for method in (cls_er, sarl, scommer))


class Recorder:
    """A net that is linear in images and second input, and notes under its name who asked it what."""

    def __init__(self, calls: list[tuple[str, tuple[str, ...], tuple[int, ...], bool]], name: str = "net") -> None:
        self.calls, self.name = calls, name
        generator = torch.Generator().manual_seed(len(name))
        self.a, self.b = (torch.randn(4, 4, generator=generator, dtype=torch.float64) for _ in range(2))

    def encode(self, images: Parts) -> Parts:
        return images

    def decode(self, z: Parts, y: Parts | None = None, keep: torch.Tensor | None = None) -> Answer:
        self.calls.append((self.name, tuple(z.sizes), z.groups, y is not None))
        second = self.b.mean(0) if y is None else y.rows @ self.b
        return answer_of(z, z.rows @ self.a + second)

    def average(self, name: str) -> "Recorder":
        return Recorder(self.calls, name)

    def untracked(self) -> "Recorder":
        other = Recorder(self.calls, self.name)
        other.name += ", untracked"
        return other


def a_batch(method: Method, coin: float | None = None) -> Batch:
    sizes = {CURRENT: 5, "replay": 4, "distill": 3}
    coins = {} if coin is None else {CURRENT: torch.tensor(coin), "replay": torch.tensor(coin)}
    x, y = torch.tensor(RNG.normal(size=(12, 4))), torch.tensor(RNG.integers(0, 4, 12))
    return batch_of(x, y, sizes, method.needs().mixed, coins=coins)


@pytest.mark.parametrize("chance", [1.0, 0.0])
def test_means_are_asked_from_the_prior_about_the_replayed_images_alone(chance: float) -> None:
    method, calls = Idempotent(base=CLSER(mixed=False), prior_probability=chance), []
    batch = a_batch(method, None if chance == 1 else 0.5)
    terms = terms_of(method, Recorder(calls), Recorder(calls, "teacher"), batch)
    assert [call for call in calls if call[0] in ("stable", "plastic")] == [
        ("stable", ("replay",), (4,), False),
        ("plastic", ("replay",), (4,), False),
    ]
    plain = terms_of(dataclasses.replace(method, prior_probability=1.0), Recorder([]), Recorder([], "teacher"), batch)
    assert terms["consistency"].item() == pytest.approx(plain["consistency"].item())  # y1, whatever the coin


def test_a_joint_call_takes_the_supervised_parts_together_and_the_fixed_point_on_its_own() -> None:
    method, calls = Idempotent(base=CLSER(mixed=True)), []
    terms = terms_of(method, Recorder(calls), Recorder(calls, "teacher"), a_batch(method))
    assert [call[1:] for call in calls if call[0] == "net"] == [
        (("replay",), (4,), False),
        ((CURRENT, "replay", "distill"), (9, 3), False),
        ((CURRENT, "replay"), (9,), True),
    ]
    assert [call[1:] for call in calls if call[0] == "teacher"] == [((CURRENT, "distill"), (5, 3), True)]
    assert set(terms) == {"first/all", "second/all", "consistency", "fixed_point/current", "fixed_point/distill"}


def test_what_is_stored_is_the_first_answer_from_the_prior_whatever_the_coin() -> None:
    method = Idempotent(base=SARL(), prior_probability=0.0, teacher_statistics="running")
    batch = a_batch(method, 0.5)
    batch = dataclasses.replace(
        batch, state=dict(SARL().state({}, 4, 4)), stored={"logits": batch.images.pick("replay")}
    )
    net = Recorder([])
    stored = method.step(net, None, batch).kept["logits"]
    torch.testing.assert_close(stored, net.decode(batch.images.pick(CURRENT)).logits.rows)


def test_the_fixed_point_does_not_wait_for_the_warm_up() -> None:
    taught = learner(METHODS["sarl+id"], epochs=1)
    for task in tasks():
        taught.learn(task)
    first, later = taught.history
    assert not [name for name in first if name.startswith("fixed_point")]
    assert later["distill"] == later["groups"] == 0
    assert later["fixed_point/current"] > 0 < later["fixed_point/distill"]


@pytest.mark.parametrize("of", ["", "stable", "plastic"])
def test_the_teacher_is_the_net_or_a_mean_as_the_task_left_it(of: str) -> None:
    method = Idempotent(base=CLSER(mixed=False, stable_rate=0.3, plastic_rate=0.6), teacher_of=of)
    taught = learner(method).learn(tasks()[0])
    source = taught.model.averages.get(of, taught.net)
    assert taught.teacher is not None
    for mine, theirs in zip(taught.teacher.parameters(), source.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert not mine.requires_grad
    others = [net for net in (taught.net, *taught.model.averages.values()) if net is not source]
    weight = taught.teacher.head.weight
    assert not any(torch.equal(weight, other.head.weight) for other in others)


def test_a_mean_may_teach_as_it_is_from_the_second_task_on_and_sees_no_statistics_of_that() -> None:
    base = CLSER(mixed=False, stable_rate=0.5)
    method = Idempotent(base=base, teacher_of="stable", teacher_lives=True, current_weight=0.5, memory_weight=0.3)
    assert method.needs().teacher is None
    taught = learner(method)
    for task in tasks():
        taught.learn(task)
    assert taught.teacher is None
    first, later = taught.history[0], taught.history[-1]
    assert (first["fixed_point/current"], "fixed_point/distill" in first) == (0, False)
    assert min(later["fixed_point/current"], later["fixed_point/distill"]) > 0
    calls: list[tuple[str, tuple[str, ...], tuple[int, ...], bool]] = []
    batch, net = a_batch(method), Recorder(calls)
    batch = dataclasses.replace(batch, classes=classes_of(4, (0, 1), (2, 3), 1))
    terms, y = terms_of(method, net, None, batch), net.decode(batch.images).logits.rows
    x, p = batch.images.rows, y.softmax(1)
    stable = net.average("stable")
    gap = (y - (x @ stable.a + p @ stable.b)).square()
    assert terms["fixed_point/current"].item() == pytest.approx(0.5 * gap[:5].mean().item(), rel=1e-6)
    assert terms["fixed_point/distill"].item() == pytest.approx(0.3 * gap[9:].mean().item(), rel=1e-6)
    assert ("stable, untracked", (CURRENT, "distill"), (5, 3), True) in calls
    with pytest.raises(UserError, match="teacher_lives is true, but teacher_of does not say"):
        Idempotent(base=base, teacher_lives=True)


@pytest.mark.parametrize(("base", "of"), [(CLSER(mixed=False), "stabel"), (SARL(), "stable")])
def test_a_mean_that_is_not_there_is_named(base: Supervised, of: str) -> None:
    with pytest.raises(UserError, match=f"teacher_of is '{of}'"):
        Idempotent(base=base, teacher_of=of, teacher_statistics="running")


def test_the_label_feature_enters_a_sparse_net_after_the_winners() -> None:
    torch.manual_seed(0)
    net = NETS["resnet18"](Shape((3, 8, 8), 5, 8, 4, True, "linear", Sparsity("local", (0.5,)))).eval()
    x = torch.randn(4, 3, 8, 8)
    z = net.encode(x)
    assert torch.equal(z, local_winners(z, 8))  # half of the 16 channels of stage 2
    y = torch.rand(4, 5).softmax(1)
    feature = torch.nn.functional.leaky_relu(net.label(y), 0.01)[:, :, None, None]
    answer = View(net).decode(Parts(z, {CURRENT: 4}), Parts(y, {CURRENT: 4}))
    torch.testing.assert_close(answer.features.rows, net.upper(z + feature))
    assert (z + feature < 0).any()  # the sum is dense and signed: stage 3 no longer sees a sparse map
