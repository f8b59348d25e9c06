"""The part of BER (X.690) that SNMP messages need (RFC 3417, section 8).

A library for all of ASN.1 costs 8 MiB of memory and half a millisecond for each notification.
"""

from pillion_sidecar.handlers.errors import HandlerError

INTEGER, OCTET_STRING, OBJECT_IDENTIFIER, SEQUENCE = 0x02, 0x04, 0x06, 0x30
TIME_TICKS, COUNTER64 = 0x43, 0x46
_SHORT = 0x80
#: Bytes of a length: no datagram needs more.
_LONGEST_LENGTH = 3
_MOST_INTEGER_BYTES = 9


class BERError(HandlerError):
    """Bytes are not what they should be."""


def encode(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < _SHORT:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, _SHORT | len(length))) + length + content


def sequence(*parts: bytes) -> bytes:
    return encode(SEQUENCE, b"".join(parts))


def integer(value: int, *, tag: int = INTEGER) -> bytes:
    return encode(tag, value.to_bytes(value.bit_length() // 8 + 1, signed=True))


def octets(value: bytes) -> bytes:
    return encode(OCTET_STRING, value)


def object_identifier(dotted: str) -> bytes:
    """``dotted`` begins with 1.3."""
    first, second, *arcs = map(int, dotted.split("."))
    content = bytearray((first * 40 + second,))
    for arc in arcs:
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(_SHORT | arc & 0x7F)
        content += bytes(reversed(groups))
    return encode(OBJECT_IDENTIFIER, bytes(content))


class Reader:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        #: Where the next value begins.
        self.position = 0

    @property
    def tag(self) -> int:
        """The tag of the next value. Raises BERError at the end."""
        if self.position >= len(self._data):
            raise BERError("it ends too early")
        return self._data[self.position]

    @property
    def rest(self) -> int:
        """Bytes that are not read yet."""
        return len(self._data) - self.position

    def read(self, tag: int) -> bytes:
        """Return the content of the next value, which must have ``tag``. Raises BERError."""
        if self.tag != tag:
            raise BERError(f"it has the tag {self.tag:#04x} instead of {tag:#04x}")
        size, begin = self._size(self.position + 1)
        self.position = begin + size
        if self.position > len(self._data):
            raise BERError("it ends too early")
        return self._data[begin : self.position]

    def integer(self) -> int:
        """Raises BERError."""
        content = self.read(INTEGER)
        if not 1 <= len(content) <= _MOST_INTEGER_BYTES:
            raise BERError(f"it has an integer of {len(content)} bytes")
        return int.from_bytes(content, signed=True)

    def _size(self, at: int) -> tuple[int, int]:
        """The size of a content, and where it begins."""
        head = self._data[at : at + 1]
        if not head:
            raise BERError("it ends too early")
        if head[0] < _SHORT:
            return head[0], at + 1
        count = head[0] & ~_SHORT
        length = self._data[at + 1 : at + 1 + count]
        if not 1 <= count <= _LONGEST_LENGTH or len(length) != count:
            raise BERError("it has an invalid length")
        return int.from_bytes(length), at + 1 + count
