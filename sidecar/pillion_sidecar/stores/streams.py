"""A copy as the messages of one subject, of a log that takes a message only behind the one that its
writer names. Pure.

Each message tells what the copy is after it. A message that only continues the last segment says
where the copy ends, and which message has the rest. Only a *fence* names no message before it, so
that a writer that never pauses cannot keep a claim away.

The files of identities are the messages of a second subject. What they are is told by the first
one, so parts of a file that no message of it names are not there.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import msgspec

from pillion_sidecar.journal.segments import position_of, segment_of
from pillion_sidecar.stores import copies
from pillion_sidecar.stores.copies import Copy, Epoch, Extent, end_of
from pillion_sidecar.stores.messages import (
    AppendRequest,
    ClaimRequest,
    CutRequest,
    KeepRequest,
    ReadRequest,
    ReleaseRequest,
    RemoveRequest,
    check_copy,
)
from pillion_sidecar.stores.store import BrokenError, MalformedError

#: Bytes of the log in a message at most. A server takes 1 MiB by default, with the state.
PART_BYTES = 960 << 10
#: Files of identities that are kept at most: the state names each.
MOST_FILES = 1000
_MAXIMUM_REASON = 300


#: What changes a copy.
Change: TypeAlias = (
    ClaimRequest | CutRequest | AppendRequest | RemoveRequest | KeepRequest | ReleaseRequest
)


class IdentityFile(NamedTuple):
    """The identities of a removed segment, on the second subject."""

    #: The sequence of the message that begins it.
    begin: int
    size: int


class _Whole(msgspec.Struct, frozen=True, array_like=True, gc=False):
    copy: Copy
    #: By number of a segment: the sequence of the message that begins it. 0: it is this message.
    begins: dict[int, int]
    #: By number of their segment.
    files: dict[int, IdentityFile] = {}


class StreamMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    #: The sequence of the message before it; 0: there is none.
    before: int
    #: The sequence of the message that has the rest of the state; 0: this one has all.
    checkpoint: int
    #: Where the copy ends. Before the end of ``data``, this is a part and the next one follows.
    end: int
    #: Of ``data``.
    position: int
    data: bytes
    whole: _Whole | None = None
    #: A claim that is to come. ``before`` is then any earlier message, and the rest says nothing.
    fence: Epoch | None = None


class IdentityPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message of the second subject."""

    #: The sequence of the part before it; 0: it begins the file.
    before: int
    number: int
    data: bytes


class StoredMessage(NamedTuple):
    sequence: int
    message: StreamMessage


class Publication(NamedTuple):
    #: It is to be taken only if the last message of the subject has this sequence.
    before: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    copy: Copy = field(default_factory=Copy)
    #: By number of a segment: the sequence of the message that begins it.
    begins: Mapping[int, int] = field(default_factory=dict)
    #: By number of their segment.
    files: Mapping[int, IdentityFile] = field(default_factory=dict)
    #: The sequence of the last message; 0: there is none.
    last: int = 0
    #: The sequence of the message that has the rest of the state.
    checkpoint: int = 0

    @property
    def needed(self) -> int:
        """The sequence before which no message is needed."""
        return min([self.checkpoint, *self.begins.values()])

    @property
    def first_part(self) -> int:
        """The sequence before which no message of identities is needed; 0: there are none."""
        return min((one.begin for one in self.files.values()), default=0)

    def has_file(self, number: int) -> bool:
        """Whether a request to keep it was done before."""
        return number in self.files and number <= self.copy.identities


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StreamMessage).decode
_decode_part = msgspec.msgpack.Decoder(IdentityPart).decode


def decode_message(sequence: int, body: bytes) -> StoredMessage:
    """Raises BrokenError."""
    try:
        return StoredMessage(sequence, _decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_ours(sequence, error) from None


def _not_ours(sequence: int, error: Exception) -> BrokenError:
    reason = str(error)[:_MAXIMUM_REASON]
    return BrokenError(
        f"message {sequence} is not of a journal: {reason}; let nobody else publish there"
    )


def state_of(last: StoredMessage, checkpoint: StoredMessage) -> StreamState:
    """Return what the copy is after ``last``. ``checkpoint``: the message that it names, or itself.
    Raises BrokenError."""
    whole = checkpoint.message.whole
    if whole is None:
        raise BrokenError(f"message {checkpoint.sequence} has no state; let nobody else publish")
    try:
        check_copy(whole.copy)
    except ValueError as error:
        raise BrokenError(
            f"message {checkpoint.sequence} has no state: {error}; let nobody else publish"
        ) from None
    copy = _reaching(whole.copy, last.message.end)
    if copy is None:
        raise BrokenError(f"message {last.sequence} does not continue the copy")
    return StreamState(
        copy=copy,
        begins={one: at or checkpoint.sequence for one, at in whole.begins.items()},
        files=whole.files,
        last=last.sequence,
        checkpoint=checkpoint.sequence,
    )


def fence(epoch: Epoch, *, known: int) -> bytes:
    """Return the message after which writers of lower epochs are refused. ``known``: the sequence
    of any message before it; 0: none is known."""
    return _encode(StreamMessage(known, 0, 0, 0, b"", None, epoch))


def fenced(state: StreamState, stored: StoredMessage) -> StreamState:
    """Return the state after a fence. ``state``: before it."""
    epoch = stored.message.fence
    assert epoch is not None
    copy = state.copy
    if epoch > copy.promised:
        copy = copies.claim(copy, epoch)
    return replace(state, copy=copy, last=stored.sequence)


def change(
    state: StreamState,
    request: Change,
    *,
    part_bytes: int = PART_BYTES,
    file: IdentityFile | None = None,
) -> Generator[Publication, int, StreamState]:
    """Yield the messages of a request one after the other; each is answered with its sequence.
    Return the state after them. Only the last one changes what the copy is. ``file``: that of a
    ``KeepRequest``. Raises StoreError before the first."""
    copy, position, data = _changed(state.copy, request)
    files = _files(state.files, request, copy, file)
    is_claim = isinstance(request, ClaimRequest)
    if copy == state.copy and files == state.files and not is_claim:
        return state
    is_whole = (
        is_claim or files != state.files or _reaching(state.copy, end_of(copy.newest)) != copy
    )
    before = state.last
    first = 0
    for begin, end in _parts(len(data), part_bytes):
        is_last = end == len(data)
        whole = None
        if is_last and is_whole:
            whole = _Whole(copy, _begins(state, copy, position, data, first), dict(files))
        body = _encode(
            StreamMessage(
                before,
                0 if whole else state.checkpoint,
                end_of((copy if is_last else state.copy).newest),
                position + begin,
                data if is_last and not begin else data[begin:end],
                whole,
            )
        )
        before = yield Publication(before, body)
        first = first or before
    return StreamState(
        copy=copy,
        begins=_begins(state, copy, position, data, first) if is_whole else state.begins,
        files=files,
        last=before,
        checkpoint=before if is_whole else state.checkpoint,
    )


def _changed(copy: Copy, request: Change) -> tuple[Copy, int, bytes]:
    """Return the copy after a request, and what is to be written."""
    match request:
        case ClaimRequest():
            return copies.claim(copy, request.epoch), 0, b""
        case CutRequest():
            return copies.cut(copy, request.epoch, request.position), 0, b""
        case AppendRequest():
            piece = request.piece
            changed = copies.append(copy, request.epoch, piece, base=request.base)
            data = b"" if copies.has_piece(copy, piece) else request.data
            return changed, piece.position, data
        case RemoveRequest():
            return copies.remove(copy, request.epoch, request.removal), 0, b""
        case KeepRequest():
            return copies.keep(copy, request.epoch, request.segment), 0, b""
        case ReleaseRequest():
            copies.check_writer(copy, request.epoch)
            # It goes on from here alone: another store may have an earlier copy.
            return Copy(promised=request.epoch, written=request.epoch), 0, b""


def _files(
    files: Mapping[int, IdentityFile],
    request: Change,
    copy: Copy,
    file: IdentityFile | None,
) -> Mapping[int, IdentityFile]:
    """Return the files after a request. ``copy``: after it."""
    match request:
        case KeepRequest():
            kept = {number: one for number, one in files.items() if number >= request.first}
            if file is not None:
                kept[request.segment] = file
            return dict(sorted(kept.items())[-MOST_FILES:])
        case CutRequest():
            return {number: one for number, one in files.items() if number <= copy.identities}
        case ReleaseRequest():
            return {}
    return files


def _reaching(copy: Copy, end: int) -> Copy | None:
    """Return the copy whose last segment ends at ``end``; None if it is another segment."""
    newest = copy.newest
    if end == end_of(newest):
        return copy
    number, offset = segment_of(end)
    if not newest or newest[-1].number != number:
        return None
    extents = (*newest[:-1], newest[-1]._replace(size=offset))
    if copy.renewed is not None:
        return replace(copy, renewed=copy.renewed._replace(extents=extents))
    return replace(copy, extents=extents)


def _begins(
    state: StreamState, copy: Copy, position: int, data: bytes, first: int
) -> dict[int, int]:
    """``first``: the sequence of the first message with ``data``; 0: not known yet."""
    number, offset = segment_of(position)
    begun = {number: first} if data and not offset else {}
    return {
        one.number: begun[one.number] if one.number in begun else state.begins[one.number]
        for one in copy.kept
    }


def _parts(size: int, part_bytes: int) -> Iterator[tuple[int, int]]:
    yield 0, min(size, part_bytes)
    for begin in range(part_bytes, size, part_bytes):
        yield begin, min(size, begin + part_bytes)


def identity_parts(
    request: KeepRequest, *, part_bytes: int = PART_BYTES
) -> Generator[Publication, int, IdentityFile]:
    """Yield the messages of a file of identities, like :func:`change`. The first one names no
    message before it: others may have left parts there."""
    begin = before = 0
    for start, end in _parts(len(request.data), part_bytes):
        body = _encode(IdentityPart(before, request.segment, request.data[start:end]))
        before = yield Publication(before, body)
        begin = begin or before
    return IdentityFile(begin, len(request.data))


class IdentityReading:
    """The bytes of one file of identities, from the messages behind each other."""

    def __init__(self, number: int, file: IdentityFile) -> None:
        self._number, self._file = number, file
        #: The next message that is needed.
        self.next = file.begin
        self._before = 0
        self._content = bytearray()

    @property
    def is_done(self) -> bool:
        return len(self._content) >= self._file.size

    def take(self, sequence: int, body: bytes) -> None:
        """Raises BrokenError: a message is missing, or another's."""
        try:
            part = _decode_part(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _not_ours(sequence, error) from None
        is_first = not self._content
        follows = sequence == self._file.begin if is_first else part.before == self._before
        if not follows or part.number != self._number or not part.data:
            raise BrokenError(f"message {self.next} is missing; let nobody delete any")
        self._content += part.data
        self._before, self.next = sequence, sequence + 1

    def content(self) -> bytes:
        return bytes(self._content)


class SegmentReading:
    """The bytes of one segment, from the messages behind each other."""

    def __init__(self, state: StreamState, extent: Extent) -> None:
        self._extent = extent
        later = [at for at in state.begins.values() if at > state.begins[extent.number]]
        #: The next message that is needed.
        self.next = state.begins[extent.number]
        #: The last one.
        self.last = min(later, default=state.last)
        self._before: int | None = None
        self._content = bytearray()
        # Of an append that is not complete yet, and where they begin.
        self._parts: list[bytes] = []
        self._begin = self._end = 0

    @property
    def is_done(self) -> bool:
        return self.next > self.last

    def take(self, stored: StoredMessage) -> None:
        """Raises BrokenError: a message is missing."""
        sequence, message = stored
        expected = self.next if self._before is None else self._before
        found = sequence if self._before is None else message.before
        if found != expected and message.fence is None:
            raise BrokenError(f"message {expected} is missing; let nobody delete any")
        self._before, self.next = sequence, sequence + 1
        number, offset = segment_of(message.position)
        if number != self._extent.number or not message.data:
            return
        if not self._parts or offset != self._end:
            self._parts, self._begin = [], offset
        self._parts.append(message.data)
        self._end = offset + len(message.data)
        if message.end == position_of(number, self._end):
            # What came from here on was cut off since.
            del self._content[self._begin :]
            self._content += b"".join(self._parts)
            self._parts.clear()

    def content(self) -> bytes:
        """Raises BrokenError."""
        extent = self._extent
        if len(self._content) < extent.size:
            raise BrokenError(
                f"segment {extent.number:x} has {len(self._content)} of {extent.size} bytes"
            )
        return bytes(self._content[: extent.size])


def extent_at(copy: Copy, position: int) -> Extent | None:
    """Return the extent that has the byte at ``position``."""
    number, offset = segment_of(position)
    return next((one for one in copy.kept if one.number == number and offset < one.size), None)


def file_at(state: StreamState, position: int) -> tuple[int, IdentityFile | None]:
    """Return the segment of a position, and its file of identities; None: there is none."""
    number, _ = segment_of(position)
    return number, state.files.get(number)


def bytes_at(segment: bytes, request: ReadRequest) -> bytes:
    """Return what a request wants of its segment."""
    _, offset = segment_of(request.position)
    return segment[offset : offset + request.size]


def check_request(request: object) -> Change:
    """Raises MalformedError."""
    if isinstance(request, Change):
        return request
    raise MalformedError(f"a stream takes no {type(request).__name__}")
