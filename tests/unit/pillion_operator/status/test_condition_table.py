"""A condition is declared once: all that depends on it follows the table."""

import pytest

from generate_operator_reference import conditions_page
from pillion_operator.controllers.status_writer import Transition, transitions
from pillion_operator.status import conditions as written
from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.config.schema.status import (
    CONDITIONS,
    FILTER,
    SERVICE,
    ConditionType,
    Told,
    conditions_described,
)

ADDED = ConditionType(
    name="OutOfTune",
    kinds=(SERVICE,),
    where="with an orchestra",
    text="an instrument is flat.",
    bad="True",
    told=Told.BOTH,
)
TABLE = (*CONDITIONS, ADDED)


def test_the_crd_of_its_kind_describes_it_and_no_other_does() -> None:
    described = "OutOfTune, with an orchestra: an instrument is flat."
    assert conditions_described(SERVICE, TABLE).endswith(described)
    assert conditions_described(FILTER, TABLE) == conditions_described(FILTER)


def test_its_transitions_are_events() -> None:
    flat, sharp = (
        {"conditions": [{"type": "OutOfTune", "status": one, "reason": "R", "message": "M"}]}
        for one in ("True", "False")
    )
    assert list(transitions(sharp, flat, conditions=TABLE)) == [
        Transition("Warning", "OutOfTune", "R: M")
    ]
    assert list(transitions(flat, sharp, conditions=TABLE)) == [
        Transition("Normal", "NotOutOfTune", "M")
    ]
    assert list(transitions(sharp, flat)) == []


def test_the_reference_has_a_row_of_it() -> None:
    row = (
        "| `OutOfTune` | IndicationService | With an orchestra: an instrument is flat. "
        "| `OutOfTune`, `NotOutOfTune` |\n"
    )
    assert conditions_page(TABLE).endswith(row)


def test_the_operator_takes_all_of_the_table_for_its_own() -> None:
    names = [one.name for one in CONDITIONS]
    assert len(names) == len(set(names))
    assert set(names) == written.OUR_TYPES
    assert {"Delivering", "Backlogged", "ListenerUnreachable", "RelayFailing"} == written.REPORTED


@pytest.mark.parametrize("one", CONDITIONS, ids=lambda one: one.name)
def test_the_schema_of_each_kind_describes_its_conditions(one: ConditionType) -> None:
    assert set(one.kinds) <= {kind.name for kind in KINDS}
    for kind in KINDS:
        (field,) = (field for field in kind.status.fields if field.name == "conditions")
        assert (f"{one.name}: {one.meaning(kind.name)}" in field.description) == (
            kind.name in one.kinds and not one.where
        )
        assert (f"{one.name}, {one.where}: " in field.description) == (
            kind.name in one.kinds and bool(one.where)
        )
