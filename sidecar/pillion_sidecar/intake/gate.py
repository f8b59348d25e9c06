"""Whether intake is open, how many requests are read at a time, and how many publishers may wait.

Reading and waiting have separate shares: publishers that wait for a listener never keep others from
publishing. Where publishers show who they are, none takes all of a share.
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

#: Told why the gate closes.
Interrupt: TypeAlias = Callable[[str], None]


class Share:
    """Places of one kind.

    A principal gets another place while it holds fewer than are free. So one alone gets half of
    them, two a third each, and a place is left for the next one. Those of whom nothing is
    known share all places.
    """

    __slots__ = ("_by_principal", "_maximum", "taken")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        #: Places that are taken.
        self.taken = 0
        self._by_principal: Counter[Principal] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether there is no place for anybody."""
        return self.taken >= self._maximum

    def take(self, principal: Principal | None) -> bool:
        """Take a place; return whether there was one."""
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
        """Give a place back."""
        self.taken -= 1
        if principal is not None:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]


@dataclass(slots=True, eq=False)
class Visit:
    """One request inside: what it holds of the gate's shares."""

    gate: "IntakeGate"
    principal: Principal | None
    #: The publisher's; None where no token is required.
    namespace: str | None
    interrupt: Interrupt | None = None
    is_reading: bool = False
    has_place_to_wait: bool = False

    def reserve_wait(self) -> str | None:
        """Take a place to wait for listeners; return why there is none."""
        if not self.gate.waiting.take(self.principal):
            return (
                "too many requests wait for listeners already; ask for ack=accepted or"
                " ack=durable, or wait for fewer requests at a time"
            )
        self.has_place_to_wait = True
        return None

    def begin_waiting(self) -> None:
        """Give the place to be read to another request: all of this one is read."""
        if self.has_place_to_wait and self.is_reading:
            self.gate.stop_reading(self)

    def leave(self) -> None:
        """Give every place back: the request has been answered, or its client is gone."""
        if self.is_reading:
            self.gate.stop_reading(self)
        if self.has_place_to_wait:
            self.has_place_to_wait = False
            self.gate.waiting.give(self.principal)


class IntakeGate:
    """Closed until the configuration is loaded, and again from shutdown on."""

    def __init__(self, *, reading: int = MOST_READING, waiting: int = MOST_WAITING) -> None:
        self._reason: str | None = "the configuration is not loaded yet"
        self._reading = Share(reading)
        self._inside: set[Visit] = set()
        self.waiting = Share(waiting)

    @property
    def is_open(self) -> bool:
        """Whether publishers are let in."""
        return self._reason is None

    def problem(self) -> str | None:
        """Why publishers are not let in, for a probe."""
        if not self.is_open:
            return "intake is closed"
        if self._reading.is_full:
            return "as many requests are being read as may be"
        return None

    def open(self) -> None:
        """Let publishers in."""
        self._reason = None

    def close(self, reason: str) -> None:
        """Answer 503 with a reason from now on, and interrupt the requests that are being read."""
        self._reason = reason
        for visit in list(self._inside):
            if visit.interrupt is not None:
                visit.interrupt(reason)

    def enter(self, interrupt: Interrupt, *, principal: Principal | None = None) -> Visit | str:
        """Let one request in to be read, or return why not. The caller must call ``leave``."""
        if self._reason is not None:
            return self._reason
        if not self._reading.take(principal):
            return f"too many requests are being read already{_of(principal)}"
        namespace = None if principal is None else principal.namespace
        visit = Visit(self, principal, namespace, interrupt, is_reading=True)
        self._inside.add(visit)
        return visit

    def ask(self, *, principal: Principal | None = None) -> Visit:
        """Let one in who publishes nothing, whether or not intake is open."""
        return Visit(self, principal, None if principal is None else principal.namespace)

    def stop_reading(self, visit: Visit) -> None:
        """Take the place to be read from a request."""
        visit.is_reading = False
        self._inside.discard(visit)
        self._reading.give(visit.principal)


def _of(principal: Principal | None) -> str:
    return "" if principal is None else f", or too many of them are of {principal}"
