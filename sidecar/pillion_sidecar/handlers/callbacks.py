"""Posts receipts to publishers' callback URLs (S1.9), with the sender for indications."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.http.wire import http_wires
from pillion_sidecar.handlers.transport.connector import AddressCheck, NameResolver
from pillion_sidecar.handlers.transport.exchange import Failure, Headers, Sender
from pillion_sidecar.handlers.transport.outgoing import OutgoingConnections
from pillion_sidecar.handlers.transport.sender import SharedParts
from pillion_sidecar.handlers.transport.target import HTTPTarget, parse_target

#: Seconds of one call, and of an idle connection.
TIMEOUT_SECONDS = 10.0
IDLE_SECONDS = 5.0
#: Places with a kept sender, besides those with calls under way.
MAXIMUM_PLACES = 64


class HTTPCallbackPoster:
    """Posts to any URL that its callers have checked; one sender for each host and port."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        resolver: NameResolver,
        address_policy: AddressCheck,
        outgoing: OutgoingConnections | None = None,
    ) -> None:
        """``outgoing`` None: no limit of connections."""
        self._address_policy = address_policy
        self._tls = TLSOptions()
        self._parts = SharedParts(
            clock=clock,
            timers=timers,
            resolver=resolver,
            idle_seconds=IDLE_SECONDS,
            outgoing=outgoing or OutgoingConnections(),
        )
        self._places: OrderedDict[tuple[bool, str, int], _Place] = OrderedDict()

    @property
    def places(self) -> int:
        return len(self._places)

    def post(self, url: str, body: bytes, done: Callable[[str | None], None]) -> None:
        """See ``reliability.callbacks.CallbackPoster``. Redirects are not followed."""
        try:
            target = parse_target(url)
        except InvalidDestinationError as error:
            asyncio.get_running_loop().call_soon(done, str(error))
            return
        place = self._place(target)
        head = (
            f"POST {target.request_uri} HTTP/1.1\r\nHost: {target.authority}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        place.under_way += 1
        place.sender.send(head.encode("ascii") + body, _Call(place, done))

    def close(self) -> None:
        """Close all connections; calls under way are abandoned."""
        for place in self._places.values():
            place.sender.close()
        self._places.clear()

    def _place(self, target: HTTPTarget) -> "_Place":
        key = target.tls, target.host, target.port
        place = self._places.get(key)
        if place is None:
            self._make_room()
            place = self._places[key] = _Place(self._sender(target))
        self._places.move_to_end(key)
        return place

    def _make_room(self) -> None:
        # A closed sender never calls back, so only unused ones are closed.
        idle = [key for key, place in self._places.items() if not place.under_way]
        for key in idle[: max(0, len(idle) - MAXIMUM_PLACES + 1)]:
            self._places.pop(key).sender.close()

    def _sender(self, target: HTTPTarget) -> Sender:
        connector = self._parts.connector(
            target, address_policy=self._address_policy, tls=self._tls
        )
        return self._parts.sender(
            connector, new_wire=http_wires(self._parts.buffer), timeout=TIMEOUT_SECONDS
        )


@dataclass(slots=True, eq=False)
class _Place:
    sender: Sender
    under_way: int = 0


@dataclass(slots=True, eq=False)
class _Call:
    _place: _Place
    _done: Callable[[str | None], None]

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self._place.under_way -= 1
        self._done(None if 200 <= status < 300 else f"HTTP {status}")

    def failed(self, failure: Failure) -> None:
        self._place.under_way -= 1
        self._done(failure.detail)
