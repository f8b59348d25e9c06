"""Limits of intake: requests being read, requests waiting for listeners, and bytes of bodies.
Reading and waiting have separate shares: waiting publishers never keep others from publishing. With
tokens, no publisher takes a whole share."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from pillion_sidecar.auth.principal import Principal
from pillion_sidecar.clock import Clock

#: Concurrent requests that are read or wait for the disk.
MOST_READING = 480
#: Concurrent requests that wait for listeners: ``ack=delivered``, flushes, receipts.
MOST_WAITING = 480

#: Why nothing is served before the first configuration.
NOT_CONFIGURED = "the configuration is not loaded yet"

#: Called with the reason when the gate closes.
Interrupt: TypeAlias = Callable[[str], None]
#: Total bytes of incomplete bodies.
MOST_BODY_BYTES = 64 << 20
#: Seconds before a body may be ended in favor of others.
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """Limits of a request, in bytes and seconds."""

    line_bytes: int = 1 << 20
    #: A streamed body: NDJSON.
    stream_bytes: int = 1 << 30
    #: A batch of CloudEvents, which is buffered. Other documents have the limit of a line.
    document_bytes: int = 16 << 20
    #: A body must bring ``progress_bytes`` in each such period.
    idle_seconds: float = 30.0
    progress_bytes: int = 256
    #: Maximum wait for an answer.
    wait_seconds: float = 3600.0


class Share:
    """A number of slots. A principal gets another slot while it holds fewer than are free: one
    alone gets half, two a third each, and one slot stays for the next. Requests without a principal
    may take all."""

    __slots__ = ("_by_principal", "_maximum", "taken")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.taken = 0
        self._by_principal: Counter[Principal] = Counter()

    @property
    def is_full(self) -> bool:
        return self.taken >= self._maximum

    def take(self, principal: Principal | None) -> bool:
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
        self.taken -= 1
        if principal is not None:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]


@dataclass(slots=True, eq=False)
class RequestSlot:
    gate: "IntakeGate"
    principal: Principal | None
    #: None without tokens.
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
        """Release the slot for reading: the request is read."""
        if self.is_reading:
            self.is_reading = False
            self.gate.requests.discard(self)
            self.gate.reading.give(self.principal)

    def release(self) -> None:
        self.stop_reading()
        if self.may_wait:
            self.may_wait = False
            self.gate.waiting.give(self.principal)


class IntakeGate:
    """Closed until the configuration is loaded, and from shutdown on."""

    def __init__(self, *, reading: int = MOST_READING, waiting: int = MOST_WAITING) -> None:
        self._reason: str | None = NOT_CONFIGURED
        self.reading = Share(reading)
        self.waiting = Share(waiting)
        #: Requests being read.
        self.requests: set[RequestSlot] = set()

    @property
    def is_open(self) -> bool:
        return self._reason is None

    @property
    def reason(self) -> str | None:
        """Why it is closed."""
        return self._reason

    def problem(self) -> str | None:
        """Return why publishers are not served, for a probe."""
        if not self.is_open:
            return "intake is closed"
        if self.reading.is_full:
            return "as many requests are being read as may be"
        return None

    def open(self) -> None:
        self._reason = None

    def close(self, reason: str) -> None:
        """Answer 503 with the reason from now on; interrupt the requests being read."""
        self._reason = reason
        for slot in list(self.requests):
            if slot.interrupt is not None:
                slot.interrupt(reason)

    def enter(
        self,
        interrupt: Interrupt,
        *,
        principal: Principal | None = None,
        while_closed: bool = False,
    ) -> RequestSlot | str:
        """Take a slot to read a request, or return why there is none. The caller releases it.

        ``while_closed``: for a request that publishes nothing, and is not interrupted.
        """
        if self._reason is not None and not while_closed:
            return self._reason
        if not self.reading.take(principal):
            return f"too many requests are being read already{_of(principal)}"
        namespace = None if principal is None else principal.namespace
        heard = None if while_closed else interrupt
        slot = RequestSlot(self, principal, namespace, heard, is_reading=True)
        self.requests.add(slot)
        return slot

    def ask(self, *, principal: Principal | None = None) -> RequestSlot:
        """Return a slot for a request that publishes nothing, even while intake is closed."""
        return RequestSlot(self, principal, None if principal is None else principal.namespace)


def _of(principal: Principal | None) -> str:
    return "" if principal is None else f", or too many of them are of {principal}"


@dataclass(slots=True, eq=False)
class HeldBody:
    """A partly received body."""

    budget: "BodyBudget"
    #: Ends its reading; returns whether any was left.
    crowd_out: Callable[[], bool]
    principal: Principal | None
    began: float
    size: int = 0

    def hold(self, size: int) -> None:
        if size != self.size:
            self.budget.resize(self, size)


class BodyBudget:
    """Divides memory among bodies. If it is exhausted, the oldest body of the principal that holds
    most is ended; if all of those are younger than ``GRACE_SECONDS``, the one that needs more."""

    def __init__(self, *, clock: Clock, maximum: int = MOST_BODY_BYTES) -> None:
        self._clock = clock
        self._maximum = maximum
        # In the order of their beginning.
        self._bodies: dict[HeldBody, None] = {}
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
        if body not in self._bodies:
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
