"""Ships a writer's log to its stores while the writer goes on.

One request to a store is under way, and the next has all that came meanwhile, so a slow store gets
longer ones and delays nobody. While nobody waits for ``stable``, the next one also gathers for some
milliseconds, since a request costs a store as much as many indications. A store that was away is
asked what it has, and goes on from there, or from the oldest segment that is left. Stores remove a
segment once what the log had at its removal is stable.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.journal.records import MAXIMUM_RECORD
from pillion_sidecar.journal.segments import position_of, segment_of
from pillion_sidecar.stores.copies import (
    NO_REMOVAL,
    ConflictError,
    Copy,
    Cut,
    Epoch,
    Extent,
    FencedError,
    GapError,
    Keep,
    Piece,
    Removal,
    StoreError,
    UnclaimedError,
    bytes_between,
    end_of,
    next_change,
)
from pillion_sidecar.stores.lease import Lease
from pillion_sidecar.stores.members import NO_ANSWER, Member, Members, MemberStatus
from pillion_sidecar.stores.messages import (
    AppendRequest,
    ClaimRequest,
    CutRequest,
    KeepRequest,
    RemoveRequest,
    Request,
    refusal_name,
    verb_of,
)
from pillion_sidecar.stores.ports import Answer, LogReader, Transport, Unanswered
from pillion_sidecar.stores.quorum import Membership
from pillion_sidecar.stores.stability import Stability
from pillion_sidecar.stores.store import UnknownError
from pillion_sidecar.stores.tail import Tail

#: Seconds before a store is asked again, doubled with each failure.
RETRY_SECONDS = 1.0
MOST_RETRY_SECONDS = 30.0
#: Seconds after which a store that was asked nothing is asked what it has: it may have lost its
#: disk, or another writer may have claimed the session.
PROBE_SECONDS = 60.0
#: They say that a store does not have what it had.
_LOSSES = (UnknownError, UnclaimedError, GapError, ConflictError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippingLimits:
    #: Bytes of the records in a request at most; a longer record goes alone.
    request_bytes: int = 1 << 20
    #: Bytes of the log that are in memory although they are on disk.
    tail_bytes: int = 8 << 20
    #: Bytes that a store is given beyond what is stable, at most about: while too few stores
    #: respond, nothing is removed at the others.
    ahead_bytes: int = 256 << 20
    #: Seconds after an answer in which the next request gathers, while nobody waits for it.
    gather_seconds: float = 0.01
    #: Bytes that are worth a request at once.
    gather_bytes: int = 128 << 10


class Shipper:
    """Brings each store to the end of the log, and tells what is stable."""

    def __init__(
        self,
        *,
        epoch: Epoch,
        membership: Membership,
        log: Sequence[Extent],
        answers: Mapping[str, Copy],
        transport: Transport,
        reader: LogReader,
        timers: Timers,
        fenced: Callable[[FencedError], None],
        identities: Sequence[int] = (),
        limits: ShippingLimits = ShippingLimits(),
        flight_size: int | None = None,
        stalls: Callable[[], None] = lambda: None,
        stability: Stability | None = None,
        responds: Callable[[str, str | None], None] = lambda store, problem: None,
        lease: Lease | None = None,
    ) -> None:
        """``log`` is what the claim of ``epoch`` goes on from, ``answers`` the copies that it was
        told of; ``identities``: removed segments that have a file of identities, by number.
        ``fenced`` is called once, when nothing can become stable since other writers have claimed
        the session; the shipper is closed then. ``flight_size``: bytes that may be in too few
        stores; None: no limit. ``stalls`` is called when ``stalled`` begins or ends.
        ``stability``: None to keep nothing for the stores. ``responds`` is called with a store and
        its problem when it fails, and with None once it takes the journal again. ``lease`` is
        renewed by answers; None: nothing needs one."""
        self._epoch = epoch
        self._log = list(log)
        self._base = end_of(log)
        #: Of segments that stores may have yet, until they are stable.
        self._removals = deque([Removal(log[0].number, self._base)] if log else [])
        self._removal = NO_REMOVAL
        self._identities = list(identities)
        # A removal whose identities are not on disk yet.
        self._removing: Removal | None = None
        #: The end of the log at its last removal.
        self._through = self._base
        # Whether a store waits until more is stable.
        self._is_held = False
        self._transport, self._reader, self._timers = transport, reader, timers
        self._fenced, self._stalls, self._responds = fenced, stalls, responds
        self._limits = limits
        self._flight_size, self._stability, self._lease = flight_size, stability, lease
        self._tail = Tail(maximum=limits.tail_bytes)
        self._barriers: deque[tuple[int, Callable[[], None]]] = deque()
        #: Barriers that will come.
        self._expected = 0
        self._closed = False
        self._probe_timer: Timer | None = None
        self._members = Members(membership, epoch=epoch, answers=answers)
        #: All below it is stable.
        self.stable = 0
        #: The stores that are missed, and why, until something becomes stable again. Unlike
        #: ``missed``, it stays while a store answers claims and refuses all that follows.
        self.stalled: Mapping[str, str] = {}
        #: Answered requests, by verb and result.
        self.requests = Counter[tuple[str, str]]()
        self._advance()

    # ------------------------------------------------------------------ the log

    @property
    def end(self) -> int:
        return end_of(self._log)

    def begin(self, number: int, created: float, data: bytes) -> None:
        """The log goes on with a segment that begins with ``data``."""
        self._log.append(Extent(number, created, len(data)))
        self._tail.add(position_of(number, 0), data)
        self._ship()

    def append(self, data: bytes) -> None:
        """The log goes on with these records, in the last segment."""
        self._tail.add(self.end, data)
        last = self._log[-1]
        self._log[-1] = last._replace(size=last.size + len(data))
        self._ship()

    def removed(self, number: int, through: int) -> None:
        """The segment, the oldest, is about to be removed; all that is pending in it was copied
        forward, to before ``through``."""
        if self._log[0].number == number:
            if self._stability is not None and not self._is_stable(self._log[0]):
                self._stability.removed(number, unstable=self.unstable)
            del self._log[0]
            self._removing = Removal(self._log[0].number, through)
            self._through = through

    def remembered(self, numbers: Sequence[int]) -> None:
        """The last removal is done; these removed segments have a file of identities."""
        self._identities = list(numbers)
        if self._removing is not None:
            self._removals.append(self._removing)
            self._removing = None
            self._is_held = True
        self._advance()
        self._resume()

    def on_disk(self, position: int, last_id: int = 0, /) -> None:
        """The reader can read what is before ``position``: ids up to ``last_id``."""
        self._tail.on_disk(position)
        if self._stability is not None:
            unstable = self.unstable
            self._stability.written(position, last_id, unstable=unstable)
            self._stability.advance(self.stable, unstable=unstable)

    def forces(self, indication_id: int, reason: str, /) -> bool:
        return self._stability is not None and self._stability.forces(indication_id, reason)

    def keeps(self, number: int, /, *, is_crowded: bool) -> bool:
        oldest = self._log[0]
        if self._stability is None or oldest.number != number or self._is_stable(oldest):
            return False
        return self._stability.keeps(unstable=self.unstable, is_crowded=is_crowded)

    def _is_stable(self, extent: Extent) -> bool:
        return position_of(extent.number, extent.size) <= self.stable

    @property
    def unstable(self) -> int:
        """Bytes that this writer has added and that are in too few stores."""
        size = 0
        begin, offset = segment_of(max(self.stable, self._base))
        for extent in reversed(self._log):
            if extent.number <= begin:
                return size + (max(0, extent.size - offset) if extent.number == begin else 0)
            size += extent.size
        return size

    def refusal(self) -> str | None:
        """Return why nothing new is to be accepted now."""
        if self._flight_size is None:
            return None
        unstable = self.unstable
        if unstable <= self._flight_size:
            return None
        stores = "; ".join(self._members.told(name) for name in self.missed or self.behind)
        return (
            f"{unstable} bytes of the journal are in too few stores, and {self._flight_size} may"
            f" be: waiting for {stores}"
        )

    def start(self) -> None:
        """Ask the stores for what they need; later calls follow by themselves."""
        self._ship()
        self._probe_timer = self._timers.call_later(PROBE_SECONDS, self._probe)
        if self._lease is not None:
            self._lease.start(partial(self._claim_again, besides=()))

    def expect(self, done: Callable[[], None]) -> Callable[[int], None]:
        """Return what gets the position of a barrier, once it is known: until then nothing gathers
        for longer."""
        self._expected += 1
        self._hasten()

        def begin(position: int) -> None:
            self._expected -= 1
            self.barrier(position, done)

        return begin

    def barrier(self, position: int, done: Callable[[], None]) -> None:
        """Call ``done`` once all before ``position`` is stable; immediately if it is. Positions
        never go back. A barrier whose writer is fenced is never told."""
        if position <= self.stable:
            done()
        elif not self._closed:
            self._barriers.append((position, done))
            self._hasten()

    def close(self) -> None:
        """Nothing more is sent or told."""
        self._closed = True
        self._barriers.clear()
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        for member in self._members:
            for timer in (member.timer, member.gathering):
                if timer is not None:
                    timer.cancel()

    # ------------------------------------------------------------------ the stores

    @property
    def problems(self) -> Mapping[str, str]:
        """By store."""
        return self._members.problems

    @property
    def missed(self) -> tuple[str, ...]:
        """The stores without which nothing becomes stable; empty if enough respond."""
        return self._members.missed

    @property
    def behind(self) -> tuple[str, ...]:
        """The stores that do not have all of the log."""
        return tuple(one.name for one in self._members if self._members.lacks(one, self._log))

    @property
    def unannounced(self) -> int:
        """Bytes of the log behind the position that is announced for its stores."""
        return self._members.unannounced(self._log)

    def statuses(self) -> list[MemberStatus]:
        return self._members.statuses(self._log)

    def _ship(self) -> None:
        for member in self._members:
            self._ask(member)

    def _probe(self) -> None:
        self._probe_timer = self._timers.call_later(PROBE_SECONDS, self._probe)
        self._claim_again(besides={one.name for one in self._members if one.was_asked})
        for member in self._members:
            member.was_asked = False

    def _claim_again(self, *, besides: Collection[str]) -> None:
        """Ask the stores what they have; those that are asked something will say it."""
        for member in self._members:
            if member.is_known and not member.is_asked and member.name not in besides:
                self._claim(member)

    def _resume(self) -> None:
        """Ask the stores that waited."""
        if self._is_held:
            self._is_held = False
            self._ship()

    def _ask(self, member: Member) -> None:
        if self._closed or member.is_asked or member.is_fenced or member.timer is not None:
            return
        if not member.is_known:
            self._claim(member)
            return
        number, claimant = self._epoch
        change = next_change(
            member.copy,
            self._epoch,
            self._log,
            stable=self.stable,
            removal=self._removal,
            meeting=self._members.meeting_point,
            identities=self._identities,
        )
        match change:
            case Cut(position):
                self._send(member, CutRequest(number=number, claimant=claimant, position=position))
            case Keep(segment):
                member.is_asked = True
                self._reader.identities(segment, partial(self._keep, member, segment))
            case Removal(first, through):
                self._send(
                    member,
                    RemoveRequest(number=number, claimant=claimant, first=first, through=through),
                )
            case Piece() as piece:
                begins = not piece.after
                if self._is_ahead(member.copy) or (begins and self._removing is not None):
                    self._is_held = True
                elif not self._gathers(member, piece):
                    self._append(member, piece)
            case None:
                self._is_held |= bool(member.copy.replaced)

    def _claim(self, member: Member) -> None:
        number, claimant = self._epoch
        self._send(member, ClaimRequest(number=number, claimant=claimant))

    def _gathers(self, member: Member, piece: Piece) -> bool:
        """Whether more is to come into the next request, which has the end of the log alone."""
        most = self._limits.gather_bytes
        if self._flight_size is not None:
            most = min(most, self._flight_size // 4)
        return (
            member.gathering is not None
            and piece.position >= self._base
            and 0 < piece.size < most
            and piece.position + piece.size == self.end
        )

    def _gather(self, member: Member) -> None:
        seconds = self._limits.gather_seconds
        if seconds and not (self._expected or self._barriers or member.gathering):
            member.gathering = self._timers.call_later(seconds, partial(self._gathered, member))

    def _gathered(self, member: Member) -> None:
        member.gathering = None
        self._ask(member)

    def _hasten(self) -> None:
        """Somebody waits: ask what gathers."""
        for member in self._members:
            if member.gathering is not None:
                member.gathering.cancel()
                self._gathered(member)

    def _is_ahead(self, copy: Copy) -> bool:
        """Whether more would not make anything stable, and could not be removed at the store."""
        if copy.written != self._epoch or copy.renewed is not None or copy.end <= self.stable:
            return False
        begin = max(self.stable, self._base, self._members.meeting_point)
        return bytes_between(copy.extents, begin, copy.end) >= self._limits.ahead_bytes

    def _append(self, member: Member, piece: Piece) -> None:
        size = min(piece.size, self._limits.request_bytes)
        data = self._tail.take(piece.position, size) if size else b""
        if data is None:
            member.is_asked = True
            self._reader.read(piece.position, size, partial(self._read, member, piece))
        else:
            self._send_piece(member, piece, data)

    def _read(self, member: Member, piece: Piece, data: bytes) -> None:
        if self._closed:
            return
        member.is_asked = False
        if data:
            self._send_piece(member, piece, data)
        else:
            self._failed(member, "the journal's disk refuses what the store needs", 0.0)

    def _keep(self, member: Member, segment: int, data: bytes) -> None:
        if self._closed:
            return
        member.is_asked = False
        if data and len(data) <= MAXIMUM_RECORD:
            number, claimant = self._epoch
            request = KeepRequest(
                number=number,
                claimant=claimant,
                segment=segment,
                first=self._identities[0] if self._identities else segment,
                data=data,
            )
            self._send(member, request)
            return
        # It was removed since, or is longer than a request: its repeats are delivered again.
        self._identities = [one for one in self._identities if one != segment]
        self._ask(member)

    def _send_piece(self, member: Member, piece: Piece, data: bytes) -> None:
        self._send(
            member,
            AppendRequest(
                number=self._epoch.number,
                claimant=self._epoch.claimant,
                after=piece.after,
                position=piece.position,
                created=piece.created,
                base=self._base if piece.after else self._through,
                data=data,
            ),
        )

    def _send(self, member: Member, request: Request) -> None:
        member.is_asked = member.was_asked = True
        member.is_claimed = isinstance(request, ClaimRequest)
        if self._lease is not None:
            member.sent_at = self._lease.now()
        answered = partial(self._answered, member, verb_of(request))
        self._transport.send(member.name, request, answered)

    # ------------------------------------------------------------------ the answers

    def _answered(self, member: Member, verb: str, answer: Answer) -> None:
        if self._closed:
            return
        self.requests[verb, _result(answer)] += 1
        stable = self.stable
        self._take(member, answer)
        if not self._closed:
            self._note_response(member)
            self._watch(advanced=self.stable > stable)

    def _note_response(self, member: Member) -> None:
        if member.problem is not None:
            if not member.is_missing:
                member.is_missing = True
                self._responds(member.name, member.problem)
        elif member.is_missing:
            member.is_missing = False
            self._responds(member.name, None)

    def _take(self, member: Member, answer: Answer) -> None:
        member.is_asked = False
        if isinstance(answer, Copy):
            if self._members.forgets(member, answer):
                self._lost(member)
            if self._closed:
                return
            self._members.take_copy(member, answer, self._log)
            if self._lease is not None and self._members.counts(member):
                self._lease.renew(member.name, member.sent_at)
            self._advance()
            self._gather(member)
            self._ask(member)
            self._resume()
            return
        self._members.drop_answer(member)
        if isinstance(answer, FencedError):
            self._members.fence(member, answer)
            self._check_fence()
        elif isinstance(answer, Unanswered):
            self._failed(member, answer.reason, answer.retry_after)
        elif isinstance(answer, StoreError):
            if isinstance(answer, _LOSSES):
                member.copy = Copy()
            self._failed(member, str(answer), 0.0)
            if isinstance(answer, UnknownError | UnclaimedError):
                self._lost(member)

    def _failed(self, member: Member, reason: str, retry_after: float) -> None:
        """Ask what it has, later."""
        member.is_known, member.problem = False, reason
        member.failures += 1
        wait = min(MOST_RETRY_SECONDS, RETRY_SECONDS * 2 ** min(member.failures - 1, 10))
        member.timer = self._timers.call_later(
            max(wait, retry_after), partial(self._ask_again, member)
        )
        # Fewer groups may be active now.
        self._advance()
        self._resume()

    def _watch(self, *, advanced: bool) -> None:
        was_stalled = bool(self.stalled)
        if missed := self.missed:
            problems = self.problems
            self.stalled = {name: problems.get(name, NO_ANSWER) for name in missed}
        elif advanced or not self.unstable:
            self.stalled = {}
        if bool(self.stalled) is not was_stalled:
            self._stalls()

    def _ask_again(self, member: Member) -> None:
        member.timer = None
        self._ask(member)

    def _lost(self, member: Member) -> None:
        """It has forgotten who may write, so others are asked."""
        self._members.doubt(member)
        self._check_fence()
        if not self._closed:
            self._claim_again(besides={member.name})

    def _check_fence(self) -> None:
        error = self._members.end
        if error is not None and not self._closed:
            self.close()
            self._fenced(error)

    def _advance(self) -> None:
        position = self._members.stable_end
        if position > self.stable:
            self.stable = position
            if self._stability is not None:
                self._stability.advance(position, unstable=self.unstable)
            while self._barriers and self._barriers[0][0] <= position and not self._closed:
                self._barriers.popleft()[1]()
        while self._removals and self._removals[0].through <= self.stable:
            self._removal = self._removals.popleft()
            self._is_held = True


def _result(answer: Answer) -> str:
    if isinstance(answer, Unanswered):
        return "unanswered"
    return refusal_name(answer) if isinstance(answer, StoreError) else "ok"
