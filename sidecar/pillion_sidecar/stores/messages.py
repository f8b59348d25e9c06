"""What a writer asks of a store, and the answers: MessagePack, and JSON for a refusal.

The session is in the path. Fields that are not known are ignored: writer or store may be newer.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from pillion_sidecar.journal.records import MAXIMUM_RECORD
from pillion_sidecar.stores.copies import (
    ConflictError,
    Copy,
    Epoch,
    FencedError,
    GapError,
    Piece,
    Removal,
    StoreError,
    UnclaimedError,
)
from pillion_sidecar.stores.store import (
    BrokenError,
    ForbiddenError,
    MalformedError,
    QuotaError,
    SessionsError,
    UnknownError,
)

#: The session follows.
JOURNALS_PATH = "/v1/journals/"
CONTENT_TYPE = "application/msgpack"
#: Bytes of a request at most: a record, and what is around it.
MAXIMUM_REQUEST = MAXIMUM_RECORD + (64 << 10)
#: Bytes that a store returns at once.
MAXIMUM_READ = 1 << 20
_MAXIMUM_REASON = 300
_GREATEST = (1 << 63) - 1

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_GREATEST)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class _Request(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="do"):
    """Base of the requests."""


class WriterRequest(_Request, frozen=True, kw_only=True, gc=False):
    """Base of those that change the copy."""

    number: Annotated[int, msgspec.Meta(ge=1, le=_GREATEST)]
    claimant: _Name

    @property
    def epoch(self) -> Epoch:
        return Epoch(self.number, self.claimant)


class ClaimRequest(WriterRequest, frozen=True, kw_only=True, gc=False, tag="claim"):
    """Fence the writers of lower epochs. Answered with the copy."""


class CutRequest(WriterRequest, frozen=True, kw_only=True, gc=False, tag="cut"):
    """Cut off what is behind ``position``. Answered with the copy."""

    position: _Count


class AppendRequest(WriterRequest, frozen=True, kw_only=True, gc=False, tag="append"):
    """Take whole records. Answered with the copy. See :class:`Piece` and :func:`copies.append`."""

    after: _Count
    position: _Count
    created: float
    base: _Count
    data: bytes

    @property
    def piece(self) -> Piece:
        return Piece(self.after, self.position, self.created, len(self.data))


class ReleaseRequest(WriterRequest, frozen=True, kw_only=True, gc=False, tag="release"):
    """Forget the session, which has nothing pending. Answered with an empty copy."""


class RemoveRequest(WriterRequest, frozen=True, kw_only=True, gc=False, tag="remove"):
    """Remove the segments before ``first``. Answered with the copy. See :func:`copies.remove`."""

    first: _Count
    through: _Count

    @property
    def removal(self) -> Removal:
        return Removal(self.first, self.through)


class ReadRequest(_Request, frozen=True, kw_only=True, gc=False, tag="read"):
    """Return bytes of one segment, fewer only at its end. Answered with the bytes."""

    position: _Count
    size: Annotated[int, msgspec.Meta(ge=1, le=MAXIMUM_READ)]


Request: TypeAlias = (
    ClaimRequest | CutRequest | AppendRequest | RemoveRequest | ReleaseRequest | ReadRequest
)


class RefusalForm(NamedTuple):
    status: int
    error: type[StoreError]


#: By the ``error`` of the answer.
REFUSALS: Mapping[str, RefusalForm] = {
    "malformed": RefusalForm(400, MalformedError),
    "unknown": RefusalForm(404, UnknownError),
    "fenced": RefusalForm(409, FencedError),
    "unclaimed": RefusalForm(409, UnclaimedError),
    "gap": RefusalForm(409, GapError),
    "conflict": RefusalForm(409, ConflictError),
    "forbidden": RefusalForm(403, ForbiddenError),
    "quota": RefusalForm(507, QuotaError),
    "sessions": RefusalForm(507, SessionsError),
    "broken": RefusalForm(500, BrokenError),
}
_NAMES = {form.error: name for name, form in REFUSALS.items()}


class _RefusalAnswer(msgspec.Struct, frozen=True):
    error: str
    reason: str = ""
    #: Of one that is fenced: the number and the claimant of the epoch.
    promised: tuple[int, str] | None = None


encode_request = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(Request).decode
_encode_copy = msgspec.msgpack.Encoder().encode
_decode_copy = msgspec.msgpack.Decoder(Copy).decode
_decode_refusal = msgspec.json.Decoder(_RefusalAnswer).decode


def decode_request(body: bytes) -> Request:
    """Raises MalformedError."""
    try:
        request: Request = _decode_request(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the request: {str(error)[:_MAXIMUM_REASON]}") from None
    return request


def encode_copy(copy: Copy) -> bytes:
    return _encode_copy(copy)


def decode_copy(body: bytes) -> Copy:
    """Raises ValueError."""
    try:
        return _decode_copy(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)[:_MAXIMUM_REASON]) from None


def refusal_name(error: StoreError) -> str:
    """Return the key of :data:`REFUSALS`."""
    return _NAMES[type(error)]


def refusal_details(error: StoreError) -> Mapping[str, Any]:
    """Return what else a refusal tells."""
    if isinstance(error, FencedError) and error.promised is not None:
        return {"promised": list(error.promised)}
    return {}


def decode_refusal(body: bytes) -> StoreError | None:
    """Return what a store refuses a request with; None if the answer is another's."""
    try:
        told = _decode_refusal(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    form = REFUSALS.get(told.error)
    if form is None:
        return None
    reason = told.reason[:_MAXIMUM_REASON]
    if form.error is FencedError:
        promised = told.promised
        return FencedError(reason, promised=None if promised is None else Epoch(*promised))
    return form.error(reason)
