"""Credentials out, Retry-After in, and what a status means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.handlers.authorization import authorization
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.http.answers import RETRY_AFTER_LIMIT, retry_after, status_outcome
from pillion_sidecar.testing import FakeTime

NOW = 1_792_584_000.0  # Wed, 21 Oct 2026 12:00:00 GMT


def test_basic_credentials_are_utf_8_in_base_64() -> None:
    line = authorization(Credentials(username="ädmin", password="p:w"))
    assert line == b"Authorization: Basic w6RkbWluOnA6dw==\r\n"


def test_a_bearer_token_goes_as_it_is() -> None:
    assert authorization(Credentials(bearer_token="a.b-c_d==\n")) == (
        b"Authorization: Bearer a.b-c_d==\r\n"
    )


def test_without_credentials_there_is_no_line() -> None:
    assert authorization(None) == b""
    assert authorization(Credentials()) == b""


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(bearer_token="a\r\nX: y"),
        Credentials(bearer_token="ä"),
        Credentials(bearer_token=""),
        Credentials(username="a:b", password="c"),
    ],
)
def test_credentials_that_no_header_can_hold_are_refused(credentials: Credentials) -> None:
    with pytest.raises(InvalidDestinationError):
        authorization(credentials)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"120", 120.0),
        (b"0", 0.0),
        (b" 7 ", 7.0),
        (b"9" * 5000, RETRY_AFTER_LIMIT),
        (b"Wed, 21 Oct 2026 12:01:30 GMT", 90.0),
        (b"Wed, 21 Oct 2026 11:00:00 GMT", 0.0),
        (b"Fri, 21 Oct 2326 12:00:00 GMT", RETRY_AFTER_LIMIT),
        (b"-1", None),
        (b"1.5", None),
        (b"soon", None),
        (b"", None),
        ("٣".encode(), None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: bytes, seconds: float | None) -> None:
    assert retry_after([(b"RETRY-after", value)], NOW) == seconds


@given(st.binary(max_size=50))
def test_any_retry_after_is_bounded_or_nothing(value: bytes) -> None:
    seconds = retry_after([(b"Retry-After", value)], NOW)
    assert seconds is None or 0 <= seconds <= RETRY_AFTER_LIMIT


@pytest.mark.parametrize("status", [301, 404, 410, 429, 500, 501, 503])
def test_every_status_but_2xx_is_an_error_that_a_retry_may_mend(status: int) -> None:
    outcome = status_outcome(status, [], FakeTime())
    assert outcome == DeliveryOutcome(DeliveryResult.ERROR, f"HTTP {status}", status, None)


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_status_about_the_credentials_pauses(status: int) -> None:
    outcome = status_outcome(status, [], FakeTime())
    assert (outcome.hold, outcome.status) == (HoldCause.REFUSED, status)
    assert f"HTTP {status}" in outcome.detail
    assert not outcome.refuses_indication


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_status_that_is_about_the_request_refuses_the_indication_alone(status: int) -> None:
    outcome = status_outcome(status, [], FakeTime())
    assert (outcome.result, outcome.refuses_indication) == (DeliveryResult.ERROR, True)
    assert outcome.hold is None


@pytest.mark.parametrize(("status", "seconds"), [(429, 60.0), (503, 60.0), (500, None)])
def test_retry_after_counts_where_the_listener_is_overloaded(
    status: int, seconds: float | None
) -> None:
    outcome = status_outcome(status, [(b"Retry-After", b"60")], FakeTime())
    assert outcome.retry_after == seconds


def test_a_redirect_names_where_it_leads() -> None:
    outcome = status_outcome(302, [(b"Location", b"http://b/")], FakeTime())
    assert outcome.detail == "HTTP 302, a redirect to http://b/, which is not followed"


def test_what_the_listener_says_was_wrong_is_quoted_in_one_bounded_line() -> None:
    headers = [
        (b"CIMError", b"request-not-valid"),
        (b"PGErrorDetail", b"line%201%0Aline%202" + b"x" * 1000),
    ]
    detail = status_outcome(400, headers, FakeTime()).detail
    assert detail.startswith("HTTP 400: request-not-valid, line 1 line 2")
    assert len(detail) < 500
    assert detail.isprintable()
