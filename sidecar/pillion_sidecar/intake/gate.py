"""Whether intake is open, and how many requests are read, and wait for listeners, at a time.

The two have separate shares: publishers that wait for a listener never keep others from publishing.
Where publishers show tokens, none takes all of a share.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pillion_sidecar.auth.principal import Principal

#: Requests that are read, or wait for the disk, at a time.
MOST_READING = 480
#: Requests that wait for listeners at a time: ``ack=delivered``, flushes, receipts.
MOST_WAITING = 480

#: Called with the reason when the gate closes.
Interrupt: TypeAlias = Callable[[str], None]


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
