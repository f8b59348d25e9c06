"""The answer to ``GET /v1/journals``: the copies of journals that a gateway keeps. Deliverers write
it, ``pillion journals`` reads it; unknown fields are ignored."""

import msgspec

from pillion_sidecar.wire.queues import AnswerError, Count

#: Default and maximum copies in one answer.
DEFAULT_SESSIONS = 500
MOST_SESSIONS = 1000


class JournalCopy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The copy of one journal."""

    #: Of its writer's token; None without tokens.
    namespace: str | None = None
    #: The journal's id.
    session: str
    #: Who claimed it last, such as the UID of a pod, and the number of that claim.
    claimant: str
    epoch: Count
    #: Of the first claim's token: no other of the namespace gets at the copy.
    service_account: str | None = None
    bytes: Count
    #: The position behind the last byte, in hexadecimal.
    end: str
    #: Seconds since the last request of its writer.
    idle_seconds: float


class JournalCopyPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Copies by namespace and session."""

    journals: list[JournalCopy]
    #: The next page's ``after``, a namespace and a session; None on the last.
    next: str | None = None


_decode = msgspec.json.Decoder(JournalCopyPage).decode


def json_of(copies: list[JournalCopy]) -> str:
    return msgspec.json.encode(copies).decode()


def read_copies(body: bytes) -> JournalCopyPage:
    """Read a page of an untrusted gateway. Raises AnswerError."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AnswerError("the list of copies cannot be read") from None
