"""The sequence identifier of a test: the one before the first pending entry (S0.12, D.2)."""

import pytest

from pillion_sidecar.config.schema.destination import SequenceIdentifiers
from pillion_sidecar.diagnosis.trial import trial_sequence
from support.delivery import ERROR, SUCCESS, Deliverer, destination


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def number(deliverer: Deliverer) -> int | None:
    found = trial_sequence(deliverer.queue("ops"))
    return None if found is None else found.number


def test_before_the_first_attempt_there_is_none(deliverer):
    deliverer.apply([destination("ops", suspended=True)])
    assert number(deliverer) is None
    deliverer.publish("a")
    assert number(deliverer) is None


def test_it_is_the_last_settled_one(deliverer):
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()
    found = trial_sequence(deliverer.queue("ops"))
    last = deliverer.handlers["ops"].attempts[-1]
    assert found == (last.sequence_context, last.sequence_number)


def test_it_is_before_what_waits_and_behind_what_was_discarded(deliverer):
    deliverer.apply([destination("ops", suspended=True, queue_size=2)])
    for identifier in "abcde":
        deliverer.publish(identifier)
    assert number(deliverer) == 2
    deliverer.apply([destination("ops", queue_size=2)])
    deliverer.run()
    assert deliverer.handlers["ops"].attempts[0].sequence_number == 3


def test_an_attempt_under_way_is_pending(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops", max_in_flight=2)])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()
    # The listener may have it, and would forget its context without an identifier.
    assert number(deliverer) == -1
    deliverer.answer_held("ops", SUCCESS)
    assert number(deliverer) == 0


@pytest.mark.parametrize(("protocol", "expected"), [("CIM-XML", -1), ("SNMP", None)])
def test_a_first_attempt_that_failed_may_have_arrived(deliverer, protocol, expected):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", protocol=protocol)])
    deliverer.publish("a")
    deliverer.run()
    assert number(deliverer) == expected


def test_a_destination_without_identifiers_has_none(deliverer):
    deliverer.apply([destination("ops", sequence_identifiers=SequenceIdentifiers.OMIT)])
    deliverer.publish("a")
    deliverer.run()
    assert number(deliverer) is None
    assert trial_sequence(None) is None
