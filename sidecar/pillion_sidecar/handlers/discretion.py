"""What listeners answer is shown to people, in logs, queues and conditions: but not where it quotes
the credentials that they were sent, as some do in what they say against a request."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import SplitResult, unquote, urlsplit

from pillion_sidecar.config.resources import Credentials
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.handlers.http.fields import authorization
from pillion_sidecar.indication import Indication

#: So many characters in a row are taken for a quotation: an answer may be cut off anywhere.
QUOTATION = 8
#: What is shorter is in any text by chance.
SHORTEST = 4
_UNSHOWN = "the listener's answer quotes this destination's {what}, so it is not shown"
_HOST = "its host"


class DiscreetHandler:
    """Another handler, whose outcomes quote neither credentials nor a secret URL."""

    def __init__(
        self, handler: Handler, *, credentials: Credentials | None, url: str | None = None
    ) -> None:
        """``url``: that of the destination, where no part of it may be shown."""
        self._handler = handler
        self._unshown = _UNSHOWN.format(what="URL" if credentials is None else "credentials")
        parts = None if url is None else urlsplit(url)
        self._host = None if parts is None else _host_pattern(parts)
        quotations = set() if credentials is None else set(_quotations(credentials))
        if parts is not None:
            quotations.update(_parts_of_url(parts))
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
        detail = outcome.detail
        if detail and self._host is not None:
            detail = self._host.sub(_HOST, detail)
        if detail and self._quotes(detail.lower()):
            beginning = "" if outcome.status is None else f"HTTP {outcome.status}: "
            detail = beginning + self._unshown
        return outcome if detail == outcome.detail else replace(outcome, detail=detail)

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


def _parts_of_url(parts: SplitResult) -> Iterator[str]:
    """Quotations of path and query, as they are written and as they are decoded."""
    written = parts.path + (f"?{parts.query}" if parts.query else "")
    for text in {written, unquote(written)}:
        # A part alone may be quoted, too.
        for part in (text, *re.split("[/?&=;]", text)):
            yield from _windows(part)


def _windows(secret: str) -> Iterator[str]:
    if len(secret) >= SHORTEST:
        length = min(len(secret), QUOTATION)
        for start in range(len(secret) - length + 1):
            yield secret[start : start + length].lower()


def _host_pattern(parts: SplitResult) -> re.Pattern[str]:
    """Match the host of a URL, with or without its port, where it stands by itself."""
    host = re.escape((parts.hostname or "").rstrip("."))
    return re.compile(rf"(?<![\w.-])\[?{host}\.?\]?(?![\w-]|\.\w)", re.IGNORECASE)
