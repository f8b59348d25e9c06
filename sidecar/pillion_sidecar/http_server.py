"""The addresses that a deliverer listens at."""

import asyncio
import errno
import logging
import socket
from contextlib import ExitStack

from aiohttp import web

from pillion_sidecar.auth.acceptor import ConnectionAcceptor, Limits
from pillion_sidecar.clock import LoopTimers, SystemClock
from pillion_sidecar.connections import HTTPLog, handlers
from pillion_sidecar.settings import Address
from pillion_sidecar.telemetry.gateway import ListenerConnections

#: Seconds that a publisher's connection is kept without a request.
KEEPALIVE_SECONDS = 75.0
#: Seconds that answers under way are given once delivery has stopped.
ANSWER_SECONDS = 2.0
#: Seconds for the rest of a request that was answered before its end.
LINGERING_SECONDS = 5.0
#: Headers of a request, of 8,190 bytes at most: they are held before anything says who sends them.
MAXIMUM_HEADERS = 48
#: Connections of a listener, unless its entrance says otherwise.
CONNECTIONS = 256
#: Connections that wait to be taken up.
BACKLOG = 128

logger = logging.getLogger("pillion.http")


class AddressTaken(Exception):
    """Nobody can listen there; the text says where and why."""


class Listeners:
    """Serves applications until it is closed."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []
        self._entrances: list[ConnectionAcceptor] = []

    async def serve(
        self,
        app: web.Application,
        address: Address,
        *,
        option: str | None = None,
        entrance: ConnectionAcceptor | None = None,
    ) -> str:
        """Listen; return the URL. ``option`` of the command line says where to listen. Connections
        are taken up by the entrance, by default a plain one of a few hundred connections.

        Raises AddressTaken.
        """
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=HTTPLog(logger, {}),
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGERING_SECONDS,
            auto_decompress=False,
            shutdown_timeout=ANSWER_SECONDS,
            max_headers=MAXIMUM_HEADERS,
        )
        entrance = entrance or _plain_entrance()
        self._runners.append(runner)
        await runner.setup()
        assert runner.server is not None
        try:
            sockets = await _bind(address)
            entrance.open(sockets, handlers(runner.server))
            self._entrances.append(entrance)
            name = sockets[0].getsockname()
        except OSError as error:
            reason = error.strerror or error
            remedy = "" if option is None else f"; choose another address by {option}"
            raise AddressTaken(f"cannot listen on {address}: {reason}{remedy}") from error
        host, port = name[:2]
        return f"{'http' if entrance.tls is None else 'https'}://{Address(host, port)}"

    async def close(self) -> None:
        """Answer what is under way, and listen no more."""
        # Before what serves its connections: from here on it gives none of them up.
        for entrance in self._entrances:
            await entrance.close()
        for runner in self._runners:
            await runner.cleanup()


def _plain_entrance() -> ConnectionAcceptor:
    return ConnectionAcceptor(
        clock=SystemClock(),
        timers=LoopTimers(loop=asyncio.get_running_loop()),
        observer=ListenerConnections(),
        tls=None,
        asks_for_tokens=False,
        limits=Limits.of_plain(CONNECTIONS),
    )


async def _bind(address: Address) -> list[socket.socket]:
    """Return sockets that listen at all that an address stands for. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # A file of hosts may name one twice, and one of a family that this system does not have.
    places = {(family, where[:2]): None for family, _, _, _, where in found}
    sockets: list[socket.socket] = []
    unknown: OSError | None = None
    with ExitStack() as bound:
        for family, where in places:
            try:
                one = socket.create_server(where, family=family, backlog=BACKLOG)
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                unknown = error
            else:
                sockets.append(bound.enter_context(one))
        if unknown is not None and not sockets:
            raise unknown
        bound.pop_all()
    return sockets
