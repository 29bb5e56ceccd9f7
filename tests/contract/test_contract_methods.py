"""What every method owes the engine, in every phase of training. A method enters by being in `ider.methods.METHODS`."""

import contextlib
import copy
import dataclasses
import json
import random
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from support import batch_of, classes_of
from torch import Tensor

from ider import Learner, LearnerConfig, RunConfig, Task, UserError
from ider.config import EngineConfig, MemoryConfig, NetConfig, TrainConfig, as_dict, from_dict
from ider.memory.plan import noise_shapes
from ider.methods import ER, METHODS, Finetune, Idempotent
from ider.nets import NETS, Shape, TwoInputNet, View
from ider.protocols import Method
from ider.types import CURRENT, Batch, LabelledViews, Needs, Outcome, Parts, Terms

CLASSES, SHAPE = 5, (1, 6, 6)
VARIANTS: dict[str, Method] = {
    "er, separate": ER(mixed=False, replay_weight=0.5),
    "er+id, coins": Idempotent(prior_probability=0.5),
    "er+id, kl": Idempotent(distance="kl"),
    "er+id, running": Idempotent(teacher_statistics="running"),
    "er+id, stopped": Idempotent(teacher_gradient=False),
    "er+id, current only": Idempotent(memory_weight=0.0),
    "er+id, memory only": Idempotent(current_weight=0.0),
    "er+id, no fixed point": Idempotent(current_weight=0.0, memory_weight=0.0),
    "finetune+id": Idempotent(base=Finetune()),
}
ALL = METHODS | VARIANTS


@dataclass(frozen=True)
class Case:
    """Sizes of the current part and of each draw, and whether there is a task before this one."""

    current: int
    drawn: int
    later: bool


PHASES = {
    "first step": Case(current=5, drawn=0, later=False),
    "first task": Case(current=5, drawn=4, later=False),
    "later task": Case(current=5, drawn=4, later=True),
    "last batch": Case(current=2, drawn=4, later=True),
    "batch of one": Case(current=1, drawn=4, later=True),
    "few replayed": Case(current=5, drawn=3, later=True),
    "memory of one": Case(current=5, drawn=1, later=True),
    "no memory": Case(current=5, drawn=0, later=True),
}
each_method = pytest.mark.parametrize("method", ALL.values(), ids=ALL)
each_phase = pytest.mark.parametrize("case", PHASES.values(), ids=PHASES)


@dataclass(frozen=True)
class Stage:
    """A net, its teacher and a batch that holds exactly what the method asked for."""

    net: TwoInputNet
    teacher: TwoInputNet | None
    batch: Batch
    needs: Needs
    averages: dict[str, TwoInputNet]

    def outcome(self, method: Method) -> Outcome:
        teacher = None if self.teacher is None else View(self.teacher, self.needs.teacher)
        return method.step(View(self.net, averages=self.averages), teacher, self.batch)

    def terms(self, method: Method) -> Terms:
        return dict(self.outcome(method).terms)


def new_net(seed: int, needs: Needs | None = None) -> TwoInputNet:
    torch.manual_seed(seed)
    needs = needs or Needs()
    return NETS["small-conv"](Shape(SHAPE, CLASSES, 4, 1, True, needs.head, needs.sparsity))


def stage(method: Method, case: Case) -> Stage:
    needs, net = method.needs(), new_net(0, method.needs())
    teaching = case.later and needs.teacher is not None
    sizes = {CURRENT: case.current}
    if case.drawn and (case.later or needs.memory == "steps"):
        sizes |= {draw.name: case.drawn for draw in needs.draws if case.later or not draw.later}
    count, generator = sum(sizes.values()), torch.Generator().manual_seed(2)
    drawn = count - case.current
    past, current = ((0, 1), (2, 3)) if case.later else ((), (0, 1))
    images = torch.randn(count, *SHAPE, generator=generator)
    labels = torch.tensor(current)[torch.randint(len(current), (count,), generator=generator)]
    if case.later:
        known = 4 if needs.memory == "steps" else 2
        labels[case.current :] = torch.randint(known, (drawn,), generator=generator)
    coins = {name: torch.rand((), generator=generator) for name in needs.coins if name in sizes}
    dice = {name: torch.rand(sizes[name], generator=generator) for name in needs.dice if name in sizes}
    shapes = {item.name: (drawn, CLASSES) if item.per_class else (drawn,) for item in needs.stores}
    stored = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()} if drawn else {}
    features = net.features_out
    tasks = 1 + case.later
    shapes = noise_shapes(method.noise(CLASSES, features), sizes, tasks)
    noise = {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
    torch.manual_seed(3)
    batch = batch_of(
        images,
        labels,
        sizes,
        needs.mixed,
        classes=classes_of(CLASSES, past, current, int(case.later), block=2),
        coins=coins,
        dice=dice,
        noise=noise,
        stored=stored,
        state=awake(method.state(dict(net.named_parameters()), CLASSES, features)),
        side=method.side(CLASSES, features, tasks),
        views=views(needs, generator),
    )
    teacher = new_net(1, needs).frozen(needs.teacher.statistics) if teaching and needs.teacher else None
    averages = {item.name: new_net(4 + place, needs).averaged() for place, item in enumerate(needs.averages)}
    return Stage(net, teacher, batch, needs, averages)


def awake(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with every switch on, so that terms that wait for something count."""
    return {name: torch.ones_like(values) if values.ndim == 0 else values for name, values in state.items()}


def views(needs: Needs, generator: torch.Generator) -> LabelledViews | None:
    if needs.views is None:
        return None
    sizes = {"views": 6 * needs.views.times}
    images, labels = torch.randn(sizes["views"], *SHAPE, generator=generator), torch.arange(6) % 4
    return LabelledViews(Parts(images, sizes), Parts(labels.repeat_interleave(needs.views.times), sizes))


def total(terms: Terms) -> Tensor:
    return torch.stack(list(terms.values())).sum()


def tensors(stage: Stage) -> list[Tensor]:
    """Everything a loss may read and must not write (the net's running statistics excepted: they are meant to move)."""
    batch = stage.batch
    held = [batch.images.rows, batch.labels.rows, batch.classes.past, batch.classes.current, *batch.coins.values()]
    held += [*batch.dice.values(), *batch.state.values(), *(parts.rows for parts in batch.stored.values())]
    held += [*stage.net.parameters(), *(batch.side.parameters() if batch.side is not None else ())]
    held += [weight for net in stage.averages.values() for weight in net.parameters()]
    return held + ([] if stage.teacher is None else list(stage.teacher.state_dict().values()))


def flags(stage: Stage) -> list[tuple[bool, bool]]:
    modules = [*stage.net.modules(), *(() if stage.teacher is None else stage.teacher.modules())]
    return [(module.training, getattr(module, "tracking", True)) for module in modules]


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()  # noqa: NPY002


@each_phase
@each_method
def test_terms_are_named_finite_scalars_that_the_net_can_learn_from(method: Method, case: Case) -> None:
    here = stage(method, case)
    terms = here.terms(method)
    assert terms
    for name, term in terms.items():
        assert name
        assert isinstance(name, str)
        assert term.shape == ()
        assert term.dtype == torch.float32
        assert term.isfinite()
        assert term.requires_grad
    total(terms).backward()
    for name, weight in here.net.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
    assert here.teacher is None or all(weight.grad is None for weight in here.teacher.parameters())


@each_phase
@each_method
def test_terms_are_pure(method: Method, case: Case) -> None:
    here = stage(method, case)
    held, before = tensors(here), [tensor.clone() for tensor in tensors(here)]
    switches, sizes, chance = flags(here), dict(here.batch.images.sizes), random_states()
    first, second = here.terms(method), here.terms(method)
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(now, then) for now, then in zip(held, before, strict=True))
    assert flags(here) == switches
    assert here.batch.images.sizes == sizes
    assert random_states() == chance
    assert torch.is_grad_enabled()


@each_phase
@each_method
def test_half_precision_gives_the_same_terms_to_three_percent(method: Method, case: Case) -> None:
    """bf16 keeps 8 bits; several layers and a small mean of squares lose a few of them."""
    full = stage(method, case).terms(method)
    here = stage(method, case)
    with torch.autocast("cpu", torch.bfloat16):
        half = here.terms(method)
    assert list(half) == list(full)
    assert {term.dtype for term in half.values()} == {torch.float32}
    assert total(half).item() == pytest.approx(total(full).item(), rel=0.03)
    total(half).backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in here.net.parameters())


@each_method
def test_needs_are_well_formed_and_do_not_change(method: Method) -> None:
    needs = method.needs()
    assert needs == method.needs()
    names = [draw.name for draw in needs.draws]
    assert len({CURRENT, *names}) == 1 + len(names)
    assert set(needs.coins) <= {CURRENT, *names}
    assert len(set(needs.coins)) == len(needs.coins)
    assert set(needs.dice) <= set(names)
    assert len({item.name for item in needs.stores}) == len(needs.stores)


@each_method
def test_every_part_that_it_asks_for_matters(method: Method) -> None:
    here = stage(method, PHASES["later task"])
    images = here.batch.images.rows.requires_grad_()
    total(here.terms(method)).backward()
    assert images.grad is not None
    for name in here.batch.images.sizes:
        assert here.batch.images.like(images.grad)[name].any(), name


@each_method
def test_the_teacher_and_the_coins_matter_if_it_asks_for_them(method: Method) -> None:
    here = stage(method, PHASES["later task"])
    value = total(here.terms(method))
    if here.needs.teacher is not None:
        other = dataclasses.replace(here, teacher=new_net(5, here.needs).frozen(here.needs.teacher.statistics))
        assert not torch.equal(total(other.terms(method)), value)
    for name in here.needs.coins:
        values = set()
        for coin in (0.0, 1.0):
            coins = dict(here.batch.coins) | {name: torch.tensor(coin)}
            other = dataclasses.replace(here, batch=dataclasses.replace(here.batch, coins=coins))
            values.add(total(other.terms(method)).item())
        assert len(values) == 2, name


@each_method
def test_the_second_input_matters_if_and_only_if_it_asks_for_one(method: Method) -> None:
    """With a net whose label columns differ, a prior looks the same as with their mean in each column."""
    here, even = (stage(method, PHASES["later task"]) for _ in range(2))
    assert even.net.label is not None
    with torch.no_grad():
        even.net.label.weight.copy_(even.net.label.weight.mean(1, keepdim=True).expand_as(even.net.label.weight))
    change = abs(total(here.terms(method)).item() - total(even.terms(method)).item())
    assert (change > 1e-5) == here.needs.second_input


@each_method
def test_it_is_a_frozen_keyword_only_dataclass_with_a_help_for_every_field(method: Method) -> None:
    kind = type(method)
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    for item in dataclasses.fields(method):
        assert item.kw_only, item.name
        assert item.metadata.get("help", "").strip(), item.name
        assert item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING, item.name
    assert hash(method) == hash(copy.deepcopy(method))
    assert kind() == kind()


def altered(kind: Any, value: Any) -> Any:
    """Another value that a field of this kind can take."""
    if typing.get_origin(kind) is typing.Literal:
        return next(choice for choice in typing.get_args(kind) if choice != value)
    return {
        bool: lambda: not value,
        float: lambda: 0.3125 + value / 2,
        int: lambda: value + 1,
        tuple: lambda: value[:-1],
        str: lambda: "" if value else "stable",
    }[type(value)]()


def variations(method: Method) -> Iterator[Method]:
    """The method with one of its settings, or of those underneath, changed; but for those that it refuses."""
    kinds = typing.get_type_hints(type(method))
    for item in dataclasses.fields(method):
        value = getattr(method, item.name)
        others = variations(value) if dataclasses.is_dataclass(value) else [altered(kinds[item.name], value)]
        for other in others:
            with contextlib.suppress(UserError):
                yield dataclasses.replace(method, **{item.name: other})


@each_method
def test_every_setting_survives_the_configuration_file(method: Method) -> None:
    for some in (method, *variations(method)):
        config = RunConfig(method=some, benchmark="digits")
        assert from_dict(json.loads(json.dumps(as_dict(config)))) == config


class Witness:
    """A method that notes what the engine gives to the one underneath: parts, coins, and whether there is a teacher."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.seen: list[tuple[set[str], set[str], bool]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def step(self, net: Any, teacher: Any, batch: Batch) -> Outcome:
        needs = self.method.needs()
        assert batch.images.mixed is batch.labels.mixed is needs.mixed
        assert set(batch.stored) <= {item.name for item in needs.stores}
        assert (batch.side is None) == (needs.side is None)
        assert (batch.views is None) == (needs.views is None)
        drawn = {name for name in batch.images.sizes if name != CURRENT}
        assert set(batch.slots.sizes) == drawn
        assert set(batch.dice) == drawn & set(needs.dice)
        self.seen.append((set(batch.images.sizes), set(batch.coins), teacher is not None))
        return self.method.step(net, teacher, batch)


def config(method: Method) -> LearnerConfig:
    return LearnerConfig(
        method=method,
        net=NetConfig(name="small-conv", width=4, split=1, classes=CLASSES),
        memory=MemoryConfig(size=5),
        train=TrainConfig(epochs=1, batch=4, replay_batch=4, lr=0.01),
        engine=EngineConfig(device="cpu", precision="fp32"),
    )


def two_tasks() -> list[Task]:
    rng = np.random.default_rng(0)
    return [Task(rng.integers(0, 256, (6, *SHAPE)).astype(np.uint8), first + np.arange(6) % 2) for first in (0, 2)]


@each_method
def test_a_learner_takes_it_through_two_tasks(method: Method) -> None:
    tasks = two_tasks()
    learner = Learner(config(method)).learn(tasks[0])
    before = {name: weight.clone() for name, weight in learner.net.named_parameters()}
    learner.learn(tasks[1])
    teacher, asked = learner.teacher, method.needs().teacher
    assert (teacher is not None) == (asked is not None)
    if teacher is not None and asked is not None:
        assert {module.training for module in teacher.modules()} == {asked.statistics == "batch"}
    assert not any(torch.equal(weight, before[name]) for name, weight in learner.net.named_parameters())
    for entry in learner.history:
        terms = [value for name, value in entry.items() if name not in ("task", "epoch", "loss")]
        assert entry["loss"] == pytest.approx(sum(terms))
        assert np.isfinite(entry["loss"])
    expected = set(stage(method, PHASES["later task"]).terms(method))
    assert set(learner.history[-1]) == {"task", "epoch", "loss"} | expected


@each_method
def test_a_learner_gives_it_what_it_asks_for_and_nothing_else(method: Method) -> None:
    witness, needs = Witness(method), method.needs()
    learner = Learner(config(witness))
    for task in two_tasks():
        learner.learn(task)
    always = {CURRENT, *(draw.name for draw in needs.draws if not draw.later)}
    later, teaches = {CURRENT, *(draw.name for draw in needs.draws)}, needs.teacher is not None
    first = [{CURRENT}, always] if needs.memory == "steps" else [{CURRENT}]
    expected = [(parts, parts & set(needs.coins), False) for parts in first]
    expected += [(later, later & set(needs.coins), teaches)]
    assert [seen for number, seen in enumerate(witness.seen) if seen not in witness.seen[:number]] == [
        wanted for number, wanted in enumerate(expected) if wanted not in expected[:number]
    ]
