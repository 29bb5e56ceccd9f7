"""What most methods share: one answer to everything, cross-entropies of an answer, and further terms."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from ider.protocols import Desk, Net, Predict
from ider.types import CURRENT, Answer, Batch, Needs, Outcome, Parts, Terms


class Supervised:
    """A method whose supervised part is a set of cross-entropies of one answer; `+id` asks for them twice."""

    labelled: tuple[str, ...] = (CURRENT,)
    """The parts whose logits `supervised` looks at; none: the method cannot be combined with `+id`."""
    apart = "it has no cross-entropies of that kind"
    """Why not, in that case."""

    def needs(self) -> Needs:
        """What the engine must provide; nothing but the current batch by default."""
        return Needs()

    def aside(self, net: Net, batch: Batch) -> Answer | None:
        """What `further` is given in place of the first answer to all parts, asked before it; that one by default."""
        return None

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """The cross-entropies of one answer to the `labelled` parts."""
        raise NotImplementedError

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """What the method adds, given the first answer to all parts; `nets` are the net and the teacher."""
        return {}

    def kept(self, first: Answer) -> Mapping[str, Tensor]:
        """What is stored with the current rows, by field."""
        return {}

    def revised(self, first: Answer, batch: Batch) -> Mapping[str, Parts]:
        """What replaces the stored values of drawn rows, by field."""
        return {}

    def counted(self, first: Answer, batch: Batch) -> Mapping[str, Tensor]:
        """What becomes of the method's own tensors that a step changes."""
        return {}

    def keep(self, batch: Batch) -> Tensor | None:
        """What multiplies the last map of a sparse net (rows of all parts x channels); nothing by default."""
        return None

    def step(self, net: Net, teacher: Net | None, batch: Batch) -> Outcome:
        """The cross-entropies of the first answer, and what the method adds to them."""
        aside = self.aside(net, batch)
        first = net.decode(net.encode(batch.images), keep=self.keep(batch))
        terms = self.supervised(first.logits, batch) | self.further(aside or first, (net, teacher), batch)
        return Outcome(terms, self.kept(first), self.revised(first, batch), self.counted(first, batch))

    def state(self, weights: Mapping[str, Tensor], classes: int, features: int) -> Mapping[str, Tensor]:
        """The method's own tensors before the first task; none by default."""
        return {}

    def side(self, classes: int, features: int, tasks: int) -> nn.Module | None:
        """The module beside the net; none by default."""
        return None

    def noise(self, classes: int, features: int) -> Mapping[str, tuple[int | str, ...]]:
        """The shapes of a step's random numbers; none by default."""
        return {}

    def before_task(self, desk: Desk) -> None:
        """What is done before a task's first step; nothing by default."""

    def after_epoch(self, desk: Desk, epoch: int) -> None:
        """What is done after each epoch; nothing by default."""

    def after_task(self, desk: Desk) -> None:
        """What is done after a task's last step; nothing by default."""

    def predict(self, logits: Tensor, features: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The logits by which the learner predicts; the net's own by default."""
        return logits

    def predictor(self, desk: Desk) -> Predict:
        """The same after a look at the memory, at which nothing is looked for by default."""
        return partial(self.predict, state=desk.state)
