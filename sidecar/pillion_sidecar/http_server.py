"""The HTTP listeners of a deliverer."""

import asyncio
import errno
import logging
import socket
from contextlib import ExitStack

from aiohttp import web

from pillion_sidecar.auth.acceptor import ConnectionAcceptor
from pillion_sidecar.clock import LoopTimers, SystemClock
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.connections import HTTPLog, handlers
from pillion_sidecar.telemetry.gateway import ListenerConnections

#: Seconds until an idle connection is closed.
KEEPALIVE_SECONDS = 75.0
#: Seconds for answers under way at shutdown.
ANSWER_SECONDS = 2.0
#: Seconds for the rest of a request that was answered early.
LINGERING_SECONDS = 5.0
#: Headers of a request, of 8,190 bytes at most, held before authentication.
MAXIMUM_HEADERS = 48
CONNECTIONS = 256
BACKLOG = 128

logger = logging.getLogger("pillion.http")


class AddressTaken(Exception):
    """An address cannot be listened on; the text has the address and the reason."""


class Listeners:
    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []
        self._acceptors: list[ConnectionAcceptor] = []

    async def serve(
        self,
        app: web.Application,
        address: Address,
        *,
        option: str | None = None,
        acceptor: ConnectionAcceptor | None = None,
    ) -> str:
        """Listen; return the URL. Raises AddressTaken.

        ``option`` is the command-line option of the address. Default acceptor: a plain one of
        ``CONNECTIONS``.
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
        acceptor = acceptor or _plain_acceptor()
        self._runners.append(runner)
        await runner.setup()
        assert runner.server is not None
        try:
            sockets = await _bind(address)
            acceptor.open(sockets, handlers(runner.server))
            self._acceptors.append(acceptor)
            name = sockets[0].getsockname()
        except OSError as error:
            reason = error.strerror or error
            remedy = "" if option is None else f"; choose another address by {option}"
            raise AddressTaken(f"cannot listen on {address}: {reason}{remedy}") from error
        host, port = name[:2]
        return f"{'http' if acceptor.tls is None else 'https'}://{Address(host, port)}"

    async def close(self) -> None:
        # Before the runners: no connection is evicted any more.
        for acceptor in self._acceptors:
            await acceptor.close()
        for runner in self._runners:
            await runner.cleanup()


def tell_listening(intake: str, telemetry: str) -> None:
    """Log the URLs of a deliverer that has started."""
    logger.info(
        "intake at %s, telemetry at %s",
        intake,
        telemetry,
        extra={"event": "deliverer-started", "intake": intake, "telemetry": telemetry},
    )


def _plain_acceptor() -> ConnectionAcceptor:
    return ConnectionAcceptor.plain(
        "intake",
        CONNECTIONS,
        clock=SystemClock(),
        timers=LoopTimers(loop=asyncio.get_running_loop()),
        observer=ListenerConnections(),
    )


async def _bind(address: Address) -> list[socket.socket]:
    """Return listening sockets for each address of a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # A hosts file may repeat an address, or name one of an unsupported family.
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
