"""Connections to HTTP servers of aiohttp, and what comes through them that is no HTTP: nothing of
it stays, and the log does not quote it."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError

#: What aiohttp's parser says of a request line whose method it does not know.
_OTHER_METHOD = re.compile(r"b'[A-Za-z][A-Za-z-]* \S+ HTTP/1\.[01]")


class Connection(asyncio.BaseProtocol):
    """The protocol between a transport and the handler of its requests, which receives the data
    directly."""

    __slots__ = ("__weakref__", "data_received", "eof_received", "handler", "waiting")

    #: Cancelled once the connection is lost: one request is served at a time.
    waiting: asyncio.Task[Any] | None

    data_received: Callable[[bytes], None]
    eof_received: Callable[[], bool | None]
    handler: asyncio.Protocol

    def lead_to(self, handler: asyncio.Protocol) -> None:
        """Have this one handle the requests; before anything is received."""
        self.handler = handler
        self.waiting = None
        self.data_received = handler.data_received
        self.eof_received = handler.eof_received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio``."""
        self.handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio``."""
        self.handler.connection_lost(exc)
        _forget_unread(self.handler)
        if self.waiting is not None:
            self.waiting.cancel()

    def pause_writing(self) -> None:
        """See ``asyncio``."""
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """See ``asyncio``."""
        self.handler.resume_writing()


def connections(handlers: Callable[[], asyncio.Protocol]) -> Callable[[], Connection]:
    """What makes a connection for each handler, as ``create_server`` asks for it."""

    def connection() -> Connection:
        made = Connection()
        made.lead_to(handlers())
        return made

    return connection


def handlers(server: web.Server) -> Callable[[], web.RequestHandler]:
    """What makes the handler of a connection's requests."""
    loop = asyncio.get_running_loop()
    return lambda: _Handler(server, loop=loop, **server._kwargs)


class _Handler(web.RequestHandler):
    """Answers 501 to a method that the parser does not know, such as M-POST.

    An exporter that begins with M-POST goes on with POST after 501 or 510 alone (RFC
    2774 5.1).
    """

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """See ``RequestHandler``."""
        if isinstance(exc, BadHttpMethod) and _OTHER_METHOD.search(exc.message):
            status, message = 501, "this method is not implemented; use POST\n"
        return super().handle_error(request, status, exc, message)


@contextmanager
def ended_with_client(request: web.BaseRequest) -> Iterator[None]:
    """Cancel what is inside once the client of a request is gone: nobody is left to answer.

    For waits alone. aiohttp's ``handler_cancellation`` would end a handler anywhere, also between
    accepting a line and noting who follows it.
    """
    task = asyncio.current_task()
    assert task is not None
    if request.transport is None:
        task.cancel()
    protocol = None if request.transport is None else request.transport.get_protocol()
    if not isinstance(protocol, Connection):
        yield
        return
    protocol.waiting = task
    try:
        yield
    finally:
        protocol.waiting = None


class HTTPLog(logging.LoggerAdapter[logging.Logger]):
    """What is logged of requests that are no HTTP: that there was one.

    What exactly is wrong quotes the request, and that may be a header with a token.
    """

    def log(self, level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
        """See ``LoggerAdapter``. Asked whether or not anything is logged at a level."""
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError):
            _forget_frames(error)
        super().log(level, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """See ``LoggerAdapter``."""
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError):
            kwargs = {**kwargs, "exc_info": None}
            msg = f"{msg}: no HTTP that is taken here ({type(error).__name__})"
        return msg, kwargs


def _forget_unread(handler: asyncio.Protocol) -> None:
    """What came behind a request that was never finished waits in aiohttp's queue for ever, an
    error among it too: nobody logs it."""
    unread = getattr(handler, "_messages", None)
    for message, _ in unread or ():
        _forget_frames(getattr(message, "exc", None))
    if unread is not None:
        unread.clear()


def _forget_frames(error: BaseException | None) -> None:
    """aiohttp keeps an error in the frames that it came through, which it refers to: a megabyte of
    what was received would stay with each, until the garbage collector looks at everything."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
