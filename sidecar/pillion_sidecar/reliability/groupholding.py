"""The members of ordered groups that wait for their predecessors (S1.5), and their way on."""

from pillion_sidecar.delivery.reasons import DiscardReason
from pillion_sidecar.indication import Indication
from pillion_sidecar.intake.ports import Queues
from pillion_sidecar.reliability.groupnames import GroupLimits, Name
from pillion_sidecar.reliability.states import Guard, State, Transition, step


class HeldMembers:
    """Holds members, and sends them on as the table of states has it."""

    def __init__(self, *, queues: Queues, limits: GroupLimits) -> None:
        self._queues = queues
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
        self._reprocess(name, sequence, Guard.COMPLETED)

    def terminate(self, name: Name) -> int:
        """The live group of a name ends; return how many members that discards."""
        sequences = sorted(name.held)
        for sequence in sequences:
            self._reprocess(name, sequence, Guard.TERMINATED)
        return len(sequences)

    def _reprocess(self, name: Name, sequence: int, found: Guard) -> None:
        indication = name.held.pop(sequence, None)
        if indication is not None:
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
