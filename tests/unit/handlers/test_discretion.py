"""What listeners answer is shown, but not the credentials that they were sent."""

import base64
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from pillion_cim.schema import load_schema
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.authorization import StaticAuthorizer, authorization
from pillion_sidecar.handlers.cimxml import CIMXMLHandler
from pillion_sidecar.handlers.redaction import DiscreetHandler
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.indication import Indication, Selection, selection_of
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender, delivery, indication

TOKEN = "planted-Token.0123456789"
BEARER = Credentials(bearer_token=TOKEN)
BASIC = Credentials(username="pillion", password="planted-pass word")
PAIR = base64.b64encode(b"pillion:planted-pass word").decode()
UNSHOWN = "the listener's answer quotes this destination's credentials, so it is not shown"


class Answering:
    """A handler all of whose attempts have one outcome."""

    def __init__(self, outcome: DeliveryOutcome) -> None:
        self._outcome = outcome
        self.prepared: list[tuple[Indication, Selection | None]] = []
        self.closed = False

    def deliver(self, _delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        done(self._outcome)

    def prepare(self, of: Indication, selection: Selection | None) -> None:
        self.prepared.append((of, selection))

    def close(self) -> None:
        self.closed = True


def told(detail: str, credentials: Credentials, **given: Any) -> DeliveryOutcome:
    """What is told of an outcome with a detail."""
    values: dict[str, Any] = {
        "result": DeliveryResult.ERROR,
        "status": 401,
        "retry_after": 3.0,
    } | given
    outcomes: list[DeliveryOutcome] = []
    handler = DiscreetHandler(
        Answering(DeliveryOutcome(detail=detail, **values)), credentials=[credentials]
    )
    handler.deliver(delivery(), outcomes.append)
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize(
    ("detail", "credentials"),
    [
        (f"HTTP 401: no such token {TOKEN}", BEARER),
        (f"HTTP 401: {TOKEN.upper()}", BEARER),
        (f"HTTP 401: Bearer {TOKEN[:8]}", BEARER),
        (f"HTTP 401: …{TOKEN[-8:]} is unknown", BEARER),
        (f"HTTP 401: Authorization: Basic {PAIR}", BASIC),
        ("HTTP 401: pillion has not the password planted-pass word", BASIC),
        ("HTTP 401: pw: tiny!", Credentials(username="a", password="tiny!")),
        (f"HTTP 401: cut at its end {TOKEN[:7]}", BEARER),
        (f"HTTP 401: a header cut at its end {TOKEN[:4]}, and a body", BEARER),
    ],
)
def test_an_answer_that_quotes_credentials_is_not_shown(
    detail: str, credentials: Credentials
) -> None:
    assert told(detail, credentials) == DeliveryOutcome(
        DeliveryResult.ERROR, f"HTTP 401: {UNSHOWN}", 401, 3.0
    )


def test_without_a_status_none_is_told() -> None:
    assert told(f"it said {TOKEN}", BEARER, status=None).detail == UNSHOWN


@pytest.mark.parametrize(
    ("detail", "credentials"),
    [
        ("", BEARER),
        ("HTTP 401: user pillion is unknown", BASIC),
        (f"HTTP 401: {TOKEN[:3]}", BEARER),
        (f"HTTP 401: {TOKEN[:7]} is no token", BEARER),
        ("HTTP 401: a no", Credentials(username="a", password="no")),
        ("HTTP 401: a", Credentials(username="a", password="b")),
    ],
)
def test_any_other_answer_is_shown_as_it_is(detail: str, credentials: Credentials) -> None:
    assert told(detail, credentials).detail == detail


def test_the_rest_is_the_other_handlers() -> None:
    other = Answering(DeliveryOutcome(DeliveryResult.SUCCESS))
    handler = DiscreetHandler(other, credentials=[BEARER])
    of = indication()
    handler.prepare(of, selection_of(["AlertType"]))
    handler.close()
    assert other.prepared == [(of, selection_of(["AlertType"]))]
    assert other.closed


@pytest.mark.parametrize("status", [401, 302])
@pytest.mark.parametrize("credentials", [BEARER, BASIC], ids=["bearer", "basic"])
def test_what_a_listener_echoes_in_its_headers_is_not_shown(
    credentials: Credentials, status: int
) -> None:
    line = authorization(credentials)
    sender = FakeSender()
    handler = DiscreetHandler(
        CIMXMLHandler(
            sender=sender,
            target=parse_target("http://a.example/", port=5988),
            authorizer=StaticAuthorizer(line),
            clock=FakeTime(),
            schema=load_schema(),
        ),
        credentials=[credentials],
    )
    outcomes: list[DeliveryOutcome] = []
    handler.deliver(delivery(), outcomes.append)
    echoed = quote(line.decode().strip()).encode()
    headers = [(name, echoed) for name in (b"CIMError", b"PGErrorDetail", b"Location")]
    sender.sent[-1][1].answered(status, headers, b"")
    assert outcomes[0].detail == f"HTTP {status}: {UNSHOWN}"


MAY_QUOTE = "the listener's answer may quote the URL, which is in a Secret, so it is not shown"


@pytest.mark.parametrize(
    ("detail", "status", "shown"),
    [
        ("connection refused by its host", None, "connection refused by its host"),
        ("HTTP 500", 500, "HTTP 500"),
        ("HTTP 404: q", 404, f"HTTP 404: {MAY_QUOTE}"),
        ("CIM error 4: q", 200, f"HTTP 200: {MAY_QUOTE}"),
        ("", 200, ""),
    ],
)
def test_of_an_answer_from_a_secret_url_the_status_alone_is_told(
    detail: str, status: int | None, shown: str
) -> None:
    outcomes: list[DeliveryOutcome] = []
    answer = Answering(DeliveryOutcome(DeliveryResult.ERROR, detail, status))
    handler = DiscreetHandler(answer, credentials=[None], url_is_secret=True)
    handler.deliver(delivery(), outcomes.append)
    assert outcomes[0].detail == shown
