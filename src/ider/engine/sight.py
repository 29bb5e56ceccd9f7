"""A trained learner as a calibrator sees it: its memory, what was held out, and the net that it predicts with."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ider import randomness
from ider.calibration import CALIBRATORS, Calibration, Calibrator, Labelled
from ider.engine.answers import ANSWERS, Answers, Probabilities
from ider.engine.classbook import ClassBook
from ider.engine.model import EVALUATION_ROWS, Model
from ider.errors import UserError, unknown
from ider.protocols import Predict
from ider.settings import name_of
from ider.streams.stream import Task

Labels = NDArray[np.int64]


def named(name: str) -> Calibrator:
    """The calibrator of a name, with its default settings."""
    if name not in CALIBRATORS:
        raise unknown("calibrator", name, CALIBRATORS)
    return CALIBRATORS[name]


class Sight:
    """See `ider.calibration.Sight`. Nothing here moves a weight, a running statistic or a generator of the learner."""

    def __init__(
        self, model: Model, predict: Predict, book: ClassBook, filled: int, held_out: Sequence[Task], seed: int
    ) -> None:
        self.model, self.predict, self.filled, self.tasks, self.seed = model, predict, filled, held_out, seed
        self.seen = list(book.seen)
        self._current = book.current

    @cached_property
    def memory(self) -> Labelled:
        """The memory's samples."""
        memory = self.model.memory
        images, labels = (part[: self.filled].cpu().numpy() for part in (memory.images, memory.labels))
        return Labelled(images, self._positions(labels))

    @cached_property
    def held_out(self) -> Sequence[Labelled]:
        """What was kept from training, task by task."""
        return [Labelled(task.images, self._positions(task.labels)) for task in self.tasks]

    @property
    def newest(self) -> Labels:
        """The classes of the newest task."""
        return self._positions(np.array(self._current, np.int64))

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of one purpose, at its beginning."""
        return randomness.generator(self.seed, purpose)

    def scores(self, samples: Labelled, shift: Probabilities | None = None) -> Mapping[str, Probabilities]:
        """By answer the log-probabilities of the classes seen."""
        with torch.inference_mode(), self.model.predicting() as net:
            found = [
                self.model.answer(net, self._shown(samples, rows, shift), self.predict)[:2]
                for rows in _chunks(len(samples))
            ]
        first, second = (torch.cat(part).float().cpu().numpy() for part in zip(*found, strict=True))
        answers = Answers(first, second)
        return {answer: answers.log_probabilities(answer, self.seen)[:, self.seen] for answer in ANSWERS}

    def features(self, samples: Labelled) -> Probabilities:
        """The features of the first answer."""
        with torch.inference_mode(), self.model.predicting() as net:
            found = [
                self.model.answer(net, self._shown(samples, rows), self.predict)[2] for rows in _chunks(len(samples))
            ]
        features: Probabilities = torch.cat(found).double().cpu().numpy()
        return features

    def slopes(self, samples: Labelled, targets: Labels) -> Probabilities:
        """The gradient by each image: a sum of losses, so that no image knows of the others."""
        found = []
        with self.model.predicting() as net:
            for rows in _chunks(len(samples)):
                x = self._shown(samples, rows).requires_grad_()
                logits = self.model.answer(net, x, self.predict)[0][:, self.seen]
                wanted = torch.from_numpy(targets[rows]).to(x.device)
                (slope,) = torch.autograd.grad(F.cross_entropy(logits.float(), wanted, reduction="sum"), x)
                found.append(slope)
        slopes: Probabilities = torch.cat(found).double().cpu().numpy()
        return slopes

    def _shown(self, samples: Labelled, rows: slice, shift: Probabilities | None = None) -> Tensor:
        x = self.model.shown(samples.images[rows])
        return x if shift is None else x + torch.from_numpy(shift[rows]).to(x)

    def _positions(self, labels: Labels) -> Labels:
        """Labels as positions among the classes seen."""
        strange = sorted(set(labels.tolist()) - set(self.seen))
        if strange:
            raise UserError(f"held-out images show classes {strange}, which this learner has not learnt")
        return np.searchsorted(self.seen, labels)


def calibrate(calibrator: Calibrator | str, sight: Sight, tasks: int) -> Calibration:
    """Give the learner in sight, which has learnt so many tasks, the temperatures that the calibrator chooses."""
    chosen = named(calibrator) if isinstance(calibrator, str) else calibrator
    if not tasks:
        raise UserError("this learner has learnt no task yet: there is nothing to calibrate")
    if chosen.hold_out and len(sight.tasks) != tasks:
        name = name_of(chosen, CALIBRATORS) or type(chosen).__name__
        raise UserError(
            f"{name} calibrates on images that were kept from training: give as held_out one Task for each of the "
            f"{tasks} tasks learnt, not {len(sight.tasks)}"
        )
    found = chosen.calibrate(sight)
    sight.model.temperatures = dict(found.temperatures)
    return found


def _chunks(count: int) -> list[slice]:
    """At least one, so that no image at all gives an answer of the right width."""
    return [slice(start, start + EVALUATION_ROWS) for start in range(0, max(count, 1), EVALUATION_ROWS)]
