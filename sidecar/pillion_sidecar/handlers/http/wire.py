"""One connection: writes a request, parses the answer, and reports to its owner. It runs for each
delivery, so it uses plain attributes and flags, evaluated after the parser has returned."""

import asyncio
from functools import partial

import httptools

from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.errors import HandlerError
from pillion_sidecar.handlers.http.answers import ANSWER_BODIES, USUAL, Reading, field
from pillion_sidecar.handlers.transport.exchange import HEAD_LIMIT, Failure, Headers
from pillion_sidecar.handlers.transport.wire import (
    NewWire,
    RequestWire,
    WireOwner,
)

_REMEMBERED_BYTES = 1024
_MAJOR_VERSION, _ONE = len(b"HTTP/"), ord("1")


class _ExcessError(HandlerError):
    """Data after the answer. Raised in a callback to stop the parser."""


class _VersionError(HandlerError):
    """Another major version of HTTP, for which an answer of this form has no meaning (RFC 9112,
    2.3). Raised in a callback to stop the parser, which accepts 0.9 and 2.0."""


#: Of a wire that is not open.
_NO_PARSER = httptools.HttpResponseParser(object())


class HTTPWire(RequestWire, asyncio.BufferedProtocol):
    """One HTTP/1.1 connection, one request at a time. All wires of a loop may share ``buffer``,
    which is unused once ``buffer_updated`` returns."""

    __slots__ = (
        "_body", "_body_size", "_buffer", "_complete",
        "_head_done", "_headers", "_interim", "_is_version_1", "_keep", "_known",
        "_parser", "_reading", "_received", "_status",
    )  # fmt: skip

    def __init__(self, owner: WireOwner, *, buffer: memoryview, reading: Reading = USUAL) -> None:
        super().__init__(owner)
        self._reading = reading
        self._buffer = buffer
        self._parser = _NO_PARSER
        #: The last complete answer that kept the connection: bytes, status, headers, body. Most
        #: listeners repeat it, and equal bytes mean an equal answer.
        self._known: tuple[bytes, int, Headers, bytes] = (b"", 0, (), b"")
        self._reset()

    def _reset(self) -> None:
        """Forget the answer that was parsed; a repeated one is not."""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_size = 0
        self._received = 0
        self._status = 0
        self._head_done = False
        self._interim = False
        self._is_version_1 = False
        self._complete = False
        self._keep = False

    # Calls by the owner.

    def send(self, request: bytes) -> None:
        transport = self._transport
        assert transport is not None
        if self._received:
            self._reset()
        self._busy = True
        transport.write(request)
        if transport.is_closing():
            # The first write failed at once, and nothing was sent.
            self._flushed = False

    def conclude(self) -> None:
        self._answered(keep=False)

    # asyncio.BufferedProtocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._parser = httptools.HttpResponseParser(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # The two refer to each other, and only the collector would free them.
        self._parser = _NO_PARSER

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._busy:
            # An unsolicited answer, as a 408 before an idle close.
            self._lost(None)
            return
        known = self._known[0]
        if (
            nbytes == len(known)
            and not self._received
            and self._flushed
            and bytes(self._buffer[:nbytes]) == known
        ):
            # The known answer, complete, to a completely sent request.
            self._repeated()
            return
        # Enough for a head that is complete in the first piece, where the parser's version would
        # cost a tenth of the parse.
        self._is_version_1 = not self._received and self._buffer[_MAJOR_VERSION] == _ONE
        self._received += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserUpgrade:
            self._invalid("it switches protocols")
        except httptools.HttpParserError as error:
            self._unparsable(error)
        else:
            if self._complete and self._received == nbytes <= _REMEMBERED_BYTES:
                self._remember(nbytes)
            self._progress()

    def eof_received(self) -> None:
        if self._busy and self._head_done and not self._complete and not self._framed():
            self._answered(keep=False)
        else:
            super().eof_received()

    # Calls by the parser.

    def on_message_begin(self) -> None:
        if self._complete:
            raise _ExcessError

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if not self._is_version_1:
            version = self._parser.get_http_version()
            if version[0] != "1":
                raise _VersionError(f"it has the version HTTP/{version}")
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            return
        self._status = status
        self._head_done = True

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size <= self._reading.body:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._interim and not self._head_done:
            self._interim = self._is_version_1 = False
            self._headers.clear()
            return
        self._complete = True
        # The parser forgets it on return.
        self._keep = self._parser.should_keep_alive()

    def _remember(self, nbytes: int) -> None:
        if self._keep and 200 <= self._status < 300:
            raw, body = bytes(self._buffer[:nbytes]), b"".join(self._body)
            self._known = raw, self._status, self._headers, body

    def _repeated(self) -> None:
        owner = self._owner
        assert owner is not None
        self._busy = False
        _, status, headers, body = self._known
        owner.wire_answered(status, headers, body, keep=True)

    def _progress(self) -> None:
        if self._head_done:
            if self._received > HEAD_LIMIT and self._head_size() > HEAD_LIMIT:
                self._invalid(f"its head is longer than {HEAD_LIMIT} bytes")
            elif not self._is_read():
                self._answered(keep=False)
            elif self._body_size > self._reading.body:
                self._invalid(f"its body is longer than {self._reading.body} bytes")
            elif self._complete:
                self._answered(keep=self._keep and self._flushed)
            elif self._received > ANSWER_BODIES * self._reading.body:
                self._invalid(f"it is longer than {ANSWER_BODIES * self._reading.body} bytes")
            elif self._reading.body_seconds is not None and self._owner is not None:
                self._owner.wire_awaits_body(self._reading.body_seconds)
        elif self._received > HEAD_LIMIT:
            self._invalid(f"its head is longer than {HEAD_LIMIT} bytes")

    def _is_read(self) -> bool:
        return 200 <= self._status < 300 or (self._reading.errors and self._framed())

    def _framed(self) -> bool:
        """Whether the answer states its length, and so does not end with the connection."""
        coding = field(self._headers, b"transfer-encoding")
        if coding is not None:
            return b"chunked" in coding.lower()
        return field(self._headers, b"content-length") is not None

    def _head_size(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _unparsable(self, error: httptools.HttpParserError) -> None:
        if self._head_done and (self._complete or not 200 <= self._status < 300):
            # Data after the answer, and the body of an error answer, are ignored.
            self._answered(keep=False)
            return
        cause = error.__context__ if isinstance(error.__context__, _VersionError) else error
        self._invalid(str(cause) if self._known_status() else f"it is not HTTP ({cause})")

    def _known_status(self) -> int | None:
        """The status, once received, unless it is interim."""
        if self._received <= len(b"HTTP/1.1 200"):
            return None
        status = self._parser.get_status_code()
        return status if 200 <= status <= 599 else None

    def _invalid(self, reason: str) -> None:
        status = self._known_status()
        what = f"HTTP {status}, but the answer is invalid" if status else "the answer is invalid"
        failure = Failure(DeliveryResult.ERROR, f"{what}: {reason}", status, self._head_done)
        self._lost(failure)

    def _ended(self, reason: str, *, untaken: bool) -> None:
        super()._ended(reason, untaken=untaken and not self._received)

    def _failure(self, reason: str, *, untaken: bool) -> Failure:
        if untaken and not self._received:
            return Failure(DeliveryResult.ERROR, f"{reason} before it had the request")
        status = self._known_status()
        where = "in the middle of the answer" if self._received else "without an answer"
        detail = f"HTTP {status}, but {reason} {where}" if status else f"{reason} {where}"
        return Failure(DeliveryResult.POST_DELIVERY_ERROR, detail, status, self._head_done)

    def _answered(self, *, keep: bool) -> None:
        owner = self._owner
        assert owner is not None
        self._busy = False
        headers, body = self._headers, b"".join(self._body)
        if not keep:
            self.close()
        owner.wire_answered(self._status, headers, body, keep=keep)


def http_wires(buffer: memoryview, reading: Reading = USUAL) -> NewWire:
    """Return what makes wires of HTTP/1.1 that receive into ``buffer``."""
    return partial(HTTPWire, buffer=buffer, reading=reading)
