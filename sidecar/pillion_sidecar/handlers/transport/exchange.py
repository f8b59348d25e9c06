"""One request and its answer: what senders, wires and handlers share."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from urllib.parse import unquote

from pillion_sidecar.config.problems import one_line
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
    HoldCause,
)

#: As received: names in any case, values stripped.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
#: Maximum bytes of an answer's head; beyond, the connection is closed.
HEAD_LIMIT = 16 * 1024
_DETAIL_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there was no usable answer."""

    result: DeliveryResult
    detail: str
    #: The answer's status, if received.
    status: int | None = None
    #: The head of the answer was complete and valid.
    in_body: bool = False
    #: The fault of the destination, if that is the cause.
    hold: HoldCause | None = None
    #: See ``DeliveryOutcome.preempted``.
    preempted: bool = False
    cause: FailureCause = FailureCause.RESET


class Exchange(Protocol):
    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        """Called with the answer. The body is read for a 2xx only, unless ``Reading`` says
        otherwise: OpenPegasus ends error answers neither by length nor by closing."""

    def failed(self, failure: Failure) -> None: ...


class Sender(Protocol):
    """Test doubles implement it too; see
    :class:`pillion_sidecar.handlers.transport.sender.PooledSender`."""

    def send(self, request: bytes, exchange: Exchange, spent: float = 0.0) -> None:
        """``spent``: seconds of the attempt's time that have passed before."""

    def renew(self) -> None:
        """Close idle connections, so that the next request authenticates the peer again."""

    def close(self) -> None:
        """Close all connections; exchanges under way hear nothing more."""


def failure_outcome(failure: Failure) -> DeliveryOutcome:
    return DeliveryOutcome(
        failure.result,
        failure.detail,
        failure.status,
        spends_attempt=not failure.preempted,
        preempted=failure.preempted,
        hold=failure.hold,
        cause=failure.cause,
    )


def shown(value: bytes) -> str:
    """The beginning of a listener's text, on one line."""
    text = unquote(value[: 2 * _DETAIL_LIMIT].decode("utf-8", "replace"))
    return one_line(text, _DETAIL_LIMIT)


def later(
    done: Callable[[DeliveryOutcome], None],
    result: DeliveryResult,
    detail: str,
    *,
    hold: HoldCause | None = None,
    cause: FailureCause | None = None,
) -> None:
    """Report an outcome from the event loop, not within ``deliver``: the caller is in the middle of
    its own turn."""
    outcome = DeliveryOutcome(result, detail, hold=hold, cause=cause)
    asyncio.get_running_loop().call_soon(done, outcome)
