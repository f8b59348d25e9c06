"""Removes credentials from answers before logs, queues and conditions show them. If the
URL is a credential, nothing of an answer is shown: it may quote it in too many ways."""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import quote_plus

from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.schema.oauth2 import OAuth2
from pillion_sidecar.delivery.handler import GONE, Delivery, DeliveryOutcome, Handler
from pillion_sidecar.handlers.authorization import authorization
from pillion_sidecar.indication import Indication, Selection

#: So many characters in a row count as a quotation, since an answer may be cut anywhere.
QUOTATION = 8
#: Shorter ones occur in any text by chance.
SHORTEST = 4
_QUOTES = "the listener's answer quotes this destination's credentials, so it is not shown"
_OF_PROXY = 407
_MAY_QUOTE = "the listener's answer may quote the URL, which is in a Secret, so it is not shown"


class Quotations:
    """Finds quotations of credentials."""

    def __init__(self, credentials: Iterable[Credentials | None]) -> None:
        secrets = [
            secret.lower()
            for one in credentials
            if one is not None
            for secret in _secrets(one)
            if len(secret) >= SHORTEST
        ]
        self._quotations = frozenset(text for secret in secrets for text in _windows(secret))
        self._lengths = {len(quotation) for quotation in self._quotations}
        self._beginnings = tuple({text for secret in secrets for text in _beginnings(secret)})

    def are_in(self, text: str) -> bool:
        text = text.lower()
        return _is_cut_after(self._beginnings, text) or any(
            text[start : start + length] in self._quotations
            for length in self._lengths
            for start in range(len(text) - length + 1)
        )


class DiscreetHandler:
    """Wraps a handler; outcomes quote neither credentials nor a secret URL."""

    def __init__(
        self,
        handler: Handler,
        *,
        credentials: Iterable[Credentials | None],
        url_is_secret: bool = False,
        tokens: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``url_is_secret``: only the status of an answer is shown. ``tokens``: those sent lately,
        where they change."""
        self._tokens = tokens
        self._handler = handler
        self._url_is_secret = url_is_secret
        self._quotations = Quotations(credentials)

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        self._handler.deliver(delivery, lambda outcome: done(self._discreet(outcome)))

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        self._handler.prepare(indication, selection)

    def close(self) -> None:
        self._handler.close()

    def _discreet(self, outcome: DeliveryOutcome) -> DeliveryOutcome:
        detail, status = outcome.detail, "" if outcome.status is None else f"HTTP {outcome.status}"
        if detail in ("", status):
            return outcome
        if outcome.status == GONE and outcome.hold is not None:
            # The text is ours.
            return outcome
        if self._url_is_secret and status and outcome.status != _OF_PROXY:
            return replace(outcome, detail=f"{status}: {_MAY_QUOTE}")
        if self._quotations.are_in(detail) or self._quotes_token(detail):
            return replace(outcome, detail=f"{status}: {_QUOTES}" if status else _QUOTES)
        return outcome

    def _quotes_token(self, text: str) -> bool:
        for token in self._tokens():
            length = min(len(token), QUOTATION)
            starts = range(len(text) - length + 1)
            if length < SHORTEST:
                continue
            if _is_cut_after(tuple(_beginnings(token)), text):
                return True
            if any(text[at : at + length] in token for at in starts):
                return True
        return False


def _is_cut_after(beginnings: tuple[str, ...], text: str) -> bool:
    """Whether a part of the text, which may be cut, ends with one of these."""
    return any(part.endswith(beginnings) for part in text.split(", "))


def _secrets(credentials: Credentials) -> Iterator[str]:
    # Not the user name: it says who was refused.
    _scheme, _, sent = authorization(credentials).decode("ascii").strip().rpartition(" ")
    signing = [base64.b64encode(key.secret).decode("ascii") for key in credentials.signing]
    client = () if credentials.oauth2 is None else _forms(credentials.oauth2)
    password = credentials.password or ""
    # SMTP's AUTH PLAIN and AUTH LOGIN.
    pairs = (f"\0{credentials.username}\0{password}", password)
    words = [base64.b64encode(pair.encode()).decode("ascii") for pair in pairs if password]
    yield from (sent, password, *words, credentials.api_key or "", *signing, *client)


def _forms(client: OAuth2) -> tuple[str, ...]:
    """A client's secret, as it is, as a form has it, and as a header has it."""
    form = quote_plus(client.client_secret)
    pair = f"{quote_plus(client.client_id)}:{form}"
    return client.client_secret, form, base64.b64encode(pair.encode("ascii")).decode("ascii")


def _windows(secret: str) -> Iterator[str]:
    length = min(len(secret), QUOTATION)
    for start in range(len(secret) - length + 1):
        yield secret[start : start + length]


def _beginnings(secret: str) -> Iterator[str]:
    """Shorter than a quotation: the text is cut there."""
    for length in range(SHORTEST, min(len(secret), QUOTATION)):
        yield secret[:length]
