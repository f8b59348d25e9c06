"""A NATS stream that keeps copies of journals, each the messages of one subject (decision 59)."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from pillion_sidecar.handlers.nats.jetstream import JetStreamError
from pillion_sidecar.stores.copies import Copy, Epoch, Extent, StoreError, check_writer
from pillion_sidecar.stores.messages import (
    ClaimRequest,
    IdentitiesRequest,
    KeepRequest,
    ReadRequest,
    ReleaseRequest,
    RemoveRequest,
    Request,
    encode_identities,
)
from pillion_sidecar.stores.ports import Answer, Unanswered
from pillion_sidecar.stores.streams import (
    PART_BYTES,
    IdentityFile,
    IdentityReading,
    Publication,
    SegmentReading,
    StoredMessage,
    StreamState,
    bytes_at,
    change,
    check_request,
    decode_message,
    extent_at,
    fence,
    fenced,
    file_at,
    identity_parts,
    state_of,
)

#: Fewer do not survive the loss of one server.
LEAST_REPLICAS = 3
#: err_code of JetStream: the subject has another last message than the one named.
_WRONG_LAST = (10071, 10164)
_NO_STREAM = 10059
#: How often another's message may come first within a request.
_TRIES = 5
#: Messages asked for at once, and their bytes.
_BATCH, _BATCH_BYTES = 256, 4 << 20
#: Bytes around the log's in a message.
_AROUND = 64 << 10

Answered: TypeAlias = Callable[[Answer], None]
_Result = TypeVar("_Result")


class SubjectLog(Protocol):
    """See :class:`JetStream`. All calls raise JetStreamError."""

    async def configuration(self) -> Mapping[str, Any]: ...

    async def most_payload(self) -> int: ...

    async def publish(self, body: bytes, *, after: int | None) -> int: ...

    async def last(self) -> tuple[int, bytes] | None: ...

    async def next(self, sequence: int) -> tuple[int, bytes] | None: ...

    async def following(
        self, sequence: int, *, count: int, size: int
    ) -> Sequence[tuple[int, bytes]]: ...

    async def purge(self, sequence: int) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamLogs:
    """The subjects of one session, over one connection."""

    log: SubjectLog
    #: Of the files of identities.
    identities: SubjectLog
    #: Something went wrong: go on with another connection.
    move: Callable[[], None] = lambda: None

    def close(self) -> None:
        self.log.close()
        self.identities.close()


class StreamStore:
    """Keeps the copy of one session. Requests are done one after the other."""

    def __init__(self, logs: StreamLogs, *, stream: str, part_bytes: int = PART_BYTES) -> None:
        """``part_bytes``: of the log in a message at most."""
        self._logs = logs
        #: Those of the next request.
        self._next_logs: StreamLogs | None = None
        self._part_bytes = part_bytes
        self._stream = stream
        #: None: not known since a failure.
        self._state: StreamState | None = None
        #: The segment that was read last; the next read is likely of it as well.
        self._segment: tuple[Extent, bytes] | None = None
        #: The same of a file of identities.
        self._file: tuple[IdentityFile, bytes] | None = None
        self._task: asyncio.Task[Answer] | None = None
        self._waiting: deque[tuple[Request, Answered]] = deque()
        self._closed = False

    def send(self, request: Request, answered: Answered) -> None:
        if not self._closed:
            self._waiting.append((request, answered))
            self._begin()

    def close(self) -> None:
        """Requests under way hear nothing more."""
        self._closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
        self._logs.close()
        if self._next_logs is not None:
            self._next_logs.close()

    def use(self, logs: StreamLogs) -> None:
        """Go on over another connection, from the next request on."""
        if self._next_logs is not None:
            self._next_logs.close()
        self._next_logs = logs

    def _begin(self) -> None:
        if self._task is None and self._waiting:
            if self._next_logs is not None:
                self._logs.close()
                self._logs, self._next_logs = self._next_logs, None
            request, answered = self._waiting.popleft()
            self._task = asyncio.get_running_loop().create_task(self._perform(request))
            self._task.add_done_callback(partial(self._ended, answered))

    def _ended(self, answered: Answered, task: "asyncio.Task[Answer]") -> None:
        self._task = None
        if self._closed or task.cancelled():
            return
        self._begin()
        answered(task.result())

    async def _perform(self, request: Request) -> Answer:
        try:
            if isinstance(request, ReadRequest):
                reads = self._read_identities if request.identities else self._read
                return await reads(request)
            if isinstance(request, IdentitiesRequest):
                return await self._list()
            return await self._perform_change(request)
        except StoreError as error:
            return error
        except JetStreamError as error:
            self._state = None
            self._logs.move()
            return Unanswered(reason=str(error))

    async def _perform_change(self, request: Request) -> Answer:
        if isinstance(request, ClaimRequest):
            await self._check()
            await self._fence(request.epoch)
        before = 0
        if isinstance(request, ReleaseRequest):
            # Asked anew: others may have claimed the session since.
            self._state = None
            # Before the release: what comes later is the next writer's.
            last = await self._logs.identities.last()
            before = 0 if last is None else last[0] + 1
        elif isinstance(request, KeepRequest):
            before = (self._state or StreamState()).first_part
        answer = await self._change(request)
        state = self._state
        if state is None:
            return answer
        if isinstance(request, RemoveRequest | ReleaseRequest):
            await self._logs.log.purge(state.needed)
        if isinstance(request, KeepRequest) and state.first_part > before > 0:
            await self._logs.identities.purge(state.first_part)
        if isinstance(request, ReleaseRequest) and before:
            await self._logs.identities.purge(before)
        return answer

    async def _change(self, request: Request) -> Copy | Unanswered:
        file: IdentityFile | None = None
        for _ in range(_TRIES):
            state = self._state or await self._load()
            # Not known while a message is under way.
            self._state = None
            try:
                if isinstance(request, KeepRequest) and file is None:
                    file = await self._keep(state, request)
                changing = change(
                    state, check_request(request), part_bytes=self._part_bytes, file=file
                )
                self._state = await self._publish(self._logs.log, changing)
            except JetStreamError as error:
                if error.code not in _WRONG_LAST:
                    raise
            else:
                return self._state.copy
        return Unanswered(reason="others publish to the journal's subject all the time")

    async def _keep(self, state: StreamState, request: KeepRequest) -> IdentityFile | None:
        """Write a file of identities, which is not there before a message of the log says so."""
        check_writer(state.copy, request.epoch)
        if state.has_file(request.segment):
            return state.files[request.segment]
        parts = identity_parts(request, part_bytes=self._part_bytes)
        return await self._publish(self._logs.identities, parts)

    async def _fence(self, epoch: Epoch) -> None:
        """Refuse all that writers of lower epochs send from now on."""
        state = self._state = await self._load()
        if epoch > state.copy.promised:
            self._state = None
            await self._logs.log.publish(fence(epoch, known=state.last), after=None)

    async def _publish(
        self, log: SubjectLog, publications: Generator[Publication, int, _Result]
    ) -> _Result:
        try:
            publication = next(publications)
            while True:
                # Others may have left parts of a file of identities.
                begins_file = log is self._logs.identities and not publication.before
                after = None if begins_file else publication.before
                sequence = await log.publish(publication.body, after=after)
                publication = publications.send(sequence)
        except StopIteration as ended:
            result: _Result = ended.value
            return result

    # ------------------------------------------------------------------ what is there

    async def _load(self) -> StreamState:
        found = await self._logs.log.last()
        return StreamState() if found is None else await self._state_after(decode_message(*found))

    async def _state_after(self, stored: StoredMessage) -> StreamState:
        message = stored.message
        if message.fence is not None:
            before = await self._before(stored)
            state = StreamState() if before is None else await self._state_after(before)
            return fenced(state, stored)
        if not message.checkpoint:
            return state_of(stored, stored)
        found = await self._logs.log.next(message.checkpoint)
        if found is None or found[0] != message.checkpoint:
            raise JetStreamError(f"message {message.checkpoint} is missing, or not there yet")
        return state_of(stored, decode_message(*found))

    async def _before(self, fence: StoredMessage) -> StoredMessage | None:
        """Return the message before a fence; None: there is none."""
        last: StoredMessage | None = None
        begin = max(1, fence.message.before)
        while True:
            found = await self._logs.log.next(begin)
            if found is None or found[0] >= fence.sequence:
                return last
            last = decode_message(*found)
            begin = last.sequence + 1

    async def _following(self, sequence: int) -> list[StoredMessage]:
        """Return messages from ``sequence`` on; at least one."""
        found = await self._logs.log.following(sequence, count=_BATCH, size=_BATCH_BYTES)
        if not found:
            raise JetStreamError("a message is missing, or not there yet")
        return [decode_message(*one) for one in found]

    async def _read(self, request: ReadRequest) -> bytes:
        if self._state is None:
            self._state = await self._load()
        state = self._state
        extent = extent_at(state.copy, request.position)
        if extent is None:
            return b""
        if self._segment is None or self._segment[0] != extent:
            reading = SegmentReading(state, extent)
            while not reading.is_done:
                for one in await self._following(reading.next):
                    if not reading.is_done:
                        reading.take(one)
            self._segment = (extent, reading.content())
        return bytes_at(self._segment[1], request)

    async def _list(self) -> bytes:
        state = self._state = self._state or await self._load()
        return encode_identities(sorted((one, file.size) for one, file in state.files.items()))

    async def _read_identities(self, request: ReadRequest) -> bytes:
        state = self._state = self._state or await self._load()
        number, file = file_at(state, request.position)
        if file is None:
            return b""
        if self._file is None or self._file[0] != file:
            reading = IdentityReading(number, file)
            while not reading.is_done:
                found = await self._logs.identities.following(
                    reading.next, count=_BATCH, size=_BATCH_BYTES
                )
                if not found:
                    raise JetStreamError("a message is missing, or not there yet")
                for sequence, body in found:
                    if not reading.is_done:
                        reading.take(sequence, body)
            self._file = (file, reading.content())
        return bytes_at(self._file[1], request)

    # ------------------------------------------------------------------ the stream

    async def _check(self) -> None:
        """Raises JetStreamError: the stream is no store."""
        least = self._part_bytes + _AROUND
        most = await self._logs.log.most_payload()
        if most < least:
            raise JetStreamError(
                f"the servers take messages of {most} bytes, and a store needs {least}; set"
                " max_payload to 1 MiB or more"
            )
        try:
            configuration = await self._logs.log.configuration()
        except JetStreamError as error:
            if error.code != _NO_STREAM:
                raise
            raise JetStreamError(f"there is no stream {self._stream}; create it") from None
        wrong = unfit(configuration)
        if wrong is not None:
            raise JetStreamError(f"stream {self._stream} is no store: {wrong}")


def unfit(configuration: Mapping[str, Any]) -> str | None:
    """Return why a stream cannot keep copies, and what to do; None: it can."""
    for name, fits, wrong in _NEEDS:
        if not fits(configuration.get(name)):
            return wrong
    return None


def _is_number(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


def _has_no_limit(value: object) -> bool:
    return value is None or (type(value) is int and value <= 0)


def _is_off(value: object) -> bool:
    return not value


#: A setting of the stream, what it must be, and what is said if it is not.
_NEEDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("storage", lambda value: value == "file", "it is in memory; create it with storage: file"),
    (
        "num_replicas",
        _is_number(LEAST_REPLICAS),
        f"one lost server takes it away; set replicas to {LEAST_REPLICAS} or more",
    ),
    ("persist_mode", lambda value: value != "async", "it acknowledges early; unset persist_mode"),
    ("no_ack", _is_off, "it acknowledges nothing; unset no_ack"),
    ("retention", lambda value: value == "limits", "it removes messages; set retention: limits"),
    ("discard", lambda value: value == "new", "it removes what is old; set discard: new"),
    ("max_age", _has_no_limit, "it removes what is old; unset max_age"),
    (
        "max_msgs_per_subject",
        _has_no_limit,
        "a journal has many messages of one subject; unset max_msgs_per_subject",
    ),
    (
        "max_msg_size",
        lambda value: _has_no_limit(value) or value >= PART_BYTES + _AROUND,
        "its messages are too short; set max_msg_size to 1 MiB or more",
    ),
    ("mirror", _is_off, "it is a mirror; name the stream that it mirrors"),
    ("sealed", _is_off, "it is sealed; create another"),
    ("deny_purge", _is_off, "what is delivered cannot be removed; unset deny_purge"),
    ("subject_transform", _is_off, "it changes subjects; unset subject_transform"),
    ("allow_direct", lambda value: value is True, "it cannot be read; set allow_direct: true"),
)
