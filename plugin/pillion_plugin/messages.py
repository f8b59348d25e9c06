"""JSON-RPC 2.0, one message a line: parsed and encoded."""

import json
from dataclasses import dataclass
from typing import Any, NoReturn

PROTOCOL_VERSION = 1
#: Bytes of a line from the deliverer, without its end.
MESSAGE_LIMIT = 4 * 1024 * 1024
#: Characters of a detail. An answer has at most 64 KiB, and a character at most 12 bytes in JSON.
DETAIL_LIMIT = 1000
#: Characters of an id that is a string: it is repeated in the answer.
ID_LIMIT = 256

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

MessageId = str | int | None


class MessageError(Exception):
    """A line is no request and no notification. ``code`` and ``id`` are those of the answer."""

    def __init__(self, message: str, *, code: int, id: MessageId = None) -> None:
        super().__init__(message)
        self.code = code
        self.id = id


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    #: None for a notification.
    id: str | int | None
    params: dict[str, Any]


def parse(line: bytes) -> Request | None:
    """Return None for an answer: a plug-in asks nothing. Raises MessageError."""
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise MessageError("the line is not JSON in UTF-8", code=PARSE_ERROR) from None
    if not isinstance(message, dict):
        raise MessageError("not an object; batches are not supported", code=INVALID_REQUEST)
    id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if not _is_id(id):
        raise MessageError(
            f"id: not a whole number or a string of at most {ID_LIMIT} characters",
            code=INVALID_REQUEST,
        )
    if message.get("jsonrpc") != "2.0":
        raise MessageError('jsonrpc: not "2.0"', code=INVALID_REQUEST, id=id)
    if method is None and ("result" in message or "error" in message):
        return None
    if not isinstance(method, str):
        raise MessageError("method: not a string", code=INVALID_REQUEST, id=id)
    if not isinstance(params, dict):
        raise MessageError("params: not an object", code=INVALID_PARAMS, id=id)
    return Request(method, id, params)


def result(id: str | int, value: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "result": value})


def error(id: MessageId, code: int, message: str) -> bytes:
    shown = one_line(message)
    return _line({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": shown}})


def one_line(text: str) -> str:
    """The first characters; a space for each that is not printable."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:DETAIL_LIMIT])


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def _is_id(id: object) -> bool:
    if isinstance(id, str):
        return len(id) <= ID_LIMIT
    # The answer repeats it, so it is bounded.
    return id is None or (isinstance(id, int) and not isinstance(id, bool) and abs(id) < 10**18)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
