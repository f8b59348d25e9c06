"""Tokens of OAuth 2.0: what is asked, what is kept for how long, and what is told."""

import asyncio
import base64
import json
from typing import Any
from urllib.parse import parse_qs

import pytest

from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.schema.oauth2 import ClientAuthentication, OAuth2
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
    HoldCause,
)
from pillion_sidecar.handlers.authorization import AuthorizationError
from pillion_sidecar.handlers.cloudevents import CloudEventsHandler
from pillion_sidecar.handlers.http.oauth2 import (
    LEAST_AGE,
    LONGEST_LIFETIME,
    REFUSED_SECONDS,
    USUAL_LIFETIME,
    OAuth2Authorizer,
    TokenSource,
    read_answer,
)
from pillion_sidecar.handlers.redaction import DiscreetHandler
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender, delivery

URL = "https://id.example/token?tenant=a"
CLIENT = OAuth2(token_url=URL, client_id="pillion", client_secret="planted:secret")
Told = list[bytes | AuthorizationError]


def answer(**given: Any) -> bytes:
    return json.dumps({"access_token": "t0ken", "token_type": "bearer", **given}).encode()


def line(token: str) -> bytes:
    return f"Authorization: Bearer {token}\r\n".encode()


class Endpoint:
    """A source of tokens, and the endpoint that it asks."""

    def __init__(self, time: FakeTime, client: OAuth2 = CLIENT) -> None:
        self.sender = FakeSender()
        self.source = TokenSource(
            client, target=parse_target(client.token_url), sender=self.sender, clock=time
        )
        self._time = time

    def authorizer(self, timeout: float = 30.0) -> OAuth2Authorizer:
        return OAuth2Authorizer(self.source, timers=self._time, timeout=timeout)

    def answer(self, status: int = 200, **given: Any) -> None:
        """Answer the last request."""
        self.sender.sent[-1][1].answered(status, [], answer(**given))

    @property
    def form(self) -> dict[str, list[str]]:
        return parse_qs(self.sender.bodies[-1].decode(), strict_parsing=True)


@pytest.fixture
def endpoint(fake_time: FakeTime) -> Endpoint:
    return Endpoint(fake_time)


def test_the_client_is_in_the_header_or_in_the_body(fake_time: FakeTime) -> None:
    endpoint = Endpoint(fake_time)
    endpoint.authorizer().ask(lambda found: None)
    (head,) = endpoint.sender.heads
    pair = base64.b64encode(b"pillion:planted%3Asecret").decode()
    assert head[:2] == ["POST /token?tenant=a HTTP/1.1", "Host: id.example"]
    assert f"Authorization: Basic {pair}" in head
    assert endpoint.form == {"grant_type": ["client_credentials"]}

    odd = OAuth2(
        token_url=URL,
        client_id="a&b=c",
        client_secret="p l\u00e4+%\r\nX: y",
        client_authentication=ClientAuthentication.POST,
        scopes=("read", "write:all"),
        audience="https://api.example/",
    )
    endpoint = Endpoint(fake_time, odd)
    endpoint.authorizer().ask(lambda found: None)
    assert not any(one.startswith(("Authorization", "X:")) for one in endpoint.sender.heads[0])
    assert endpoint.form == {
        "grant_type": ["client_credentials"],
        "scope": ["read write:all"],
        "audience": ["https://api.example/"],
        "client_id": [odd.client_id],
        "client_secret": [odd.client_secret],
    }


def test_one_request_is_under_way_for_all_who_ask(endpoint: Endpoint) -> None:
    told: Told = []
    for _ in range(3):
        endpoint.authorizer().ask(told.append)
    assert len(endpoint.sender.sent) == 1
    assert told == []
    endpoint.answer()
    assert told == [line("t0ken")] * 3
    endpoint.authorizer().ask(told.append)
    assert len(told) == 4
    assert len(endpoint.sender.sent) == 1


@pytest.mark.parametrize(
    ("expires_in", "seconds"),
    [
        (3600, 3540.0),
        (100, 90.0),
        ("600", 540.0),
        (None, USUAL_LIFETIME * 0.9),
        ("soon", USUAL_LIFETIME * 0.9),
        (True, USUAL_LIFETIME * 0.9),
        (10**300, LONGEST_LIFETIME - 60),
        (0, 0.0),
        (-5, 0.0),
    ],
)
def test_a_token_is_used_until_shortly_before_it_expires(
    endpoint: Endpoint, fake_time: FakeTime, expires_in: object, seconds: float
) -> None:
    authorizer, told = endpoint.authorizer(), Told()
    assert authorizer.line is None
    authorizer.ask(told.append)
    endpoint.answer(expires_in=expires_in)
    assert told == [line("t0ken")]
    if seconds:
        fake_time.advance(seconds - 0.001)
        assert authorizer.line == line("t0ken")
        fake_time.advance(0.002)
    assert authorizer.line is None
    authorizer.ask(told.append)
    endpoint.answer(access_token="next")
    assert authorizer.line == told[1] == line("next")


def test_a_token_that_is_refused_is_replaced_unless_it_is_new(
    endpoint: Endpoint, fake_time: FakeTime
) -> None:
    authorizer = endpoint.authorizer()
    authorizer.ask(lambda found: None)
    endpoint.answer(expires_in=3600)
    fake_time.advance(LEAST_AGE - 0.001)
    authorizer.forget()
    assert authorizer.line == line("t0ken")
    fake_time.advance(0.001)
    authorizer.forget()
    assert authorizer.line is None
    authorizer.ask(lambda found: None)
    endpoint.answer(access_token="next")
    # A late answer to the one before.
    authorizer.forget()
    assert authorizer.line == line("next")


@pytest.mark.parametrize(
    ("status", "given", "hold"),
    [
        (401, {"error": "invalid_client", "error_description": "no such client"}, True),
        (400, {"error": "invalid_scope"}, True),
        (400, {"error": "unauthorized_client"}, True),
        (401, {}, True),
        (400, {}, False),
        (400, {"error": ["invalid_client"]}, False),
        (400, {"error": "slow_down"}, False),
        (404, {}, False),
        (429, {"error": "temporarily_unavailable"}, False),
        (500, {"error": "invalid_client"}, False),
        (302, {}, False),
    ],
)
async def test_a_refusal_is_named_and_the_clients_own_fault_holds(
    endpoint: Endpoint, fake_time: FakeTime, status: int, given: dict[str, Any], hold: bool
) -> None:
    told: Told = []
    endpoint.authorizer().ask(told.append)
    endpoint.answer(status, **given)
    (error,) = told
    assert isinstance(error, AuthorizationError)
    texts = [one for one in given.values() if isinstance(one, str)]
    pause = "; it is asked again after 300 s" if hold else ""
    assert str(error) == ": ".join([f"id.example gave no token: HTTP {status}", *texts]) + pause
    assert error.outcome == (
        DeliveryOutcome(DeliveryResult.FATAL_ERROR, str(error), hold=HoldCause.REFUSED)
        if hold
        else DeliveryOutcome(
            DeliveryResult.ERROR, str(error), spends_attempt=False, cause=FailureCause.CREDENTIALS
        )
    )
    asked = len(endpoint.sender.sent)
    if hold:
        # Nobody asks again for a while.
        fake_time.advance(REFUSED_SECONDS - 1)
        endpoint.authorizer().ask(told.append)
        assert len(told) == 1
        await asyncio.sleep(0)
        assert str(told.pop()) == str(error)
        assert len(endpoint.sender.sent) == asked
        fake_time.advance(1)
    # The next one asks again.
    endpoint.authorizer().ask(told.append)
    assert len(endpoint.sender.sent) == asked + 1
    endpoint.answer()
    assert told[1] == line("t0ken")


@pytest.mark.parametrize(("kind", "holds"), [("BEARER", False), ("DPoP", True), (1, True)])
def test_only_a_bearer_token_can_be_sent(endpoint: Endpoint, kind: object, holds: bool) -> None:
    told: Told = []
    endpoint.authorizer().ask(told.append)
    endpoint.answer(token_type=kind)
    (found,) = told
    if not holds:
        assert found == line("t0ken")
        return
    assert isinstance(found, AuthorizationError)
    assert found.hold is HoldCause.CREDENTIALS
    assert f"its token_type is {kind}, and only Bearer can be sent" in str(found)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"[" * 60_000,
        b"{}",
        answer(access_token=""),
        answer(access_token=5),
        answer(access_token="a b"),
        answer(access_token="a\r\nX: y"),
        answer(access_token="\u00e4"),
        answer(access_token="a" * 20_000),
        answer(token_type="mac"),
        answer(token_type=1),
    ],
)
def test_an_answer_without_a_usable_token_is_an_error(body: bytes) -> None:
    with pytest.raises(AuthorizationError) as error:
        read_answer(200, body)
    assert "X: y" not in str(error.value)


def test_an_endpoint_that_fails_spends_no_attempt(endpoint: Endpoint) -> None:
    told: Told = []
    endpoint.authorizer().ask(told.append)
    failure = Failure(DeliveryResult.ERROR, "refused", hold=HoldCause.ADDRESS)
    endpoint.sender.sent[-1][1].failed(failure)
    (error,) = told
    assert isinstance(error, AuthorizationError)
    assert (str(error), error.hold) == ("id.example gave no token: refused", HoldCause.ADDRESS)


def test_who_waits_longer_than_its_time_out_gives_up_alone(
    endpoint: Endpoint, fake_time: FakeTime
) -> None:
    short, long = endpoint.authorizer(5.0), endpoint.authorizer(20.0)
    told: Told = []
    short.ask(told.append)
    long.ask(told.append)
    fake_time.advance(5.0)
    assert [str(one) for one in told] == ["timed out after 5 s, waiting for a token of id.example"]
    assert not endpoint.sender.closed
    fake_time.advance(15.0)
    assert len(told) == 2
    # Nobody waits for this answer: the request ends, and the next one has a new connection.
    assert endpoint.sender.closed
    short.ask(told.append)
    assert len(endpoint.sender.sent) == 2
    endpoint.answer()
    assert told[2] == line("t0ken")


def test_who_closes_hears_nothing_and_the_last_one_ends_the_connection(
    endpoint: Endpoint, fake_time: FakeTime
) -> None:
    first, second = endpoint.authorizer(), endpoint.authorizer()
    told: Told = []
    first.ask(told.append)
    second.ask(told.append)
    first.close()
    assert not endpoint.sender.closed
    endpoint.answer()
    assert told == [line("t0ken")]
    second.close()
    assert endpoint.sender.closed
    assert fake_time.next_due() is None


def test_one_who_closes_another_from_within_is_no_harm(endpoint: Endpoint) -> None:
    first, second = endpoint.authorizer(), endpoint.authorizer()
    told: Told = []
    first.ask(lambda found: second.close())
    second.ask(told.append)
    endpoint.answer()
    assert told == []


def deliverer(endpoint: Endpoint, time: FakeTime) -> tuple[FakeSender, DiscreetHandler]:
    sender = FakeSender()
    handler = CloudEventsHandler(
        sender=sender,
        target=parse_target("https://a.example/"),
        authorizer=endpoint.authorizer(),
        clock=time,
        service_name="s",
    )
    return sender, DiscreetHandler(
        handler,
        credentials=[Credentials(oauth2=CLIENT)],
        tokens=lambda: endpoint.source.tokens,
    )


def test_the_wait_for_a_token_is_a_part_of_the_attempt(
    endpoint: Endpoint, fake_time: FakeTime
) -> None:
    sender, handler = deliverer(endpoint, fake_time)
    handler.deliver(delivery(), lambda outcome: None)
    fake_time.advance(12.0)
    endpoint.answer()
    handler.deliver(delivery(), lambda outcome: None)
    assert sender.spent == [12.0, 0.0]
    assert all("Authorization: Bearer t0ken" in head for head in sender.heads)


@pytest.mark.parametrize("quoted", ["first-planted-token", "second-planted-token"])
def test_no_outcome_quotes_a_token(endpoint: Endpoint, fake_time: FakeTime, quoted: str) -> None:
    sender, handler = deliverer(endpoint, fake_time)
    outcomes: list[DeliveryOutcome] = []
    for token in ("first-planted-token", "second-planted-token"):
        handler.deliver(delivery(), outcomes.append)
        endpoint.answer(access_token=token, expires_in=0)
    location = f"/?t={quoted[3:14]}".encode()
    sender.sent[0][1].answered(302, [(b"Location", location)], b"")
    assert "planted" not in outcomes[0].detail
    assert outcomes[0].detail.startswith("HTTP 302: the listener's answer quotes")


@pytest.mark.parametrize("quoted", ["planted:secret", "planted%3Asecret"])
def test_no_outcome_quotes_the_clients_secret(
    endpoint: Endpoint, fake_time: FakeTime, quoted: str
) -> None:
    _, handler = deliverer(endpoint, fake_time)
    outcomes: list[DeliveryOutcome] = []
    handler.deliver(delivery(), outcomes.append)
    endpoint.answer(401, error="invalid_client", error_description=f"not {quoted}")
    (told,) = outcomes
    assert told.hold is HoldCause.REFUSED
    assert "planted" not in told.detail
    assert "gave no token: HTTP 401: the token endpoint's answer quotes" in told.detail
