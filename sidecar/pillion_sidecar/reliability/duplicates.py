"""The memory of identities (S1.2, S1.8): accepted indications and their results. Bounded; an
identity is added once its indication is queued, so a refusal leaves none."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pillion_sidecar.clock import Clock
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.ports import PlainIdentity
from pillion_sidecar.reliability.packed_table import LAST_STATE, LAST_TICK, PackedTable

#: Ticks of a sixteenth of a second last for eight years.
TICKS_PER_SECOND = 16
#: Tables of another size that are still searched after the capacity has changed.
MAXIMUM_OLDER_TABLES = 3
_PENDING = 0
_DELIVERED = 1
#: Pending, and delivered somewhere.
_DELIVERED_SOMEWHERE = 2
#: From here on, one state for each reason, in four groups: discarded somewhere, with others pending
#: and none delivered; with others pending and some delivered; delivered elsewhere; discarded
#: everywhere.
_DISCARDED = 3
_OTHERS_PENDING, _SOME_DELIVERED, _DELIVERED_ELSEWHERE, _GONE = _HOW = range(4)
_REASONS = tuple(DiscardReason)
_NOT_DISCARDED = (None, "")
#: Distinct names of destinations; the last index stands for all further ones.
_MAXIMUM_NAMES = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class Original:
    """The result of the indication that a duplicate repeats. With a ``reason`` at least one target
    was discarded, first at ``destination``."""

    pending: bool
    destination: str | None = None
    reason: DiscardReason | None = None
    #: Discarded at every target: nobody has it, so it may be sent again.
    is_gone: bool = False


IN_DELIVERY = Original(pending=True)
DELIVERED = Original(pending=False)


class Waiter(Protocol):
    def original_settled(self, digest: bytes, original: Original) -> None:
        """Each target of the original is settled. Must not raise."""


class DuplicateMemory:
    """Remembers identities until their ``expires``, else for the window. When full, it drops (and
    counts) the oldest. As the ``Tracker`` of each accepted indication it knows the result for
    duplicates."""

    def __init__(self, *, clock: Clock, window_seconds: float, capacity: int) -> None:
        self._clock = clock
        # Ticks count from here, to need few bits.
        self._epoch = clock.monotonic()
        # The same in seconds since the epoch, once identities of an earlier run are restored.
        self._origin: float | None = None
        self.window_seconds = self.longest_window = window_seconds
        self._window = _window_ticks(window_seconds)
        self._table = PackedTable(max(1, capacity))
        self._older: list[PackedTable] = []
        self._past_evictions = 0
        self._waiters: dict[bytes, list[Waiter]] = {}
        #: Indications under way that repeat a settled one, by its identity.
        self._repeats: dict[bytes, int] = {}
        self._names: list[str] = []
        self._indices: dict[str, int] = {}

    @property
    def entries(self) -> int:
        """Identities held, including expired ones not swept yet."""
        return self._table.entries + sum(table.entries for table in self._older)

    @property
    def evictions(self) -> int:
        """Identities dropped early because the memory was full."""
        return (
            self._past_evictions
            + self._table.evictions
            + sum(table.evictions for table in self._older)
        )

    def configure(self, *, window_seconds: float, capacity: int) -> None:
        """Change window and capacity, for identities added from now on."""
        self.window_seconds = window_seconds
        #: Of this run: no identity without ``expires`` is older.
        self.longest_window = max(self.longest_window, window_seconds)
        self._window = _window_ticks(window_seconds)
        if self._table.resize(max(1, capacity)):
            return
        self._older.insert(0, self._table)
        self._table = PackedTable(max(1, capacity))
        for table in self._older[MAXIMUM_OLDER_TABLES:]:
            self._past_evictions += table.evictions + table.entries
        del self._older[MAXIMUM_OLDER_TABLES:]

    # Intake.

    def find(self, digest: bytes, now: float | None = None) -> Original | None:
        """Return the result of the indication with this identity, or None. ``now`` (default: this
        moment) is when the line became ready: an identity that expires during its processing still
        counts (S1.3)."""
        found = self._table.find(digest)
        if found is None and not self._older:
            return None
        if now is None:
            now = self._clock.monotonic()
        return self._found(digest, found, int((now - self._epoch) * TICKS_PER_SECOND))

    def _found(
        self, digest: bytes, found: tuple[int, int, int] | None, now: int
    ) -> Original | None:
        if found is not None and found[0] <= now:
            # It would hide the record that may now be added.
            self._table.remove(digest)
            found = None
        if found is None:
            found = self._find_older(digest, now)
            if found is None:
                return None
        _, state, name = found
        if state >= _DISCARDED:
            reason, how = divmod(state - _DISCARDED, len(_HOW))
            return Original(
                pending=how in (_OTHERS_PENDING, _SOME_DELIVERED),
                destination=self._names[name],
                reason=_REASONS[reason],
                is_gone=how == _GONE,
            )
        return DELIVERED if state == _DELIVERED else IN_DELIVERY

    def _find_older(self, digest: bytes, now: int) -> tuple[int, int, int] | None:
        for table in [table for table in self._older if table.last_expiry <= now]:
            self._past_evictions += table.evictions
            self._older.remove(table)
        for table in self._older:
            found = table.find(digest)
            if found is not None and found[0] > now:
                return found
        return None

    def suspects(self, digests: Sequence[bytes | None]) -> Sequence[int]:
        """Return the indices of identities that may be known, or repeat one before; None has no
        identity."""
        return range(len(digests)) if self._older else self._table.suspects(digests)

    def add(self, digest: bytes, now: float, *, expires_at: float | None, pending: bool) -> None:
        """Add an identity that :meth:`find` does not know. ``now`` and ``expires_at`` (None: the
        window) are on ``Clock.monotonic()``; ``pending``: a target is not settled."""
        self.add_all((digest,), now, expires_at=expires_at, pending=pending)

    def add_all(
        self,
        digests: Iterable[bytes],
        now: float,
        *,
        expires_at: float | None = None,
        pending: bool = True,
    ) -> None:
        """Add identities that :meth:`find` does not know."""
        ticks = int((now - self._epoch) * TICKS_PER_SECOND)
        # Rounded up: a tick too long rather than too short.
        if expires_at is None:
            expiry = ticks + self._window
        else:
            expiry = max(0, int((expires_at - self._epoch) * TICKS_PER_SECOND)) + 1
        if expiry > LAST_TICK:
            expiry = LAST_TICK
        self._table.add(digests, expiry, _PENDING if pending else _DELIVERED, ticks)

    def restore_all(self, identities: Sequence[PlainIdentity], *, offset: float) -> None:
        """See ``IdentitySink``. Those that came at about the same time are one step."""
        window, origin, since = self._window, self._wall_origin(), offset + self._epoch
        together: list[bytes] = []
        expiry_of_all = state_of_all = 0
        for digest, accepted_at, expires, pending in identities:
            if expires:
                expiry = int((expires - origin) * TICKS_PER_SECOND) + 1
            else:
                expiry = int((accepted_at - since) * TICKS_PER_SECOND) + window
            state = _PENDING if pending else _DELIVERED
            if expiry != expiry_of_all or state != state_of_all:
                self._restore_together(together, expiry_of_all, state_of_all)
                together, expiry_of_all, state_of_all = [], expiry, state
            together.append(digest)
        self._restore_together(together, expiry_of_all, state_of_all)

    def _restore_together(self, digests: list[bytes], expiry: int, state: int) -> None:
        if digests and expiry > 0:
            self._table.restore_all(digests, min(expiry, LAST_TICK), state)

    def _wall_origin(self) -> float:
        """Return when ticks begin, in seconds since the epoch."""
        if self._origin is None:
            self._origin = self._clock.time() - self._clock.monotonic() + self._epoch
        return self._origin

    def restore(
        self,
        digest: bytes,
        *,
        accepted_at: float,
        expires: float | None,
        pending: bool,
        reason: DiscardReason | None,
        destination: str,
        delivered: bool = False,
        repeat: bool = False,
    ) -> None:
        """See ``IdentitySink``. Later records of an identity replace earlier ones; an expired one
        is not kept."""
        if expires is None:
            expiry = int((accepted_at - self._epoch) * TICKS_PER_SECOND) + self._window
        else:
            expiry = int((expires - self._wall_origin()) * TICKS_PER_SECOND) + 1
        if expiry <= 0:
            return
        if expiry > LAST_TICK:
            expiry = LAST_TICK
        found = self._table.find(digest) if repeat else None
        if found is not None:
            self._restore_repeated(digest, expiry, found, pending=pending, reason=reason)
        elif reason is not None:
            name = self._index_of(destination)
            how = _how(pending=pending, delivered=delivered)
            self._table.restore(digest, expiry, _discarded(reason, how), name)
        elif pending:
            state = _DELIVERED_SOMEWHERE if delivered else _PENDING
            self._table.restore(digest, expiry, state, 0)
        else:
            self._table.restore(digest, expiry, _DELIVERED, 0)

    def _restore_repeated(
        self,
        digest: bytes,
        expiry: int,
        found: tuple[int, int, int],
        *,
        pending: bool,
        reason: DiscardReason | None,
    ) -> None:
        _, state, name = found
        if state < _DISCARDED:
            # It was accepted anew before.
            return
        how = (state - _DISCARDED) % len(_HOW)
        is_reached = not pending and reason is None
        delivered = is_reached or how in (_SOME_DELIVERED, _DELIVERED_ELSEWHERE)
        state += _how(pending=pending, delivered=delivered) - how
        self._table.restore(digest, expiry, state, name)

    def forget(self, digest: bytes) -> None:
        """Remove the identity of an indication that was not kept."""
        for table in (self._table, *self._older):
            table.remove(digest)

    def ended(self, digests: Sequence[bytes]) -> list[tuple[DiscardReason | None, str] | None]:
        """See ``JournalOwner.identities``; a pending one has not been discarded."""
        now = int((self._clock.monotonic() - self._epoch) * TICKS_PER_SECOND)
        find = self._table.find
        ended: list[tuple[DiscardReason | None, str] | None] = []
        for digest in digests:
            found = find(digest)
            if found is not None and found[1] < _DISCARDED and found[0] > now:
                ended.append(_NOT_DISCARDED)
                continue
            original = self._found(digest, found, now)
            if original is None or original.is_gone:
                ended.append(None)
            else:
                ended.append((original.reason, original.destination or ""))
        return ended

    # Results.

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        """See ``Tracker``."""
        digest, left = indication.digest, indication.unsettled
        if digest is None:
            return
        if self._repeats and digest in self._repeats:
            left = self._repeats[digest] - 1
            if left:
                self._repeats[digest] = left
            else:
                del self._repeats[digest]
        for table in (self._table, *self._older):
            if discarded is not None:
                self._discard(table, digest, destination, discarded, left)
            elif not table.update(
                digest,
                state=_DELIVERED_SOMEWHERE if left else _DELIVERED,
                name=0,
                final=_DELIVERED if left else _DISCARDED,
            ):
                _deliver(table, digest, left)
        if left or not self._waiters:
            return
        # The first discarded target counts.
        original = self.find(digest) or Original(
            pending=False, destination=destination if discarded else None, reason=discarded
        )
        for waiter in self._waiters.pop(digest, ()):
            waiter.original_settled(digest, original)

    def _discard(
        self,
        table: PackedTable,
        digest: bytes,
        destination: str,
        reason: DiscardReason,
        left: int,
    ) -> None:
        # A discard at one target is kept, whatever happens at others.
        index = self._index_of(destination)
        state = _discarded(reason, _how(pending=left > 0, delivered=False))
        if table.update(digest, state=state, name=index, final=_DELIVERED):
            return
        found = table.find(digest)
        if found is None:
            return
        _, state, name = found
        if state < _DISCARDED:
            state, name = _discarded(reason, _how(pending=left > 0, delivered=True)), index
        elif not left:
            state = _settled(state)
        table.update(digest, state=state, name=name, final=LAST_STATE)

    def reopen(self, digest: bytes) -> None:
        """An indication is offered again to targets that missed it: it is pending until
        :meth:`conclude`, or until what :meth:`follow` follows is settled."""
        for table in (self._table, *self._older):
            found = table.find(digest)
            if found is not None and found[1] >= _DISCARDED:
                _, state, name = found
                how = (state - _DISCARDED) % len(_HOW)
                state += (_OTHERS_PENDING if how == _GONE else _SOME_DELIVERED) - how
                table.update(digest, state=state, name=name, final=LAST_STATE)

    def follow(self, indication: Indication, digest: bytes) -> None:
        """See ``Identities``."""
        if digest not in self._repeats:
            original = self.find(digest)
            if original is None or original.pending or original.reason is None:
                return
            self.reopen(digest)
        self._repeats[digest] = self._repeats.get(digest, 0) + 1
        indication.digest, indication.trackers = digest, (self,)

    def conclude(self, digest: bytes, original: Original) -> None:
        """The result of what was reopened; a target has it in any case."""
        is_another = False
        for table in (self._table, *self._older):
            found = table.find(digest)
            if found is None:
                continue
            state, name = _DELIVERED, 0
            if original.reason is not None and original.destination is not None:
                state = _discarded(original.reason, _DELIVERED_ELSEWHERE)
                name = self._index_of(original.destination)
            if found[1] >= _DISCARDED and (found[1] - _DISCARDED) % len(_HOW) == _SOME_DELIVERED:
                table.update(digest, state=state, name=name, final=LAST_STATE)
            else:
                # Its identity had expired, and was accepted anew.
                is_another = True
        for waiter in () if is_another else self._waiters.pop(digest, ()):
            waiter.original_settled(digest, original)

    def _index_of(self, destination: str) -> int:
        index = self._indices.get(destination)
        if index is not None:
            return index
        if len(self._names) >= _MAXIMUM_NAMES:
            destination = "(a destination removed since)"
            if len(self._names) > _MAXIMUM_NAMES:
                return _MAXIMUM_NAMES
        self._names.append(destination)
        self._indices[destination] = len(self._names) - 1
        return len(self._names) - 1

    # Waiting.

    def wait_for(self, digest: bytes, waiter: Waiter) -> None:
        """Tell ``waiter`` once, when the original is settled."""
        self._waiters.setdefault(digest, []).append(waiter)

    def stop_waiting(self, digest: bytes, waiter: Waiter) -> None:
        waiting = self._waiters.pop(digest, [])
        others = [other for other in waiting if other is not waiter]
        if others:
            self._waiters[digest] = others


def _window_ticks(seconds: float) -> int:
    # Rounding up would remember an identity for which there is no window.
    return math.ceil(seconds * TICKS_PER_SECOND) + 1 if seconds else 0


def _discarded(reason: DiscardReason, how: int) -> int:
    return _DISCARDED + len(_HOW) * _REASONS.index(reason) + how


def _how(*, pending: bool, delivered: bool) -> int:
    """Return the group of discarded states."""
    if pending:
        return _SOME_DELIVERED if delivered else _OTHERS_PENDING
    return _DELIVERED_ELSEWHERE if delivered else _GONE


def _settled(state: int) -> int:
    """Return the state of a discarded indication once nothing of it is pending."""
    how = (state - _DISCARDED) % len(_HOW)
    settled = {_OTHERS_PENDING: _GONE, _SOME_DELIVERED: _DELIVERED_ELSEWHERE}.get(how, how)
    return state - how + settled


def _deliver(table: PackedTable, digest: bytes, left: int) -> None:
    """Note a delivery of an indication discarded at another target; ``left``: targets not
    settled."""
    found = table.find(digest)
    if found is not None and found[1] >= _DISCARDED:
        _, state, name = found
        if (state - _DISCARDED) % len(_HOW) == _OTHERS_PENDING:
            state += _SOME_DELIVERED
        table.update(digest, state=state if left else _settled(state), name=name, final=LAST_STATE)
