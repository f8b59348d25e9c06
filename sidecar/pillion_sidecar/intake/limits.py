"""How much intake takes at a time: requests that are read, requests that wait for listeners, and
bytes of bodies.

Reading and waiting have separate shares: publishers that wait for a listener never keep others from
publishing. Where publishers show tokens, none takes all of a share.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from pillion_sidecar.auth.principal import Principal
from pillion_sidecar.clock import Clock

#: Requests that are read, or wait for the disk, at a time.
MOST_READING = 480
#: Requests that wait for listeners at a time: ``ack=delivered``, flushes, receipts.
MOST_WAITING = 480

#: Called with the reason when the gate closes.
Interrupt: TypeAlias = Callable[[str], None]
#: Bytes of all bodies that are held while the rest of them comes.
MOST_BODY_BYTES = 64 << 20
#: Seconds that a body has before it may have to give way to others.
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """The bounds of a request. Sizes in bytes, times in seconds."""

    line_bytes: int = 1 << 20
    #: A streamed body: NDJSON.
    stream_bytes: int = 1 << 30
    #: A batch of CloudEvents, which is held whole. Single documents are as long as a line.
    document_bytes: int = 16 << 20
    #: A body must bring ``progress_bytes`` in each such period, or end.
    idle_seconds: float = 30.0
    progress_bytes: int = 256
    #: The longest time that a publisher may wait for an answer.
    wait_seconds: float = 3600.0


class Share:
    """A number of slots of one kind.

    A principal gets another slot while it holds fewer than are free. So one alone gets half of
    them, two a third each, and a slot is left for the next one. Requests without a principal may
    take all slots.
    """

    __slots__ = ("_by_principal", "_maximum", "taken")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        #: Slots in use.
        self.taken = 0
        self._by_principal: Counter[Principal] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether no slot is left."""
        return self.taken >= self._maximum

    def take(self, principal: Principal | None) -> bool:
        """Take a slot; return whether there was one."""
        free = self._maximum - self.taken
        if free <= 0:
            return False
        if principal is not None:
            if self._by_principal[principal] >= free:
                return False
            self._by_principal[principal] += 1
        self.taken += 1
        return True

    def give(self, principal: Principal | None) -> None:
        """Give a slot back."""
        self.taken -= 1
        if principal is not None:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]


@dataclass(slots=True, eq=False)
class RequestSlot:
    """What one request holds of the gate's shares."""

    gate: "IntakeGate"
    principal: Principal | None
    #: The publisher's; None without tokens.
    namespace: str | None
    interrupt: Interrupt | None = None
    is_reading: bool = False
    may_wait: bool = False

    def reserve_wait(self) -> str | None:
        """Take a slot to wait for listeners; return why there is none."""
        if not self.gate.waiting.take(self.principal):
            return (
                "too many requests wait for listeners already; ask for ack=accepted or"
                " ack=durable, or wait for fewer requests at a time"
            )
        self.may_wait = True
        return None

    def stop_reading(self) -> None:
        """Give the slot to be read back: all of the request is read."""
        if self.is_reading:
            self.is_reading = False
            self.gate.requests.discard(self)
            self.gate.reading.give(self.principal)

    def release(self) -> None:
        """Give every slot back: the request has been answered, or its client is gone."""
        self.stop_reading()
        if self.may_wait:
            self.may_wait = False
            self.gate.waiting.give(self.principal)


class IntakeGate:
    """Closed until the configuration is loaded, and again from shutdown on."""

    def __init__(self, *, reading: int = MOST_READING, waiting: int = MOST_WAITING) -> None:
        self._reason: str | None = "the configuration is not loaded yet"
        self.reading = Share(reading)
        self.waiting = Share(waiting)
        #: Those that are being read.
        self.requests: set[RequestSlot] = set()

    @property
    def is_open(self) -> bool:
        """Whether publishers are served."""
        return self._reason is None

    def problem(self) -> str | None:
        """Return why publishers are not served, for a probe."""
        if not self.is_open:
            return "intake is closed"
        if self.reading.is_full:
            return "as many requests are being read as may be"
        return None

    def open(self) -> None:
        """Serve publishers from now on."""
        self._reason = None

    def close(self, reason: str) -> None:
        """Answer 503 with a reason from now on, and interrupt the requests that are being read."""
        self._reason = reason
        for slot in list(self.requests):
            if slot.interrupt is not None:
                slot.interrupt(reason)

    def enter(
        self, interrupt: Interrupt, *, principal: Principal | None = None
    ) -> RequestSlot | str:
        """Take a slot to read one request, or return why there is none. The caller must release
        it."""
        if self._reason is not None:
            return self._reason
        if not self.reading.take(principal):
            return f"too many requests are being read already{_of(principal)}"
        namespace = None if principal is None else principal.namespace
        slot = RequestSlot(self, principal, namespace, interrupt, is_reading=True)
        self.requests.add(slot)
        return slot

    def ask(self, *, principal: Principal | None = None) -> RequestSlot:
        """Return a slot for a request that publishes nothing, whether or not intake is open."""
        return RequestSlot(self, principal, None if principal is None else principal.namespace)


def _of(principal: Principal | None) -> str:
    return "" if principal is None else f", or too many of them are of {principal}"


@dataclass(slots=True, eq=False)
class HeldBody:
    """A body that has come in part."""

    budget: "BodyBudget"
    #: Ends its reading; returns whether any was left.
    crowd_out: Callable[[], bool]
    principal: Principal | None
    began: float
    size: int = 0

    def hold(self, size: int) -> None:
        """Account for ``size`` bytes. Without memory for them, another body is ended, or this."""
        if size != self.size:
            self.budget.resize(self, size)


class BodyBudget:
    """Shares memory among bodies.

    Without memory left, the oldest body of the principal that holds most is ended; the one that
    needs more, where all of those are younger than ``GRACE_SECONDS``.
    """

    def __init__(self, *, clock: Clock, maximum: int = MOST_BODY_BYTES) -> None:
        self._clock = clock
        self._maximum = maximum
        # In the order in which they began.
        self._bodies: dict[HeldBody, None] = {}
        #: Bytes that are held.
        self.used = 0

    @contextmanager
    def holding(
        self, crowd_out: Callable[[], bool], *, principal: Principal | None
    ) -> Iterator[HeldBody]:
        """Account for a body while the context lasts."""
        body = HeldBody(self, crowd_out, principal, self._clock.monotonic())
        self._bodies[body] = None
        try:
            yield body
        finally:
            if body in self._bodies:
                self._release(body)

    def resize(self, body: HeldBody, size: int) -> None:
        """See ``HeldBody.hold``."""
        if body not in self._bodies:
            # It was ended; its next read raises.
            return
        self.used += size - body.size
        body.size = size
        while self.used > self._maximum:
            leaving = self._next_to_end(body)
            self._release(leaving)
            if leaving is body:
                return

    def _release(self, body: HeldBody) -> None:
        del self._bodies[body]
        self.used -= body.size

    def _next_to_end(self, newcomer: HeldBody) -> HeldBody:
        held = Counter[Principal | None]()
        for body in self._bodies:
            held[body.principal] += body.size
        greedy = max(held, key=lambda principal: held[principal])
        before = self._clock.monotonic() - GRACE_SECONDS
        for body in self._bodies:
            is_due = body.principal == greedy and body.size and body.began <= before
            if is_due and body.crowd_out():
                return body
        newcomer.crowd_out()
        return newcomer
