"""The ends of message groups: by their members, and by time (S1.6, S1.7)."""

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.reliability.groupholding import HeldMembers
from pillion_sidecar.reliability.groupnames import Key, Name, Names
from pillion_sidecar.reliability.groups import Due, GroupState, Moment, Termination, removal

logger = logging.getLogger("pillion.reliability")

#: Gaps that are told in a log record.
_GAPS_TOLD = 8
#: By how many seconds the two clocks may drift apart before all timers are set anew.
_CLOCK_STEP = 1.0
#: Seconds: a timer that came too early is not set nearer than this.
_LEAST_WAIT = 0.001


class GroupTimes:
    """Ends groups and removes their state when that is due."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        names: Names,
        held: HeldMembers,
        ended: Callable[[GroupState], None],
    ) -> None:
        """``ended`` is told of each group that ends, once what it held is discarded."""
        self._ended = ended
        self._clock = clock
        self._timers = timers
        self._names = names
        self._held = held
        # The wall clock less the other one, when the timers were set.
        self._drift = clock.time() - clock.monotonic()
        #: Whether groups end without a word, since that was said before.
        self.quiet = False
        self.terminations: Counter[str] = Counter(dict.fromkeys(Termination, 0))

    def terminate(
        self, name: Name, how: Termination, moment: Moment, *, discarded: int = 0
    ) -> None:
        """End the live group of a name; ``discarded``: of its members before those it holds."""
        state = name.live
        assert state is not None
        self._names.leave(name)
        name.live = None
        state.terminated = how
        if removal(state, moment) > moment.monotonic:
            name.remember(state)
        self._names.enter(name)
        discarded += self._held.terminate(name)
        if not self.quiet:
            self._ended(state)
            self.terminations[how] += 1
            _log_termination(name.key, state, discarded)

    def lapse(self, name: Name, moment: Moment) -> None:
        """Do all that is due to a name."""
        while (following := name.next_due(moment)) is not None:
            found, state = following
            if found.at > moment.monotonic:
                return
            self._do(name, state, found, moment)

    def _do(self, name: Name, state: GroupState, found: Due, moment: Moment) -> None:
        if found.termination is not None:
            self.terminate(name, found.termination, moment)
            return
        self._names.leave(name)
        name.past.remove(state)
        self._names.enter(name)

    def arm(self, name: Name, moment: Moment, *, least_wait: float = 0.0) -> None:
        """See to it that the name is looked at when something is due to it."""
        following = name.next_due(moment)
        if following is None:
            return
        at = max(following[0].at, moment.monotonic + least_wait)
        timer = name.timer
        if timer is not None:
            # One that comes too early looks again: an active group sets no timer for each member.
            if not timer.cancelled and timer.due <= at:
                return
            timer.cancel()
        name.timer = self._timers.call_at(at, lambda: self._wake(name))

    def _wake(self, name: Name) -> None:
        moment = self.now()
        self.lapse(name, moment)
        self.arm(name, moment, least_wait=_LEAST_WAIT)

    def follow_clock(self, moment: Moment) -> None:
        """Look at all names where the wall clock was set: the dates are nearer, or farther away,
        than they were."""
        drift = moment.wall - moment.monotonic
        if abs(drift - self._drift) > _CLOCK_STEP:
            self._drift = drift
            self.catch_up()

    def catch_up(self) -> None:
        """Do what is due to all names, oldest first, and set their timers."""
        moment = self.now()
        names = list(self._names)
        waiting = list(_all_due(enumerate(names), moment))
        heapq.heapify(waiting)
        while waiting and waiting[0][0] <= moment.monotonic:
            index = heapq.heappop(waiting)[1]
            following = names[index].next_due(moment)
            assert following is not None
            self._do(names[index], following[1], following[0], moment)
            for again in _all_due([(index, names[index])], moment):
                heapq.heappush(waiting, again)
        for name in list(self._names):
            self.arm(name, moment)

    def now(self) -> Moment:
        """Return this moment."""
        return Moment(self._clock.monotonic(), self._clock.time())


def _all_due(names: Iterable[tuple[int, Name]], moment: Moment) -> Iterator[tuple[float, int]]:
    for index, name in names:
        following = name.next_due(moment)
        if following is not None:
            yield following[0].at, index


def _log_termination(key: Key, state: GroupState, discarded: int) -> None:
    gaps = state.missing(maximum=_GAPS_TOLD + 1)
    told = [str(low) if low == high else f"{low}-{high}" for low, high in gaps[:_GAPS_TOLD]]
    if len(gaps) > _GAPS_TOLD:
        told.append("…")
    logger.log(
        logging.WARNING if gaps or discarded else logging.INFO,
        "a message group has ended (%s)",
        state.terminated,
        extra={
            "event": "group-terminated",
            "group": key[1],
            "source": key[0],
            "termination": str(state.terminated),
            "missing": ",".join(told) or None,
            "held_discarded": discarded,
        },
    )
