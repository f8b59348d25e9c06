"""What listeners answer is shown to people, in logs, queues and conditions: but not where it quotes
the credentials that they were sent, as some do in what they say against a request. Where the URL is
a credential, none of it is: it may quote that in more ways than can be looked for."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.handlers.http.authorization import authorization
from pillion_sidecar.indication import Indication

#: So many characters in a row are taken for a quotation: an answer may be cut off anywhere.
QUOTATION = 8
#: What is shorter is in any text by chance.
SHORTEST = 4
_QUOTES = "the listener's answer quotes this destination's credentials, so it is not shown"
_MAY_QUOTE = "the listener's answer may quote the URL, which is in a Secret, so it is not shown"


class DiscreetHandler:
    """Another handler, whose outcomes quote neither credentials nor a secret URL."""

    def __init__(
        self, handler: Handler, *, credentials: Credentials | None, url_is_secret: bool = False
    ) -> None:
        """``url_is_secret``: of an answer, nothing but the status is told."""
        self._handler = handler
        self._url_is_secret = url_is_secret
        quotations = () if credentials is None else _quotations(credentials)
        self._quotations = frozenset(quotations)
        self._lengths = {len(quotation) for quotation in self._quotations}

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        """Begin an attempt; see :class:`pillion_sidecar.delivery.handler.Handler`."""
        self._handler.deliver(delivery, lambda outcome: done(self._discreet(outcome)))

    def prepare(self, indication: Indication) -> None:
        """Render an indication before its attempt."""
        self._handler.prepare(indication)

    def close(self) -> None:
        """Release the connections; attempts under way are abandoned."""
        self._handler.close()

    def _discreet(self, outcome: DeliveryOutcome) -> DeliveryOutcome:
        detail, status = outcome.detail, "" if outcome.status is None else f"HTTP {outcome.status}"
        if detail in ("", status):
            return outcome
        if self._url_is_secret and status:
            return replace(outcome, detail=f"{status}: {_MAY_QUOTE}")
        if self._quotes(detail.lower()):
            return replace(outcome, detail=f"{status}: {_QUOTES}" if status else _QUOTES)
        return outcome

    def _quotes(self, text: str) -> bool:
        return any(
            text[start : start + length] in self._quotations
            for length in self._lengths
            for start in range(len(text) - length + 1)
        )


def _quotations(credentials: Credentials) -> Iterator[str]:
    # The user name is none of them: it says who was refused.
    _scheme, _, sent = authorization(credentials).decode("ascii").strip().rpartition(" ")
    for secret in (sent, credentials.password or ""):
        yield from _windows(secret)


def _windows(secret: str) -> Iterator[str]:
    if len(secret) >= SHORTEST:
        length = min(len(secret), QUOTATION)
        for start in range(len(secret) - length + 1):
            yield secret[start : start + length].lower()
