"""What every method owes the engine, as functions that say in plain words what is wrong.

`ider check-method` runs them on one method, the tests of ider on all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ider.contract import form, learning, steps, use
from ider.contract.words import Check, Wrong, in_each_phase, raised
from ider.protocols import Method

CHECKS: dict[str, Check] = {
    "a frozen dataclass, every field with a default and help": form.fields,
    "needs() is well-formed": form.needs,
    "every setting survives the configuration file": form.settings,
    "terms are finite scalars that the net learns from": in_each_phase(steps.terms),
    "a step is pure": in_each_phase(steps.purity),
    "a step stays on the device": in_each_phase(steps.on_device),
    "half precision gives the same terms": in_each_phase(steps.half_precision),
    "what it stores is what it declares": in_each_phase(steps.bookkeeping),
    "every part that it asks for matters": use.parts,
    "teacher and averages matter": use.nets,
    "coins, dice and stored fields matter": use.chances,
    "the second input is used if asked for": use.second_input,
    "a learner takes it through two tasks": learning.learns,
    "the engine gives it what it asks for": learning.is_given,
}


@dataclass(frozen=True)
class Finding:
    """What a check found: nothing, or what is wrong."""

    title: str
    wrong: str = ""


def check(method: Method) -> Iterator[Finding]:
    """All checks, one after the other; what has been said once is not said again."""
    said: set[str] = set()
    for title, look in CHECKS.items():
        try:
            look(method)
        except Exception as error:
            wrong = str(error) if isinstance(error, Wrong) else raised(method, error)
            core = wrong.partition(" [")[0]
            yield Finding(title, "as above" if core in said else wrong)
            said.add(core)
        else:
            yield Finding(title)
