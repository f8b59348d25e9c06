"""PDUs (RFC 3416), and messages of v2c (RFC 1901)."""

from dataclasses import dataclass
from typing import Protocol

from pillion_sidecar.handlers.snmp.ber import (
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    BERError,
    Reader,
    encode,
    integer,
    octets,
    sequence,
)

GET, RESPONSE, INFORM, TRAP, REPORT = 0xA0, 0xA2, 0xA6, 0xA7, 0xA8
#: Bytes around the values of a notification, with the longest lengths and numbers.
PDU_BYTES = 20
_V2C = 1
_V2C_BYTES = 12
#: RFC 3416, section 3.
ERROR_STATUSES = (
    "noError",
    "tooBig",
    "noSuchName",
    "badValue",
    "readOnly",
    "genErr",
    "noAccess",
    "wrongType",
    "wrongLength",
    "wrongEncoding",
    "wrongValue",
    "noCreation",
    "inconsistentValue",
    "resourceUnavailable",
    "commitFailed",
    "undoFailed",
    "authorizationError",
    "notWritable",
    "inconsistentName",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A PDU of the receiver: RESPONSE or REPORT."""

    tag: int
    number: int
    error_status: int
    #: The content of the first object identifier; empty: there is none.
    first: bytes
    #: The engine ID of a message of v3.
    engine: bytes = b""
    #: The message is signed by the key of its engine.
    is_authentic: bool = False


class Security(Protocol):
    """Makes a message of a PDU, and reads messages."""

    #: Maximum bytes of a message around its PDU.
    overhead: int

    @property
    def is_ready(self) -> bool:
        """False: the next message asks the receiver for what is needed to send a PDU."""

    def seal(self, pdu: bytes, number: int) -> bytes:
        """Return the message with ``pdu``, or another one if it is not ready. ``number`` is
        msgID, and the PDU's request-id."""

    def open(self, message: bytes, number: int) -> Answer:
        """Return the answer to the message with ``number``. Raises BERError for what is none."""

    def learn(self, report: Answer, *, of_question: bool) -> str | None:
        """Return why the receiver refused the message; None: it can be sent again, as something
        was learned. ``of_question``: the message asked only."""


def make_pdu(tag: int, number: int, bindings: bytes) -> bytes:
    return encode(tag, integer(number) + integer(0) + integer(0) + encode(SEQUENCE, bindings))


def read_pdu(reader: Reader) -> Answer:
    """Raises BERError."""
    tag = reader.tag
    if tag not in (RESPONSE, REPORT):
        raise BERError(f"it has the tag {tag:#04x}, which is no answer's")
    pdu = Reader(reader.read(tag))
    number, status, _index = pdu.integer(), pdu.integer(), pdu.integer()
    bindings = pdu.read(SEQUENCE)
    first = Reader(Reader(bindings).read(SEQUENCE)).read(OBJECT_IDENTIFIER) if bindings else b""
    return Answer(tag=tag, number=number, error_status=status, first=first)


class CommunitySecurity:
    """Version v2c: a community, readable by everybody on the way."""

    def __init__(self, community: str) -> None:
        self._community = community.encode()
        self.overhead = _V2C_BYTES + len(self._community)
        self.is_ready = True

    def seal(self, pdu: bytes, number: int) -> bytes:
        return sequence(integer(_V2C), octets(self._community), pdu)

    def open(self, message: bytes, number: int) -> Answer:
        reader = Reader(Reader(message).read(SEQUENCE))
        if reader.integer() != _V2C:
            raise BERError("it has another version than v2c")
        if reader.read(OCTET_STRING) != self._community:
            raise BERError("it has another community")
        answer = read_pdu(reader)
        if answer.tag != RESPONSE or answer.number != number:
            raise BERError("it answers something else")
        return answer

    def learn(self, report: Answer, *, of_question: bool) -> str | None:
        return "a report, which v2c does not have"
