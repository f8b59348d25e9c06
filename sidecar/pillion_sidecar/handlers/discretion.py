"""What listeners answer is shown to people, in logs, queues and conditions: but not where it quotes
the credentials that they were sent, as some do in what they say against a request."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from pillion_sidecar.config.resources import Credentials
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.handlers.http.fields import authorization
from pillion_sidecar.indication import Indication

#: So many characters in a row are taken for a quotation: an answer may be cut off anywhere.
QUOTATION = 8
#: What is shorter is in any text by chance.
SHORTEST = 4
_UNSHOWN = "the listener's answer quotes this destination's credentials, so it is not shown"


class DiscreetHandler:
    """Another handler, whose outcomes do not quote credentials."""

    def __init__(self, handler: Handler, *, credentials: Credentials) -> None:
        self._handler = handler
        self._quotations = frozenset(_quotations(credentials))
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
        if not outcome.detail or not self._quotes(outcome.detail.lower()):
            return outcome
        beginning = "" if outcome.status is None else f"HTTP {outcome.status}: "
        return replace(outcome, detail=beginning + _UNSHOWN)

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
        if len(secret) >= SHORTEST:
            length = min(len(secret), QUOTATION)
            for start in range(len(secret) - length + 1):
                yield secret[start : start + length].lower()
