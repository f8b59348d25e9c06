"""The memory that the bodies being read may take together."""

from collections import Counter
from collections.abc import Callable
from typing import Self

from pillion_sidecar.clock import Clock
from pillion_sidecar.door.principal import Principal

#: Bytes of all bodies that are held while the rest of them comes.
MOST_BODY_BYTES = 64 << 20
#: Seconds that a body has before it may have to give way to others.
GRACE_SECONDS = 5.0


class HeldBody:
    """A body whose beginning is held."""

    __slots__ = ("_budget", "began", "crowd_out", "principal", "size")

    def __init__(
        self,
        budget: "BodyBudget",
        crowd_out: Callable[[], bool],
        *,
        principal: Principal | None,
        began: float,
    ) -> None:
        self._budget = budget
        self.crowd_out = crowd_out
        self.principal = principal
        self.began = began
        self.size = 0

    def __enter__(self) -> Self:
        self._budget.begin(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self._budget.end(self)

    def hold(self, size: int) -> None:
        """So many bytes of it are held now. Where there is no room for them, another body ends, or
        this one."""
        if size != self.size:
            self._budget.resize(self, size)


class BodyBudget:
    """Shares memory among bodies.

    Where it is all taken, the body gives way that has been coming for longest, of the principal
    that holds most; the one that needs more, where none has had its time yet.
    """

    def __init__(self, *, clock: Clock, maximum: int = MOST_BODY_BYTES) -> None:
        self._clock = clock
        self._maximum = maximum
        # In the order in which they began.
        self._bodies: dict[HeldBody, None] = {}
        #: Bytes that are held.
        self.used = 0

    def holding(self, crowd_out: Callable[[], bool], *, principal: Principal | None) -> HeldBody:
        """Hold a body while the context lasts. ``crowd_out`` ends its reading, and returns whether
        there was any left to end."""
        return HeldBody(self, crowd_out, principal=principal, began=self._clock.monotonic())

    def begin(self, body: HeldBody) -> None:
        """Its reading begins."""
        self._bodies[body] = None

    def end(self, body: HeldBody) -> None:
        """Its reading has ended; it may have given way before."""
        if body in self._bodies:
            self._release(body)

    def resize(self, body: HeldBody, size: int) -> None:
        """See ``HeldBody.hold``."""
        if body not in self._bodies:
            # It had to give way, and hears of it at its next read.
            return
        self.used += size - body.size
        body.size = size
        while self.used > self._maximum:
            leaving = self._giving_way(body)
            self._release(leaving)
            if leaving is body:
                return

    def _release(self, body: HeldBody) -> None:
        del self._bodies[body]
        self.used -= body.size

    def _giving_way(self, newcomer: HeldBody) -> HeldBody:
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
