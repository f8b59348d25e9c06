"""Checking the responses of one listener, which nearly always differ in the message's ID alone."""

from collections.abc import Mapping
from typing import Final

from pillion_cim.cimxml.parser import declared_encoding
from pillion_cim.cimxml.response import check_response_body, check_response_head

_MAX_KEPT: Final = 4096
_MAX_IDENTIFIER: Final = 200


class ResponseChecker:
    """As :func:`check_export_response`, for the responses of one listener; does not raise, and does
    not accept, anything else.

    A short body that was accepted is kept, split where its message identifier stands. The next body
    with the same bytes around its own identifier is accepted without parsing. That is the same
    verdict: a body is only kept if it is UTF-8, holds no ``&`` and no ``<!``, and the identifier
    exactly once, so those bytes are, unescaped, the value of the ID attribute and of nothing else;
    and identifiers are ASCII letters, digits and hyphens, which mean themselves there.
    """

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before = b""
        self._after = b""

    def check(
        self, *, status: int, headers: Mapping[str, str], body: bytes, message_id: str
    ) -> None:
        """Return if the listener has confirmed the message; raise ExportResponseError if not."""
        check_response_head(status=status, headers=headers)
        identifier = message_id.encode() if _is_plain(message_id) else b""
        if identifier and self._before and body == self._before + identifier + self._after:
            return
        check_response_body(body, message_id=message_id)
        if identifier and body.count(identifier) == 1 and _is_transparent(body):
            self._before, _, self._after = body.partition(identifier)


def _is_plain(message_id: str) -> bool:
    return (
        len(message_id) <= _MAX_IDENTIFIER
        and message_id.isascii()
        and message_id.replace("-", "").isalnum()
    )


def _is_transparent(body: bytes) -> bool:
    """Whether what the bytes say is what the document says."""
    if len(body) > _MAX_KEPT or b"&" in body or b"<!" in body:
        return False
    return declared_encoding(body) in (None, b"utf-8")
