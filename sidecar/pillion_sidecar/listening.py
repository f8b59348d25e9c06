"""The addresses that a deliverer listens at."""

import asyncio
import logging
import ssl
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pillion_sidecar.settings import Address

#: Seconds that a publisher's connection is kept without a request.
KEEPALIVE_SECONDS = 75.0
#: Seconds that answers under way are given once delivery has stopped.
ANSWER_SECONDS = 2.0
#: Seconds that a TLS handshake may take, and the goodbye at the end.
HANDSHAKE_SECONDS = 10.0
GOODBYE_SECONDS = 2.0
#: Connections that wait to be taken up.
BACKLOG = 128

logger = logging.getLogger("pillion.http")


class AddressTaken(Exception):
    """Nobody can listen there; the text says where and why."""


class HTTPLog(logging.LoggerAdapter[logging.Logger]):
    """What is logged of requests that are no HTTP: that there was one.

    What exactly is wrong quotes the request, and that may be a header with a token.
    """

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """See ``LoggerAdapter``."""
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError):
            kwargs = {**kwargs, "exc_info": None}
            msg = f"{msg}: no HTTP that is taken here ({type(error).__name__})"
        return msg, kwargs


class Listeners:
    """Serves applications until it is closed."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []
        self._servers: list[asyncio.Server] = []

    async def serve(
        self, app: web.Application, address: Address, *, tls: ssl.SSLContext | None = None
    ) -> str:
        """Listen, over TLS where there is a context; return the URL. Raises AddressTaken."""
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=HTTPLog(logger, {}),
            keepalive_timeout=KEEPALIVE_SECONDS,
            auto_decompress=False,
            shutdown_timeout=ANSWER_SECONDS,
        )
        self._runners.append(runner)
        await runner.setup()
        assert runner.server is not None
        try:
            # aiohttp's own way to listen leaves the bounds of a handshake as they are.
            server = await asyncio.get_running_loop().create_server(
                runner.server,
                address.host,
                address.port,
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=None if tls is None else GOODBYE_SECONDS,
            )
        except OSError as error:
            reason = error.strerror or error
            raise AddressTaken(f"cannot listen on {address}: {reason}") from error
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return f"{'http' if tls is None else 'https'}://{Address(host, port)}"

    async def close(self) -> None:
        """Answer what is under way, and listen no more."""
        for server in self._servers:
            server.close()
        for runner in self._runners:
            await runner.cleanup()
