"""Duplicates that are offered again to those targets that missed their original: of requests with
``redeliver=true``."""

from collections.abc import Sequence
from typing import NamedTuple

from pillion_sidecar.clock import Clock
from pillion_sidecar.indication import DiscardReason, Indication, Lost, Redelivery, Refusal
from pillion_sidecar.reliability.duplicates import DuplicateMemory, Original

#: Lines of one request that are offered again, and bytes of them in all requests. The others are
#: refused for now, since they wait in memory until the history was read.
MOST_LINES = 10_000
MOST_BYTES = 32 << 20
RETRY_AFTER = 1.0
#: Seconds that the times of outcomes may differ from those of the identities.
SLACK_SECONDS = 60.0


class Healing:
    """Follows one indication that is offered again, and tells the memory of identities what became
    of it. Until then its identity is pending, so that no other repeat of it is offered too."""

    def __init__(self, memory: DuplicateMemory, lost: Lost) -> None:
        self._memory = memory
        self._lost = lost
        self._settled = 0
        self._failed: tuple[str, DiscardReason] | None = None
        self._is_closed = False
        memory.reopen(lost.digest)

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        self._settled += 1
        if discarded is not None:
            self._failed = self._failed or (destination, discarded)
        self._conclude()

    def close(self) -> None:
        """It is offered to no further target. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._conclude()

    @property
    def original(self) -> Original:
        """The result so far."""
        pending = self._settled < self._lost.offered
        destination, reason = self._lost.still or self._failed or (None, None)
        return Original(pending=pending, destination=destination, reason=reason)

    def _conclude(self) -> None:
        original = self.original
        if self._is_closed and not original.pending:
            self._memory.conclude(self._lost.digest, original)


class Repeated(NamedTuple):
    line: int
    lost: Lost
    healing: Healing


class Redeliveries:
    """Of the whole deliverer."""

    def __init__(self, *, memory: DuplicateMemory, clock: Clock, redelivery: Redelivery) -> None:
        self.memory = memory
        self.clock = clock
        self.redelivery = redelivery
        #: Bytes of the lines that wait.
        self.bytes = 0


class RepeatedLines:
    """The lines of one request that are offered again."""

    def __init__(self, of_all: Redeliveries) -> None:
        self._all = of_all
        self._repeated: list[Repeated] = []
        self._bytes = 0
        # Whether an identity may be older than the window.
        self._has_expiry = False

    def __len__(self) -> int:
        return len(self._repeated)

    def add(
        self,
        indication: Indication,
        digest: bytes,
        original: Original,
        line: int,
        *,
        has_expiry: bool,
    ) -> Refusal | None:
        """Keep a duplicate whose original is settled, and was discarded somewhere."""
        assert original.destination is not None
        assert original.reason is not None
        size = len(indication.body)
        if len(self._repeated) >= MOST_LINES or self._all.bytes + size > MOST_BYTES:
            reason = "too many lines are to be redelivered at a time; send this one again"
            return Refusal(RETRY_AFTER, reason)
        self._bytes += size
        self._all.bytes += size
        self._has_expiry = self._has_expiry or has_expiry
        lost = Lost(
            digest=digest, indication=indication, still=(original.destination, original.reason)
        )
        healing = Healing(self._all.memory, lost)
        indication.trackers = (healing,)
        self._repeated.append(Repeated(line, lost, healing))
        return None

    async def redeliver(self) -> Sequence[Repeated]:
        """Offer them again, and return them."""
        since = None
        if not self._has_expiry:
            since = self._all.clock.time() - self._all.memory.longest_window - SLACK_SECONDS
        repeated = self._repeated
        try:
            await self._all.redelivery.redeliver([one.lost for one in repeated], since=since)
        except OSError as error:
            unread = Refusal(RETRY_AFTER, f"the history cannot be read: {error.strerror or error}")
            for one in repeated:
                one.lost.refusal = unread
        finally:
            self.close()
        return repeated

    def close(self) -> None:
        """No line is offered any more. Idempotent."""
        repeated, self._repeated = self._repeated, []
        self._all.bytes -= self._bytes
        self._bytes = 0
        for one in repeated:
            # What was offered has its own.
            one.lost.indication.body = b""
            one.healing.close()
