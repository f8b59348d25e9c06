"""Who a handler says that it is, where that changes."""

from collections.abc import Callable

import pytest

from pillion_cim.schema import load_schema
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, FailureCause, Handler
from pillion_sidecar.handlers.authorization import AuthorizationError, Authorizer, Tell
from pillion_sidecar.handlers.cimxml import CIMXMLHandler
from pillion_sidecar.handlers.cloudevents import CloudEventsHandler
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender, delivery


class ChangingAuthorizer:
    """Knows what a test tells it."""

    def __init__(self) -> None:
        self.line: bytes | None = None
        self.asking: list[Tell] = []
        self.forgotten = 0

    def ask(self, tell: Tell) -> None:
        self.asking.append(tell)

    def forget(self) -> None:
        self.forgotten += 1

    def close(self) -> None: ...


Make = Callable[[FakeSender, Authorizer], Handler]


@pytest.fixture(params=["CIM-XML", "CloudEvents"])
def make(request: pytest.FixtureRequest) -> Make:
    target, clock, schema = parse_target("http://a.example/x"), FakeTime(), load_schema()

    def cim_xml(sender: FakeSender, authorizer: Authorizer) -> Handler:
        return CIMXMLHandler(
            sender=sender, target=target, authorizer=authorizer, clock=clock, schema=schema
        )

    def cloud_events(sender: FakeSender, authorizer: Authorizer) -> Handler:
        return CloudEventsHandler(
            sender=sender, target=target, authorizer=authorizer, clock=clock, service_name="s"
        )

    return cim_xml if request.param == "CIM-XML" else cloud_events


def shown(sender: FakeSender) -> list[str]:
    return [line for head in sender.heads for line in head if line.startswith("Authorization")]


def test_each_request_shows_the_line_of_its_moment(make: Make) -> None:
    sender, authorizer = FakeSender(), ChangingAuthorizer()
    handler = make(sender, authorizer)
    for line in (b"Authorization: Bearer a\r\n", b"Authorization: Bearer b\r\n", b""):
        authorizer.line = line
        handler.deliver(delivery(), lambda outcome: None)
    assert shown(sender) == ["Authorization: Bearer a", "Authorization: Bearer b"]
    assert len(sender.sent) == 3
    assert not authorizer.asking


def test_a_request_waits_for_a_line_that_is_not_known(make: Make) -> None:
    sender, authorizer = FakeSender(), ChangingAuthorizer()
    handler = make(sender, authorizer)
    handler.deliver(delivery(), lambda outcome: None)
    assert not sender.sent
    authorizer.asking.pop()(b"Authorization: Bearer late\r\n")
    assert shown(sender) == ["Authorization: Bearer late"]


def test_without_a_line_no_attempt_is_spent(make: Make) -> None:
    sender, authorizer = FakeSender(), ChangingAuthorizer()
    outcomes: list[DeliveryOutcome] = []
    make(sender, authorizer).deliver(delivery(), outcomes.append)
    authorizer.asking.pop()(AuthorizationError("the token: not there"))
    assert not sender.sent
    assert outcomes == [
        DeliveryOutcome(
            DeliveryResult.ERROR,
            "the token: not there",
            spends_attempt=False,
            cause=FailureCause.CREDENTIALS,
        )
    ]


def test_what_is_told_after_the_end_sends_nothing(make: Make) -> None:
    sender, authorizer = FakeSender(), ChangingAuthorizer()
    handler = make(sender, authorizer)
    handler.deliver(delivery(), lambda outcome: None)
    handler.close()
    authorizer.asking.pop()(b"Authorization: Bearer late\r\n")
    assert not sender.sent


@pytest.mark.parametrize(("status", "forgotten"), [(401, 1), (403, 0), (503, 0)])
def test_a_line_that_is_not_accepted_is_forgotten(make: Make, status: int, forgotten: int) -> None:
    sender, authorizer = FakeSender(), ChangingAuthorizer()
    authorizer.line = b"Authorization: Bearer a\r\n"
    make(sender, authorizer).deliver(delivery(), lambda outcome: None)
    sender.sent[0][1].answered(status, [], b"")
    assert authorizer.forgotten == forgotten
