"""The net and what belongs to it: teacher, memory, the method's own tensors and module; all on the device."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ider import randomness
from ider.calibration import Temperatures
from ider.config import LearnerConfig
from ider.data.augment import normalise
from ider.engine import checkpoint
from ider.engine.answers import Answers
from ider.engine.device import casting, compute_dtype
from ider.errors import RunError, UserError
from ider.memory.store import MemoryStore
from ider.nets import NETS, Shape, TwoInputNet
from ider.protocols import Predict
from ider.streams.stream import Images

EVALUATION_ROWS, TEMPERATURE = 512, "temperature"


class Model:
    """All that is learnt. Weights are drawn from the run's seed; `teacher` and `side` come when the method asks."""

    def __init__(self, config: LearnerConfig, seed: int, image_shape: Sequence[int], classes: int) -> None:
        self.config, self.seed, self.image_shape = config, seed, tuple(image_shape)
        self.method, self.device = config.method, torch.device(config.engine.device)
        if len(config.images.mean) != image_shape[0]:
            raise UserError(
                f"images.mean has {len(config.images.mean)} values, but the images have {image_shape[0]} channels"
            )
        self.net = self.fresh_net("weights", classes)
        shapes = {item.name: (classes,) if item.per_class else () for item in self.method.needs().stores}
        self.memory = MemoryStore(config.memory.size, image_shape, self.device, shapes)
        self.state = self._fresh_state()
        self.averages = {item.name: self.net.averaged() for item in self.method.needs().averages}
        self.steps = torch.zeros((), device=self.device)
        """How many steps have been done in all; averages follow slowly from the start."""
        self.temperatures: dict[str, float] = {}
        """By answer, if it is calibrated."""
        self.teacher: TwoInputNet | None = None
        self.side: nn.Module | None = None
        self.side_tasks = 0
        """For how many tasks that was made."""

    def fresh_net(self, purpose: str, classes: int = 0) -> TwoInputNet:
        """A net with weights of its own, drawn from the run's seed."""
        net = self.config.net
        needs, classes = self.method.needs(), classes or self.net.classes
        shape = Shape(self.image_shape, classes, net.width, net.split, net.label_input, needs.head, needs.sparsity)
        with randomness.torch_seeded(self.seed, purpose):
            built = NETS[net.name](shape)
        return built.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def grow(self, classes: int) -> None:
        """Make room for classes in the nets, in what the memory stores and in the method's tensors."""
        for net in (self.net, self.teacher, *self.averages.values()):
            if net is not None:
                net.grow(classes, randomness.torch_generator(self.seed, f"classes {classes}"))
        for item in self.method.needs().stores:
            if item.per_class:
                self.memory.widen(item.name, classes)
        old, self.state = self.state, self._fresh_state()
        copy_corner(old, self.state)

    def renew_teacher(self) -> None:
        """The teacher becomes what the net is now, in place if it is there: what is captured reads these tensors."""
        need = self.method.needs().teacher
        assert need is not None
        source = self.averages.get(need.of, self.net)
        if self.teacher is None or self.teacher.classes != self.net.classes:
            self.teacher = source.frozen(need.statistics, compute_dtype(self.config.engine))
        else:
            copy_state(source, self.teacher)

    def renew_side(self, task: int) -> None:
        """Draw the module beside the net afresh for a task; a lasting one keeps its corner.

        In place if it can stay: one that does not last and has kept its shape.
        """
        need, self.side_tasks = self.method.needs().side, task + 1
        with randomness.torch_seeded(self.seed, f"side {task}"):
            made = self.method.side(self.net.classes, self.net.features_out, self.side_tasks)
        assert made is not None
        assert need is not None
        if self.side is not None and not need.lasting and _shapes(made) == _shapes(self.side):
            copy_state(made, self.side)
            return
        old, self.side = self.side, made.to(self.device)
        if old is not None and need.lasting:
            copy_corner(old.state_dict(), self.side.state_dict())

    def answers(self, images: Images, predict: Predict) -> Answers:
        """The logits of both answers, as the method predicts by them."""
        with torch.inference_mode(), self.predicting() as net:
            chunks = [
                self.answer(net, self.shown(images[start : start + EVALUATION_ROWS]), predict)[:2]
                for start in range(0, max(len(images), 1), EVALUATION_ROWS)
            ]
        first, second = (torch.cat(part).float().cpu().numpy() for part in zip(*chunks, strict=True))
        if np.isnan(first).any() or np.isnan(second).any():
            raise RunError("the net answers with nan, so training has come apart; a smaller train.lr usually helps")
        return Answers(first, second)

    def tensors(self) -> checkpoint.Tensors:
        """Everything, by name."""
        found = checkpoint.prefixed("net", self.net.state_dict()) | checkpoint.prefixed("memory", self.memory.tensors())
        found |= checkpoint.prefixed("state", self.state)
        found |= {"steps": self.steps, "side_tasks": torch.tensor(self.side_tasks)}
        found |= temperature_tensors(self.temperatures)
        averages = [(f"average/{name}", net) for name, net in self.averages.items()]
        for name, module in (("teacher", self.teacher), ("side", self.side), *averages):
            if module is not None:
                found |= checkpoint.prefixed(name, module.state_dict())
        return found

    def restore(self, tensors: checkpoint.Tensors) -> None:
        """Take over what `tensors()` gave."""
        self.net.load_state_dict(checkpoint.under("net", tensors))
        self.memory.restore(checkpoint.under("memory", tensors))
        for name, values in checkpoint.under("state", tensors).items():
            self.state[name].copy_(values)
        self.steps.copy_(tensors["steps"])
        self.temperatures = {name: value.item() for name, value in checkpoint.under(TEMPERATURE, tensors).items()}
        for name, net in self.averages.items():
            net.load_state_dict(checkpoint.under(f"average/{name}", tensors))
        if teacher := checkpoint.under("teacher", tensors):
            self.renew_teacher()
            assert self.teacher is not None
            self.teacher.load_state_dict(teacher)
        if side := checkpoint.under("side", tensors):
            self.renew_side(int(tensors["side_tasks"]) - 1)
            assert self.side is not None
            self.side.load_state_dict(side)

    def mean_std(self) -> tuple[Tensor, Tensor]:
        """By which images are normalised, on the device."""
        images = self.config.images
        return torch.tensor(images.mean, device=self.device), torch.tensor(images.std, device=self.device)

    def _fresh_state(self) -> dict[str, Tensor]:
        made = self.method.state(dict(self.net.named_parameters()), self.net.classes, self.net.features_out)
        return {name: values.detach().clone().to(self.device) for name, values in made.items()}

    @property
    def answering(self) -> TwoInputNet:
        """The net that the learner predicts with."""
        return self.averages.get(self.method.needs().predicts, self.net)

    @contextmanager
    def predicting(self) -> Iterator[TwoInputNet]:
        """Within, the net that the learner predicts with, in eval mode and in the precision of the run."""
        net = self.answering
        was_training = net.training
        net.eval()
        try:
            with casting(self.config.engine):
                yield net
        finally:
            net.train(was_training)

    def shown(self, images: Images) -> Tensor:
        """Images as the net sees them."""
        return normalise(torch.from_numpy(np.ascontiguousarray(images)).to(self.device), *self.mean_std())

    def answer(self, net: TwoInputNet, x: Tensor, predict: Predict) -> tuple[Tensor, Tensor, Tensor]:
        """The logits of both answers, as the method predicts by them, and the features of the first."""
        z = net.encode(x)
        logits, first, features = _predicted(net, z, None, predict)
        second = first if net.label is None else _predicted(net, z, logits.softmax(-1), predict)[1]
        return first, second, features


def temperature_tensors(temperatures: Temperatures) -> checkpoint.Tensors:
    """Temperatures as they are saved."""
    found = {answer: torch.tensor(value, dtype=torch.float64) for answer, value in temperatures.items()}
    return checkpoint.prefixed(TEMPERATURE, found)


def _predicted(net: TwoInputNet, z: Tensor, y: Tensor | None, predict: Predict) -> tuple[Tensor, Tensor, Tensor]:
    """The net's logits, those by which the method predicts, and the features."""
    features = net.features(z, y)
    logits = net.head(features)
    return logits, predict(logits.float(), features.float()), features


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    """Of each weight and buffer."""
    return {name: values.shape for name, values in module.state_dict().items()}


@torch.no_grad()
def copy_state(source: nn.Module, target: nn.Module) -> None:
    """Overwrite all weights and buffers in place."""
    for mine, new in zip(target.state_dict().values(), source.state_dict().values(), strict=True):
        mine.copy_(new)


@torch.no_grad()
def copy_corner(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    """Overwrite the leading corner of each tensor by the smaller one of its name."""
    for name, values in source.items():
        target[name][tuple(slice(size) for size in values.shape)] = values
