"""The members of ordered groups that wait for their predecessors (S1.5), and their way on."""

from collections import deque

from pillion_sidecar.clock import Timers
from pillion_sidecar.delivery.reasons import DiscardReason
from pillion_sidecar.indication import Indication
from pillion_sidecar.intake.ports import Queues
from pillion_sidecar.reliability.groupnames import GroupLimits, Name
from pillion_sidecar.reliability.states import Guard, State, Transition, step

#: Discards, each with its log line, before the event loop gets its turn.
DISCARDS_PER_TURN = 128


class HeldMembers:
    """Holds members, and sends them on as the table of states has it."""

    def __init__(self, *, queues: Queues, timers: Timers, limits: GroupLimits) -> None:
        self._queues = queues
        self._timers = timers
        # Members of groups that have ended, which are still to be discarded.
        self._ended: deque[Indication] = deque()
        self._limits = limits
        self.count = 0
        self.bytes = 0

    def reason_to_wait(self, size: int) -> str | None:
        """Return why a body of ``size`` bytes cannot be held now; None where it can."""
        if self.count >= self._limits.held:
            return f"{self.count} members of groups wait for their predecessors already"
        if self.bytes + size > self._limits.held_bytes:
            return (
                f"the members of groups that wait for their predecessors have {self.bytes} bytes"
                " already"
            )
        return None

    def hold(self, name: Name, sequence: int, indication: Indication) -> None:
        """Keep a member that the queues hold."""
        name.held[sequence] = indication
        self.count += 1
        self.bytes += len(indication.body)

    def complete(self, name: Name, sequence: int) -> None:
        """Nothing is missing before a member any more."""
        indication = name.held.pop(sequence, None)
        if indication is not None:
            self._reprocess(indication, Guard.COMPLETED)

    def terminate(self, name: Name) -> int:
        """The live group of a name ends; return how many members that discards, in turns."""
        ended = [name.held[sequence] for sequence in sorted(name.held)]
        name.held.clear()
        is_under_way = bool(self._ended)
        self._ended.extend(ended)
        if not is_under_way:
            self._discard_some()
        return len(ended)

    def _discard_some(self) -> None:
        for _ in range(min(DISCARDS_PER_TURN, len(self._ended))):
            self._reprocess(self._ended.popleft(), Guard.TERMINATED)
        if self._ended:
            self._timers.call_later(0.0, self._discard_some)

    def _reprocess(self, indication: Indication, found: Guard) -> None:
        self.count -= 1
        self.bytes -= len(indication.body)
        self.move_on(indication, found)

    def move_on(self, indication: Indication, found: Guard) -> None:
        """Let a member leave ``out-of-order``, completed or terminated."""
        state = step(State.OUT_OF_ORDER, found).to
        then = Guard.IN_SEQUENCE if found is Guard.COMPLETED else Guard.HOPELESS
        if step(state, then).transition is Transition.DELIVER:
            self._queues.release(indication)
        else:
            self.discard(indication)

    def discard(self, indication: Indication) -> None:
        """Discard a member that the queues hold."""
        self._queues.discard_held(indication, DiscardReason.OUT_OF_ORDER)
