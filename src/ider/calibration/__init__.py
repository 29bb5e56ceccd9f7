"""Calibrators by name: what a configuration's `calibration.name` may say, with their default settings.

A calibrator takes a trained learner and chooses one positive temperature an answer: probabilities p become p^(1/T),
made to sum to one. The net stays as it is, and so does every prediction.
"""

from ider.calibration.base import ANSWERS, Calibration, Calibrator, Labelled, Sight, Temperatures
from ider.calibration.rc import RC
from ider.calibration.tcil import TCIL
from ider.calibration.temperature import Temperature

CALIBRATORS: dict[str, Calibrator] = {
    "none": Calibrator(),
    "temperature": Temperature(),
    "rc": RC(),
    "t-cil": TCIL(),
}

__all__ = [
    "ANSWERS",
    "CALIBRATORS",
    "RC",
    "TCIL",
    "Calibration",
    "Calibrator",
    "Labelled",
    "Sight",
    "Temperature",
    "Temperatures",
]
