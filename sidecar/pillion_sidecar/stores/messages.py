"""What a writer asks of a store, and the answers: MessagePack, and JSON for a refusal.

The session is in the path. Fields that are not known are ignored: writer or store may be newer.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from pillion_sidecar.journal.records import MAXIMUM_RECORD
from pillion_sidecar.journal.segments import HEADER_SIZE, MAXIMUM_NUMBER
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
_LONGEST_NAME = 253

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_GREATEST)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_NAME)]


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


class KeepRequest(WriterRequest, frozen=True, kw_only=True, gc=False, tag="keep"):
    """Keep the file of identities of a removed segment, and no longer those of segments before
    ``first``. Answered with the copy."""

    segment: _Count
    first: _Count
    data: bytes


class IdentitiesRequest(_Request, frozen=True, kw_only=True, gc=False, tag="identities"):
    """List the files of identities. Answered with pairs of segment and size, in MessagePack."""


class ReadRequest(_Request, frozen=True, kw_only=True, gc=False, tag="read"):
    """Return bytes of one segment, or of the file of identities of a removed one, fewer only at its
    end. Answered with the bytes."""

    identities: bool = False
    position: _Count
    size: Annotated[int, msgspec.Meta(ge=1, le=MAXIMUM_READ)]


Request: TypeAlias = (
    ClaimRequest
    | CutRequest
    | AppendRequest
    | RemoveRequest
    | KeepRequest
    | IdentitiesRequest
    | ReleaseRequest
    | ReadRequest
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
_encode_copy = encode_identities = msgspec.msgpack.Encoder().encode
_decode_identities = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_copy = msgspec.msgpack.Decoder(Copy).decode
_decode_refusal = msgspec.json.Decoder(_RefusalAnswer).decode


def decode_request(body: bytes) -> Request:
    """Raises MalformedError."""
    try:
        request: Request = _decode_request(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the request: {str(error)[:_MAXIMUM_REASON]}") from None
    return request


def verb_of(request: Request) -> str:
    return str(request.__struct_config__.tag)


def encode_copy(copy: Copy) -> bytes:
    return _encode_copy(copy)


def decode_copy(body: bytes) -> Copy:
    """Raises ValueError: it is none that a store can have."""
    try:
        copy = _decode_copy(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)[:_MAXIMUM_REASON]) from None
    check_copy(copy)
    return copy


def check_copy(copy: Copy) -> None:
    """Raises ValueError."""
    for epoch in (copy.promised, copy.written):
        if not _is_epoch(epoch):
            raise ValueError(f"there is no epoch {epoch.number}")
    if copy.written > copy.promised:
        raise ValueError(
            f"it has epoch {copy.written.number}, and {copy.promised.number} was claimed"
        )
    runs = [*copy.replaced, *([] if copy.renewed is None else [copy.renewed])]
    if not all(run.extents for run in runs) or (copy.replaced and not copy.extents):
        raise ValueError("a run has no segments")
    before = -1
    for number, created, size in copy.kept:
        is_sound = before < number < MAXIMUM_NUMBER and isfinite(created)
        if not is_sound or not HEADER_SIZE <= size < MAXIMUM_NUMBER:
            raise ValueError(f"segment {number:x} has {size} bytes and follows {before:x}")
        before = number
    numbers = [copy.through, *(run.through for run in runs)]
    if not all(0 <= one <= _GREATEST for one in numbers):
        raise ValueError("a run is whole at no position")
    if not 0 <= copy.identities < MAXIMUM_NUMBER:
        raise ValueError(f"there are no identities of segment {copy.identities:x}")


def _is_epoch(epoch: tuple[int, str]) -> bool:
    number, claimant = epoch
    return 0 <= number <= _GREATEST and len(claimant) <= _LONGEST_NAME


def decode_identities(body: bytes) -> list[tuple[int, int]]:
    """Return the answer to an ``IdentitiesRequest``. Raises ValueError."""
    try:
        listed = _decode_identities(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)[:_MAXIMUM_REASON]) from None
    for number, size in listed:
        if not 0 <= number < MAXIMUM_NUMBER or not 0 <= size <= MAXIMUM_RECORD:
            raise ValueError(f"segment {number:x} has no file of {size} bytes")
    return listed


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
        if promised is not None and not _is_epoch(promised):
            return None
        return FencedError(reason, promised=None if promised is None else Epoch(*promised))
    return form.error(reason)
