"""Hand-over: what is left of a deliverer's queues goes to a gateway before it ends (the design's
"Shutdown").

A queue that is suspended is handed over at once; every other one is tried once, and is handed over
when that fails; one that delivers goes on until half of the time is over. Where the gateway does
not take what a listener has taken until then, that listener gets it on: once, so that two that fail
are not tried in turns.
"""

from dataclasses import dataclass
from typing import Protocol

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.resources import ListenerDestination
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.relaying import as_handed_over

#: The least seconds that a gateway has to answer, whatever is left of the grace period.
LEAST_TIMEOUT = 1.0


class Redirect(Protocol):
    """Has a queue begin anew with another destination: what was under way is abandoned."""

    def __call__(
        self, queue: DestinationQueue, destination: ListenerDestination, *, sends: bool
    ) -> None:
        """``sends``: whether sequence identifiers are sent to it."""


@dataclass(slots=True)
class _Course:
    """What has happened to one queue since the end began."""

    destination: ListenerDestination
    sends_identifiers: bool
    delivered: int
    #: Where its own listener may get it again.
    returns: bool = False


class HandOver:
    """Hands the queues of a deliverer that ends over to one gateway."""

    def __init__(
        self,
        gateway: str,
        *,
        grace_seconds: float,
        clock: Clock,
        timers: Timers,
        redirect: Redirect,
    ) -> None:
        """``gateway`` is the name of its service."""
        self._gateway = gateway
        self._grace = grace_seconds
        self._clock = clock
        self._timers = timers
        self._redirect = redirect
        self._began = clock.monotonic()
        self._courses: dict[DestinationQueue, _Course] = {}

    def begin(self, queues: list[DestinationQueue]) -> None:
        """Begin with those that hold anything; what is relayed anyway is on its way."""
        for queue in queues:
            # What was accepted last may still be on its way to the disk.
            holds = queue.depth or queue.reserved
            if holds and queue.relay_to is None and not queue.draining:
                self._courses[queue] = _Course(
                    queue.destination, queue.sends_identifiers, queue.delivered
                )
        for queue in list(self._courses):
            if queue.suspended:
                self._hand_over(queue)
        self._half = self._timers.call_later(self._grace / 2, self._hand_over_all)

    def failed(self, queue: DestinationQueue) -> None:
        """An attempt has failed, at the listener or at the gateway."""
        course = self._courses.get(queue)
        if course is None:
            return
        if not queue.hands_over:
            if queue.destination is course.destination and not course.returns:
                self._hand_over(queue)
        elif course.returns:
            self._redirect(queue, course.destination, sends=course.sends_identifiers)

    def _hand_over_all(self) -> None:
        for queue in list(self._courses):
            if queue.depth and not queue.hands_over:
                self._courses[queue].returns = True
                self._hand_over(queue)

    def _hand_over(self, queue: DestinationQueue) -> None:
        left = self._began + self._grace - self._clock.monotonic()
        timeout = max(LEAST_TIMEOUT, left / 2)
        own = self._courses[queue].destination
        handed_over = as_handed_over(
            own, durability=queue.durability, gateway=self._gateway, timeout=timeout
        )
        self._redirect(queue, handed_over, sends=True)

    def end(self) -> None:
        """Hand over nothing more, and say of each destination what has become of it."""
        self._half.cancel()
        seconds = self._clock.monotonic() - self._began
        for queue, course in self._courses.items():
            delivered = queue.delivered - course.delivered
            events.handed_over(queue, self._gateway, delivered=delivered, seconds=seconds)
