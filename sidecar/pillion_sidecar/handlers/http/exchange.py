"""One request and what comes of it: the words that the sender and the handlers share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause

#: The answer's header fields as they came: names in any case, values without white space around.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

#: Bytes of an answer's head (S "bounded response bodies"): beyond, the connection is closed.
HEAD_LIMIT = 16 * 1024
#: Bytes of an answer's body.
BODY_LIMIT = 64 * 1024
#: Bytes of an answer in all, with interim answers, chunk sizes and trailers: so many bodies.
ANSWER_BODIES = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of an answer is read."""

    #: Bytes of the body: beyond, the answer is invalid.
    body: int = BODY_LIMIT
    #: Whether the body of an answer other than 2xx is read too, where that says how long it is.
    errors: bool = False


#: What is read of a listener's answer.
USUAL = Reading()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there was no answer that could be used."""

    result: DeliveryResult
    detail: str
    #: The status of the answer, where that much of it had come.
    status: int | None = None
    #: Whether the head of the answer had come, whole and valid.
    in_body: bool = False
    #: What is wrong with the destination, where that is why.
    hold: HoldCause | None = None
    #: See ``DeliveryOutcome.gave_way``.
    gave_way: bool = False


class Exchange(Protocol):
    """Whoever sent a request. Exactly one of the two is called, once, on the event loop, and never
    from within ``send``."""

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        """There is an answer.

        The body is read for a 2xx alone, unless ``Reading`` says otherwise; any other status is
        told as soon as the head is there, since OpenPegasus ends error answers neither by length
        nor by closing.
        """

    def failed(self, failure: Failure) -> None:
        """There is none."""


class Sender(Protocol):
    """What a handler asks of :class:`pillion_sidecar.handlers.http.sender.HTTPSender`; tests stand
    in others."""

    def send(self, request: bytes, exchange: Exchange) -> None:
        """Begin to send a request, head and body, and return at once."""

    def renew(self) -> None:
        """Close the connections that are idle: whoever is sent to next shows who he is again."""

    def close(self) -> None:
        """Close all connections; exchanges under way hear nothing more."""


def field(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header field; ``name`` is in lower case. None without one."""
    for candidate, value in headers:
        if candidate.lower() == name:
            return value
    return None
