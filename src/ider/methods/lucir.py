"""LUCIR: a cosine head, features that keep their direction, and a margin between old classes and new ones."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ider.losses import cross_entropy
from ider.methods.base import Supervised
from ider.options import option, validate
from ider.protocols import Desk, Net
from ider.types import CURRENT, Answer, Batch, Classes, Needs, Parts, Teacher, Terms

SCALE = "head.scale"


@dataclass(frozen=True, kw_only=True)
class LUCIR(Supervised):
    """Learns from the task and the memory in one stream; of the head only the current classes and the scale learn."""

    feature_weight: float = option(
        5.0, "weight of the features' direction, times the root of the tasks so far", least=0
    )
    margin_weight: float = option(1.0, "weight of the margin between old and new classes", least=0)
    margin: float = option(0.5, "that margin, as a difference of cosines", least=0)
    rivals: int = option(2, "new classes that each old sample must keep the margin to", least=1)
    fit_epochs: int = option(20, "passes over the memory to tune the head after each task", least=0)
    fit_lr: float = option(0.01, "learning rate of that (momentum 0.9)", least=0)
    fit_milestone: int = option(10, "steps of that after which the rate falls to a tenth (as released)", least=1)

    def __post_init__(self) -> None:
        validate(self)

    def needs(self) -> Needs:
        """A cosine head, the net of the previous task, and a memory learnt along with the task."""
        return Needs(
            head="cosine",
            teacher=Teacher(statistics="running"),
            memory="tasks",
            policy="herding",
            learns_from="task and memory",
            disjoint=True,
        )

    def supervised(self, logits: Parts, batch: Batch) -> Terms:
        """Cross-entropy over all classes, those to come included."""
        return {"current": cross_entropy(logits[CURRENT], batch.labels[CURRENT])}

    def further(self, first: Answer, nets: tuple[Net, Net | None], batch: Batch) -> Terms:
        """From the second task on: features keep their direction, and old samples their distance to new classes."""
        net, teacher = nets
        if teacher is None:
            return {}
        features = first.features[CURRENT].float()
        old = teacher.decode(teacher.encode(batch.images.pick(CURRENT))).features[CURRENT].float()
        turned = (1 - F.cosine_similarity(features, old)).mean()
        cosines = first.logits[CURRENT].float() / net.weights()[SCALE]
        margins = self._margins(cosines, batch.labels[CURRENT], batch.classes)
        return {
            "features": self.feature_weight * batch.classes.finished.sqrt() * turned,
            "margin": self.margin_weight * margins,
        }

    def before_task(self, desk: Desk) -> None:
        """Of the head only the new classes learn; from the second task on each begins as its mean direction."""
        head, classes = desk.head, desk.classes
        head.get_buffer("learning").copy_(classes.current)
        if classes.past.any():
            weight = head.get_parameter("weight")
            with torch.no_grad():
                norm = weight[classes.past].norm(dim=1).mean()
                features = F.normalize(desk.answers(desk.task, augmented=True).features.rows, dim=1)
                for label in classes.current.nonzero().flatten():
                    weight[label] = norm * F.normalize(features[desk.task.labels == label].mean(0), dim=0)

    def after_task(self, desk: Desk) -> None:
        """Choose exemplars, and tune the head on them; features have no gradient there, so their term is constant."""
        desk.refill(desk.choose())
        optimiser = torch.optim.SGD(desk.head.parameters(), lr=self.fit_lr, momentum=0.9)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [self.fit_milestone], 0.1)

        def loss(images: Parts, labels: Tensor) -> Tensor:
            with torch.no_grad():
                features = desk.net.decode(desk.net.encode(images)).features.rows.float()
            logits = desk.head(features).float()
            margins = self._margins(logits / desk.head.get_parameter("scale"), labels, desk.classes)
            return cross_entropy(logits, labels) + self.margin_weight * margins

        desk.fit(desk.remembered(), optimiser, self.fit_epochs, loss, "batch", schedule)

    def _margins(self, cosines: Tensor, labels: Tensor, classes: Classes) -> Tensor:
        """How far old samples fall short of the margin to the nearest other classes; zero without old samples."""
        own = cosines.gather(1, labels[:, None])
        others = cosines.masked_fill(classes.past, -torch.inf)
        nearest = others.topk(min(self.rivals, len(classes.past)), dim=1).values
        short = (self.margin - own + nearest).clamp(min=0)
        old, rivals = classes.past[labels], (~classes.past).sum().clamp(max=short.shape[1])
        return (short * old[:, None]).sum() / (old.sum() * rivals).clamp(min=1)
