"""Connections to aiohttp's servers. Input that is not HTTP neither stays in memory nor appears in
the log."""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError

#: aiohttp's error for a request line with an unknown method.
_OTHER_METHOD = re.compile(r"b'[A-Za-z][A-Za-z-]* \S+ HTTP/1\.[01]")


class Connection(asyncio.BaseProtocol):
    """The protocol between a transport and its request handler, which receives the data
    directly."""

    __slots__ = (
        "__weakref__", "_create_handler", "data_received", "eof_received", "handler", "waiting",
    )  # fmt: skip

    data_received: Callable[[bytes], None]
    eof_received: Callable[[], bool | None]
    handler: asyncio.Protocol

    def __init__(self, create_handler: Callable[[], asyncio.Protocol]) -> None:
        self._create_handler = create_handler
        #: Cancelled once the connection is lost: one request is served at a time.
        self.waiting: asyncio.Task[Any] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        handler = self.handler = self._create_handler()
        self.data_received = handler.data_received
        self.eof_received = handler.eof_received
        handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.handler.connection_lost(exc)
        unread = getattr(self.handler, "_messages", None)
        if unread:
            _forget_unread(unread)
        if self.waiting is not None:
            self.waiting.cancel()

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()


def handlers(server: web.Server) -> Callable[[], web.RequestHandler]:
    return partial(_Handler, server, loop=asyncio.get_running_loop(), **server._kwargs)


class _Handler(web.RequestHandler):
    """Answers 501 to methods unknown to the parser, such as M-POST: an exporter falls back to POST
    after 501 or 510 only (RFC 2774 5.1)."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, BadHttpMethod) and _OTHER_METHOD.search(exc.message):
            status, message = 501, "this method is not implemented; use POST\n"
        return super().handle_error(request, status, exc, message)


@contextmanager
def ended_with_client(request: web.BaseRequest) -> Iterator[None]:
    """Cancel the current task, inside the context, when the client disconnects.

    For waits only: aiohttp's ``handler_cancellation`` could end a handler between accepting a line
    and noting its tracker.
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
    """Logs only the fact of a request that is not HTTP: the error's text quotes it, perhaps with a
    token."""

    def log(self, level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError):
            _forget_frames(error)
        super().log(level, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError):
            kwargs = {**kwargs, "exc_info": None}
            msg = f"{msg}: not HTTP that is accepted here ({type(error).__name__})"
        return msg, kwargs


def _forget_unread(unread: deque[Any]) -> None:
    """Clear aiohttp's queue of data and errors behind an unfinished request; nothing else does."""
    for message, _ in unread:
        _forget_frames(getattr(message, "exc", None))
    unread.clear()


def _forget_frames(error: BaseException | None) -> None:
    """Drop the frames of an error, which refer to it and to up to a megabyte of input until a full
    garbage collection."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
