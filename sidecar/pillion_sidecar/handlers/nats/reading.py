"""What a NATS server says (docs.nats.io, "Client Protocol")."""

from collections.abc import Iterator
from typing import NamedTuple

from pillion_sidecar.handlers.broker.wire import BrokerError

#: Maximum bytes of a line, and of a message where only acknowledgements are subscribed to.
LINE_LIMIT = 64 * 1024
MESSAGE_LIMIT = 64 * 1024
_END = b"\r\n"


class Said(NamedTuple):
    #: In upper case: INFO, MSG, HMSG, PING, PONG, +OK or -ERR.
    verb: bytes
    #: The rest of the line.
    rest: bytes
    headers: bytes = b""
    payload: bytes = b""


class Reader:
    """Takes what is received apart."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, *, limit: int = MESSAGE_LIMIT) -> None:
        """``limit``: bytes of a message at most."""
        self._buffer = b""
        self._limit = limit

    def feed(self, data: bytes) -> Iterator[Said]:
        """Raises BrokerError."""
        self._buffer += data
        while (said := self._next()) is not None:
            yield said

    @property
    def has_more(self) -> bool:
        return bool(self._buffer)

    def _next(self) -> Said | None:
        buffer = self._buffer
        end = buffer.find(_END)
        if end > LINE_LIMIT or (end < 0 and len(buffer) > LINE_LIMIT):
            raise BrokerError(f"the server's line is longer than {LINE_LIMIT} bytes")
        if end < 0:
            return None
        verb, _, rest = buffer[:end].partition(b" ")
        verb = verb.upper()
        begin = end + len(_END)
        if verb not in (b"MSG", b"HMSG"):
            self._buffer = buffer[begin:]
            return Said(verb, rest)
        head, size = _sizes(verb, rest, self._limit)
        if len(buffer) < begin + size + len(_END):
            return None
        if buffer[begin + size : begin + size + len(_END)] != _END:
            raise BrokerError("the server's message does not end where it says")
        self._buffer = buffer[begin + size + len(_END) :]
        return Said(verb, rest, buffer[begin : begin + head], buffer[begin + head : begin + size])


def _sizes(verb: bytes, rest: bytes, limit: int) -> tuple[int, int]:
    """Bytes of the headers, and of headers and payload."""
    words = rest.split()
    sizes = words[-2:] if verb == b"HMSG" else [b"0", *words[-1:]]
    if len(words) < 3 or not all(word.isdigit() and len(word) < 10 for word in sizes):
        raise BrokerError("the server's message has no length")
    head, size = map(int, sizes)
    if head > size or size > limit:
        raise BrokerError(f"the server's message is longer than {limit} bytes")
    return head, size
