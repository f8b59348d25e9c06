"""Requests of HTTP with a common head."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pillion_cim.model import is_language_tag
from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome
from pillion_sidecar.handlers.authorization import AuthorizationError, Authorizer
from pillion_sidecar.handlers.transport.exchange import Exchange, Sender
from pillion_sidecar.trace_context import header_lines


class AuthorizedRequests:
    """Sends requests with a common head, each with the current Authorization line."""

    def __init__(
        self, *, sender: Sender, head: bytes, authorizer: Authorizer, clock: Clock
    ) -> None:
        self._sender = sender
        self._head = head
        self._authorizer = authorizer
        self._clock = clock
        self._closed = False

    def send(
        self,
        fields: bytes,
        body: bytes,
        exchange: Exchange,
        done: Callable[[DeliveryOutcome], None],
    ) -> None:
        """Send a request with further header lines. ``done`` is called if it cannot be
        authorized."""
        if self._closed:
            return
        line = self._authorizer.line
        if line is not None:
            self._sender.send(self._request(line, fields, body), exchange)
            return
        asked_at = self._clock.monotonic()

        def authorized(line: bytes | AuthorizationError) -> None:
            if self._closed:
                return
            if isinstance(line, AuthorizationError):
                done(line.outcome)
                return
            spent = self._clock.monotonic() - asked_at
            self._sender.send(self._request(line, fields, body), exchange, spent)

        self._authorizer.ask(authorized)

    def _request(self, line: bytes, fields: bytes, body: bytes) -> bytes:
        length = len(body)
        return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (self._head, line, fields, length, body)

    def heed(self, outcome: DeliveryOutcome) -> DeliveryOutcome:
        """Return the outcome; after 401 a plain failure if the next attempt has another token."""
        if outcome.status == 401 and self._authorizer.forget():
            return replace(outcome, hold=None)
        return outcome

    def close(self) -> None:
        """Release the connections; requests under way are abandoned."""
        self._closed = True
        self._authorizer.close()
        self._sender.close()


def common_fields(delivery: Delivery) -> bytes:
    """The header lines of a delivery, whatever the protocol. Raises ValueError for an invalid
    language tag."""
    indication = delivery.indication
    trace = delivery.span or indication.trace
    if trace is None and not indication.languages:
        return b""
    return content_language(indication.languages) + header_lines(trace)


def content_language(languages: Sequence[str]) -> bytes:
    """The Content-Language line with its CRLF; empty without languages (S0.21). Raises ValueError
    for an invalid tag."""
    if not languages:
        return b""
    for tag in languages:
        if not is_language_tag(tag):
            raise ValueError(f"not a language tag: {tag[:40]!r}")
    return f"Content-Language: {', '.join(languages)}\r\n".encode("ascii")
