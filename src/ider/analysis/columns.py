"""What each metric of a record is called, its unit, which direction is better, and one line on what it means."""

from dataclasses import dataclass
from typing import Literal

from ider.errors import unknown

Better = Literal["high", "low", "zero", ""]
_ARROWS: dict[Better, str] = {"high": " ↑", "low": " ↓", "zero": " →0", "": ""}
MISSING = "–"


@dataclass(frozen=True)
class Column:
    """One metric as a column of a table; `better` says where the best value lies, `zero` means closest to zero."""

    name: str
    title: str
    unit: str
    better: Better
    meaning: str
    digits: int = 2

    @property
    def heading(self) -> str:
        """Title, unit and direction, such as ``ECE (%) ↓``."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.title}{unit}{_ARROWS[self.better]}"

    def number(self, value: float | None) -> str:
        """The value as text; with its sign where the sign is the message."""
        if value is None:
            return MISSING
        rounded = self.rounded(value)
        return f"{rounded:+.{self.digits}f}" if self.better == "zero" and rounded else f"{rounded:.{self.digits}f}"

    def rounded(self, value: float) -> float:
        """The value as printed; never a negative zero."""
        return round(value, self.digits) + 0.0

    def spread(self, mean: float | None, std: float | None) -> str:
        """``mean ± std``; the mean alone where one seed leaves no spread."""
        return self.number(mean) if mean is None or std is None else f"{self.number(mean)} ± {std:.{self.digits}f}"

    def score(self, value: float) -> float:
        """The printed value on a scale where more is better, so that what prints equal also ranks equal."""
        rounded = self.rounded(value)
        return {"high": rounded, "low": -rounded, "zero": -abs(rounded), "": 0.0}[self.better]


METRICS = (
    Column("faa", "FAA", "%", "high", "final average accuracy: class-IL accuracy after the last task, mean over tasks"),
    Column("ff", "FF", "%", "low", "final forgetting: best accuracy an old task ever had minus its final one"),
    Column(
        "ff_paper", "FF (paper)", "%", "low", "the same by the paper's formula: the last row does not count as a peak"
    ),
    Column("bwt", "BWT", "%", "high", "backward transfer: final accuracy of an old task minus that right after it"),
    Column(
        "fwt", "FWT", "%", "high", "forward transfer: accuracy just before a task is learnt minus that of a new net"
    ),
    Column("task_il", "Task-IL", "%", "high", "final accuracy when the task of every image is told, mean over tasks"),
    Column("ece", "ECE", "%", "low", "expected calibration error, 15 equal-width bins, mean over tasks"),
    Column("ece_pooled", "ECE pooled", "%", "low", "the same over all test images at once"),
    Column("ace", "ACE", "%", "low", "calibration error over bins that hold equally many images"),
    Column("nll", "NLL", "nats", "low", "mean negative log-likelihood of the true class", digits=3),
    Column("brier", "Brier", "", "low", "squared distance of the answer from the one-hot truth, 0 to 2", digits=3),
    Column("aurc", "AURC", "", "low", "error rate among the most confident answers, mean over how many", digits=4),
    Column("e_aurc", "E-AURC", "", "low", "AURC minus that of a perfect order at the same error rate", digits=4),
    Column("auroc_error", "AUROC", "", "high", "chance that a right answer is surer than a wrong one", digits=3),
    Column("fpr95", "FPR95", "", "low", "share of the errors let through with 95 % of the right answers", digits=3),
    Column("accuracy", "Accuracy", "%", "high", "of all test images together at the end"),
    Column("overconfidence", "Overconfidence", "points", "zero", "mean confidence minus accuracy; above 0: too sure"),
    Column("idempotence_gap", "Idempotence gap", "", "low", "how far the answer moves when it is fed back", digits=3),
)
TEMPERATURE = Column("temperature", "T", "", "", "temperature of the calibrated answer; above 1: less sure than before")
_BY_NAME = {column.name: column for column in (*METRICS, TEMPERATURE)}


def column(name: str) -> Column:
    """The column of a metric, by the name it has in a record."""
    if name not in _BY_NAME:
        raise unknown("metric", name, _BY_NAME)
    return _BY_NAME[name]


COLUMNS = tuple(column(name) for name in ("faa", "ff", "ece", "overconfidence"))
ANSWER_COLUMNS = tuple(column(name) for name in ("faa", "ece", "overconfidence", "nll"))
CALIBRATION_COLUMNS = tuple(column(name) for name in ("ece", "overconfidence", "nll", "temperature"))
