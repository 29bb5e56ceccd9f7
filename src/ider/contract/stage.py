"""The stages on which a method is looked at: a small net, its teacher, and a batch as the engine would make it.

Each stage is one phase of training. Everything is drawn from fixed seeds: the same stage twice is equal.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ider.memory.plan import noise_shapes
from ider.nets import NETS, Shape, TwoInputNet, View
from ider.protocols import Method
from ider.types import CURRENT, Batch, Classes, LabelledViews, Needs, Outcome, Parts, Terms

CLASSES, SHAPE = 5, (1, 6, 6)


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
LATER = PHASES["later task"]


@dataclass(frozen=True)
class Stage:
    """A net, its teacher and a batch that holds exactly what the method asked for."""

    net: TwoInputNet
    teacher: TwoInputNet | None
    batch: Batch
    needs: Needs
    averages: dict[str, TwoInputNet]

    def outcome(self, method: Method) -> Outcome:
        """What the method makes of it."""
        teacher = None if self.teacher is None else View(self.teacher, self.needs.teacher)
        return method.step(View(self.net, averages=self.averages), teacher, self.batch)

    def terms(self, method: Method) -> Terms:
        """The losses alone."""
        return dict(self.outcome(method).terms)

    def on_meta(self) -> "Stage":
        """The same without any numbers: only shapes and types, on which nothing can wait for a value."""
        made: Stage = _on_meta(self)
        return made


def classes_of(count: int, past: Sequence[int], current: Sequence[int], finished: int, block: int = 0) -> Classes:
    """Masks over `count` classes."""
    past_mask, current_mask = (torch.zeros(count, dtype=torch.bool) for _ in range(2))
    past_mask[list(past)] = True
    current_mask[list(current)] = True
    task_of = torch.full((count,), -1)
    task_of[list(past)], task_of[list(current)] = max(finished - 1, 0), finished
    return Classes(past_mask, current_mask, torch.tensor(float(finished)), block or max(len(current), 1), task_of)


def batch_of(images: Tensor, labels: Tensor, sizes: Mapping[str, int], mixed: bool = False, **others: Any) -> Batch:
    """A batch; classes are all current, slots are numbered from 0 in each draw, and nothing is stored, by default.

    `stored` has a tensor a field, for the rows of all draws.
    """
    drawn = {name: size for name, size in sizes.items() if name != CURRENT}
    slots = torch.cat([torch.arange(size) for size in (0, *drawn.values())])
    count = int(labels.max()) + 1 if len(labels) else 1
    made: dict[str, Any] = {"classes": classes_of(count, (), range(count), 0), "slots": Parts(slots, drawn)} | others
    made["stored"] = {name: Parts(rows, drawn) for name, rows in made.get("stored", {}).items()}
    return Batch(Parts(images, sizes, mixed), Parts(labels, sizes, mixed), **made)


def new_net(seed: int, needs: Needs | None = None) -> TwoInputNet:
    """A small net of the kind that the method asks for."""
    needs = needs or Needs()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETS["small-conv"](Shape(SHAPE, CLASSES, 4, 1, True, needs.head, needs.sparsity))


def stage(method: Method, case: Case) -> Stage:
    """The stage of a phase for a method."""
    needs, net = method.needs(), new_net(0, method.needs())
    sizes = _sizes(needs, case)
    count, generator = sum(sizes.values()), torch.Generator().manual_seed(2)
    images, labels = torch.randn(count, *SHAPE, generator=generator), _labels(needs, case, count, generator)
    past, current = ((0, 1), (2, 3)) if case.later else ((), (0, 1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        state = _awake(method.state(dict(net.named_parameters()), CLASSES, net.features_out))
        side = method.side(CLASSES, net.features_out, 1 + case.later) if needs.side is not None else None
    classes = classes_of(CLASSES, past, current, int(case.later), block=2)
    given = _chances(method, sizes, 1 + case.later, generator) | {"classes": classes, "state": state, "side": side}
    batch = batch_of(images, labels, sizes, needs.mixed, views=_views(needs, generator), **given)
    teaching = case.later and needs.teacher is not None
    teacher = new_net(1, needs).frozen(needs.teacher.statistics) if teaching and needs.teacher else None
    averages = {item.name: new_net(4 + place, needs).averaged() for place, item in enumerate(needs.averages)}
    return Stage(net, teacher, batch, needs, averages)


def total(terms: Terms) -> Tensor:
    """What the engine differentiates."""
    return torch.stack(list(terms.values())).sum()


def _sizes(needs: Needs, case: Case) -> dict[str, int]:
    sizes = {CURRENT: case.current}
    if case.drawn and (case.later or needs.memory == "steps"):
        sizes |= {draw.name: case.drawn for draw in needs.draws if case.later or not draw.later}
    return sizes


def _labels(needs: Needs, case: Case, count: int, generator: torch.Generator) -> Tensor:
    """Of the current rows the classes of the task; of drawn ones all that a memory of this kind may hold."""
    current = torch.tensor((2, 3) if case.later else (0, 1))
    labels = current[torch.randint(2, (count,), generator=generator)]
    if case.later:
        known = 4 if needs.memory == "steps" else 2
        labels[case.current :] = torch.randint(known, (count - case.current,), generator=generator)
    return labels


def _chances(method: Method, sizes: Mapping[str, int], tasks: int, generator: torch.Generator) -> dict[str, Any]:
    """The random numbers and the stored values that it asks for."""
    needs, drawn = method.needs(), sum(sizes.values()) - sizes[CURRENT]
    stored = {
        item.name: torch.randn((drawn, CLASSES), generator=generator)
        if item.per_class
        else torch.rand(drawn, generator=generator)
        for item in needs.stores
    }
    noise = noise_shapes(method.noise(CLASSES, new_net(0, needs).features_out), sizes, tasks)
    return {
        "coins": {name: torch.rand((), generator=generator) for name in needs.coins if name in sizes},
        "dice": {name: torch.rand(sizes[name], generator=generator) for name in needs.dice if name in sizes},
        "stored": stored if drawn else {},
        "noise": {name: torch.rand(shape, generator=generator) for name, shape in noise.items()},
    }


def _awake(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with every switch on, so that terms that wait for something count."""
    return {name: torch.ones_like(values) if values.ndim == 0 else values for name, values in state.items()}


def _views(needs: Needs, generator: torch.Generator) -> LabelledViews | None:
    if needs.views is None:
        return None
    sizes = {"views": 6 * needs.views.times}
    images, labels = torch.randn(sizes["views"], *SHAPE, generator=generator), torch.arange(6) % 4
    return LabelledViews(Parts(images, sizes), Parts(labels.repeat_interleave(needs.views.times), sizes))


def _on_meta(thing: Any) -> Any:
    if isinstance(thing, nn.Module):
        return copy.deepcopy(thing).to("meta")
    if isinstance(thing, Tensor):
        return thing.to("meta")
    if isinstance(thing, Mapping):
        return {name: _on_meta(item) for name, item in thing.items()}
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return replace(thing, **{item.name: _on_meta(getattr(thing, item.name)) for item in dataclasses.fields(thing)})
    return thing
