"""The messages of the plug-in protocol: JSON-RPC 2.0, one message a line (docs/plugins.md)."""

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from pillion_sidecar.config.problems import one_line
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.errors import HandlerError
from pillion_sidecar.handlers.http.answers import RETRY_AFTER_LIMIT
from pillion_sidecar.trace_context import PARENT, STATE

VERSION = 1
#: Maximum bytes of a line to a plug-in, with the newline.
MESSAGE_LIMIT = 4 << 20
#: Maximum bytes of a line from a plug-in, without the newline.
ANSWER_LIMIT = 64 << 10
#: Maximum number of commands that a plug-in may have at once (S2.5).
MOST_IN_FLIGHT = 5
#: Characters of a plug-in's text in an outcome.
DETAIL_LIMIT = 200
METHOD_NOT_FOUND = -32601
#: Of a plug-in's request. Its answers may wait for a plug-in that does not read.
MOST_ID_CHARACTERS = 256
#: The usual cause of an answer that does not come.
FLUSHES_HINT = "Does it flush each line that it writes?"
#: The usual cause of a line that is not JSON.
PRINTS_HINT = "Does it print text among its answers? That belongs on standard error."
_RESULTS = {
    "success": DeliveryResult.SUCCESS,
    "error": DeliveryResult.ERROR,
    "fatal": DeliveryResult.FATAL_ERROR,
}
#: The name of the kept body with the properties that a filter lists.
_LISTED = "Plugin"
_encode = msgspec.json.encode
decode = msgspec.json.Decoder().decode


class MessageError(HandlerError):
    """A line is no message of the protocol."""


@dataclass(frozen=True, slots=True)
class Answer:
    #: None where the plug-in could not read the request.
    id: int | str | float | None
    result: Any = None
    #: The text of a JSON-RPC error.
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    id: Any
    method: str


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: Any


Message: TypeAlias = Answer | Request | Notification


# ---------------------------------------------------------------------- to the plug-in


def request(number: int, method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}\n' % (
        number,
        method.encode("ascii"),
        params,
    )


SHUTDOWN = b'{"jsonrpc":"2.0","method":"shutdown"}\n'


def _id_of(message: dict[str, Any]) -> Any:
    """Raises MessageError for an id that would make the answers to a plug-in that does not read
    them large."""
    found = message["id"]
    if isinstance(found, (dict, list)) or len(str(found)) > MOST_ID_CHARACTERS:
        raise MessageError(f"it sent a request with an id of over {MOST_ID_CHARACTERS} characters")
    return found


def not_found(message: Request) -> bytes:
    error = {"code": METHOD_NOT_FOUND, "message": "a plug-in may not send requests"}
    return _encode({"jsonrpc": "2.0", "id": message.id, "error": error}) + b"\n"


def initialize_params(*, destination: str, url: str, service: str, timeout: float) -> bytes:
    return _encode(
        {
            "protocolVersions": [VERSION],
            "destination": destination,
            "url": url,
            "service": service,
            "timeout": timeout,
        }
    )


def deliver_params(delivery: Delivery, *, timeout: float) -> bytes:
    """Raises ValueError for a text that is not UTF-8, or a body that is no instance."""
    indication, body = delivery.indication, delivery.indication.body
    if delivery.selection is not None:
        body = indication.form(_LISTED, delivery.selection, bytes)
    given: dict[str, object] = {
        "timeout": timeout,
        "attempt": delivery.attempt,
        "filterName": delivery.filter_name,
        "identifier": indication.identifier,
        "correlated": delivery.correlated,
        "languages": indication.languages,
    }
    if indication.trace is not None:
        given[PARENT], given[STATE] = indication.trace.parent, indication.trace.state
    if delivery.sequence_context is not None:
        given["sequenceContext"] = delivery.sequence_context
        given["sequenceNumber"] = delivery.sequence_number
    # The instance is JSON in one line already.
    return b'{"indication":%b,%b' % (body, _encode(given)[1:])


# ---------------------------------------------------------------------- from the plug-in


def read(line: bytes) -> Message:
    """Raises MessageError."""
    try:
        message = decode(line)
    except (ValueError, RecursionError) as error:
        fault, hint = _fault(line, error)
        raise MessageError(f"it sent a line {fault}: {_shown(line)}{hint}") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise MessageError(f"it sent a line that is not JSON-RPC 2.0: {_shown(line)}")
    method = message.get("method")
    if isinstance(method, str):
        if "id" in message:
            return Request(_id_of(message), method)
        return Notification(method, message.get("params"))
    number = message.get("id")
    is_answer = ("result" in message) != ("error" in message) and "id" in message
    if not is_answer or isinstance(number, (bool, dict, list)):
        raise MessageError(f"it sent a line that is no message of JSON-RPC 2.0: {_shown(line)}")
    if "error" in message:
        return Answer(number, error=_error_text(message["error"]))
    return Answer(number, message["result"])


def _fault(line: bytes, error: Exception) -> tuple[str, str]:
    """Why a line cannot be decoded, and a hint. msgspec says that a lone surrogate is malformed
    JSON, which only Unicode forbids."""
    if isinstance(error, msgspec.ValidationError):
        return "with a number that is out of range", ""
    try:
        json.dumps(json.loads(line.decode()), ensure_ascii=False).encode()
    except UnicodeError:
        return "with text that is not valid Unicode", ""
    except (ValueError, RecursionError):
        pass
    return "that is not JSON", f". {PRINTS_HINT}"


def in_flight(answer: Answer) -> int:
    """Read the answer to ``initialize``; return how many commands the plug-in has at once. Raises
    MessageError."""
    if answer.error is not None:
        raise MessageError(f"it refused initialize: {answer.error}")
    result = answer.result
    if not isinstance(result, dict):
        raise MessageError("its answer to initialize is not an object")
    version = result.get("protocolVersion")
    if version != VERSION or isinstance(version, bool):
        raise MessageError(
            f"its answer to initialize has the protocolVersion {shown(version)}, and this"
            f" deliverer offered {VERSION}"
        )
    count = result.get("inFlight", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_IN_FLIGHT:
        raise MessageError(
            f"its answer to initialize has inFlight {shown(count)}, and not 1 to {MOST_IN_FLIGHT}"
        )
    return count


def outcome_of(answer: Answer) -> DeliveryOutcome:
    """The outcome of an answer to ``deliver``."""
    if answer.error is not None:
        return DeliveryOutcome(DeliveryResult.ERROR, answer.error)
    try:
        return _outcome(answer.result)
    except MessageError as error:
        return DeliveryOutcome(DeliveryResult.ERROR, f"the plug-in's answer is invalid: {error}")


def _outcome(result: Any) -> DeliveryOutcome:
    if not isinstance(result, dict):
        raise MessageError("its result is not an object")
    outcome = result.get("outcome")
    if not isinstance(outcome, str) or outcome not in _RESULTS:
        raise MessageError(f"outcome is {shown(outcome)}, and not success, error or fatal")
    detail = result.get("detail", "")
    if not isinstance(detail, str):
        raise MessageError(f"detail is {shown(detail)}, and not a text")
    refuses = result.get("refusesIndication", False)
    if not isinstance(refuses, bool):
        raise MessageError(f"refusesIndication is {shown(refuses)}, and not true or false")
    found = _RESULTS[outcome]
    return DeliveryOutcome(
        found,
        one_line(detail, DETAIL_LIMIT),
        retry_after=_retry_after(result.get("retryAfter")),
        refuses_indication=refuses and found is DeliveryResult.ERROR,
    )


def _retry_after(value: Any) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # An integer may be too large for a float, so it is compared before it is converted.
    if not is_number or not value >= 0:
        raise MessageError(f"retryAfter is {shown(value)}, and not a number of seconds from 0")
    return float(min(value, RETRY_AFTER_LIMIT))


def _error_text(error: Any) -> str:
    code: object = None
    text: object = None
    if isinstance(error, dict):
        code, text = error.get("code"), error.get("message")
    if not isinstance(code, int) or not isinstance(text, str):
        return f"a JSON-RPC error without code and message: {shown(error)}"
    return one_line(f"JSON-RPC error {code}: {text}", DETAIL_LIMIT)


def shown(value: Any) -> str:
    """The beginning of its JSON."""
    return _shown(_encode(value))


def _shown(line: bytes) -> str:
    return one_line(line[:DETAIL_LIMIT].decode("utf-8", "replace"), DETAIL_LIMIT // 2)
