"""Every method keeps the contract (`ider.contract`), in every phase. A method enters by being in `METHODS`."""

import pytest

from ider.contract import CHECKS, check
from ider.contract.form import variations
from ider.contract.stage import LATER, PHASES, stage
from ider.methods import BFP, DER, DERPP, ER, METHODS, OWN, Finetune, Idempotent, LwF
from ider.protocols import Method

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
    "der, no logits": DER(logit_weight=0.0),
    "derpp, no logits": DERPP(logit_weight=0.0),
    "bfp, logits only": BFP(replay_weight=0.0, feature_weight=0.0),
    "bfp, no teacher": BFP(logit_weight=0.0, feature_weight=0.0),
    "bfp+id, no features": Idempotent(base=BFP(feature_weight=0.0), teacher_statistics="running"),
    "lwf, no distillation": LwF(distill_weight=0.0),
}
ALL = OWN | VARIANTS


@pytest.mark.parametrize("title", CHECKS)
@pytest.mark.parametrize("method", ALL.values(), ids=ALL)
def test_a_method_keeps_the_contract(method: Method, title: str) -> None:
    CHECKS[title](method)


def test_all_that_ider_offers_by_name_is_its_own() -> None:
    assert METHODS.own == set(OWN)


def test_a_sound_method_passes_every_check_by_its_title() -> None:
    findings = list(check(METHODS["er+id"]))
    assert [finding.title for finding in findings] == list(CHECKS)
    assert not any(finding.wrong for finding in findings)


def test_the_phases_are_as_different_as_training_makes_them() -> None:
    shown = {name: stage(METHODS["er+id"], case) for name, case in PHASES.items()}
    assert {name for name, here in shown.items() if here.teacher is None} == {"first step", "first task"}
    assert dict(shown["later task"].batch.images.sizes) == {"current": 5, "replay": 4, "distill": 4}
    assert dict(shown["first task"].batch.images.sizes) == {"current": 5, "replay": 4}
    assert dict(shown["no memory"].batch.images.sizes) == {"current": 5}
    assert shown["later task"].batch.classes.past.tolist() == [True, True, False, False, False]
    alike = [stage(METHODS["xder"], LATER).batch for _ in range(2)]
    assert alike[0].stored["logits"].rows.equal(alike[1].stored["logits"].rows)


def test_settings_are_varied_one_by_one() -> None:
    found = list(variations(Idempotent()))
    assert len(found) == 10  # of twelve: without means beside the net there is none to be the teacher
    assert Idempotent(base=ER(mixed=False, replay_weight=0.8125)) in found
    assert Idempotent(distance="kl") in found
    assert Idempotent() not in found
