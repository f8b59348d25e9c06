"""A copy of the journal of a deliverer that is gone, as lines for the gateway's relay door."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import RELAY, Delivery
from pillion_sidecar.delivery.sequence import SEQUENCE_LIMIT, GroupGaps
from pillion_sidecar.handlers.relay import render_line
from pillion_sidecar.indication import Indication
from pillion_sidecar.intake.adoption import NOTHING, HeldMember, Line
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.ports import NoIdentities, RecoveredQueue, RecoveredSubscription
from pillion_sidecar.journal.recovery import Recovery, recover
from pillion_sidecar.journal.segment_reader import IndicationReader


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedDestination:
    """An ``AdoptedQueue``."""

    name: str
    #: Columns.
    positions: "array[int]"
    numbers: "array[int]"
    subscriptions: "array[int]"
    #: With a number less the base, it identifies what has no identifier.
    context: str
    base: int
    #: Whether the gateway orders its groups.
    in_group: bool
    gaps: GroupGaps
    #: They follow: each with the index of its subscription.
    held: Sequence[tuple[HeldMember, int]]
    _reader: IndicationReader
    _offset: float
    _subscriptions: dict[int, RecoveredSubscription]

    @property
    def size(self) -> int:
        return len(self.positions) + len(self.held)

    def lines(self, entries: Sequence[int]) -> list[Line]:
        """Blocks; for one thread at a time. Raises OSError."""
        queued = len(self.positions)
        positions = [self.positions[one] for one in entries if one < queued]
        loaded = iter(self._reader.load(positions, self._offset))
        return [
            self._queued(one, next(loaded)) if one < queued else self._held(one - queued)
            for one in entries
        ]

    def _queued(self, entry: int, indication: Indication | None) -> Line:
        index = self.subscriptions[entry]
        # Gateways get what follows a lost member: they order the group.
        is_behind = indication is not None and not self.in_group and self.gaps.is_behind(indication)
        number = (self.numbers[entry] - self.base) % SEQUENCE_LIMIT
        return self._line(
            None if is_behind else indication, index, self.context, number, in_group=self.in_group
        )

    def _held(self, entry: int) -> Line:
        held, index = self.held[entry]
        # It has no number yet.
        context, number = f"{self.context}#held", held.indication.id
        line = self._line(held.indication, index, context, number, in_group=True)
        return line._replace(held=held)

    def _line(
        self,
        indication: Indication | None,
        index: int,
        context: str,
        number: int,
        *,
        in_group: bool,
    ) -> Line:
        subscription = self._subscriptions.get(index)
        if indication is None or subscription is None:
            return Line(NOTHING, "", "")
        nothing = Line(NOTHING, subscription.uid, subscription.name)
        delivery = Delivery(
            indication=indication,
            filter_name="",
            sequence_context=context,
            sequence_number=number,
            attempt=1,
            correlated=True,
            subscription=subscription.uid,
        )
        try:
            text = render_line(delivery, epoch=self._offset, in_group=in_group)
        except (ValueError, OverflowError):
            return nothing
        return nothing._replace(text=text[:-1], trace=indication.trace)


class AdoptedJournal:
    def __init__(
        self,
        files: Files,
        recovery: Recovery,
        *,
        service: str,
        is_relayed: Callable[[str], bool],
        next_expected: Callable[[str | None, str], int],
    ) -> None:
        """``service``: of the deliverer; ``is_relayed``: whether the destination with a uid is
        delivered through gateways; ``next_expected``: the first missing sequence of a group."""
        self._reader = IndicationReader(files)
        self._recovery = recovery
        self._service = service
        self._is_relayed = is_relayed
        held: defaultdict[int, list[tuple[HeldMember, int]]] = defaultdict(list)
        for indication, places in recovery.recovered.held:
            through = next_expected(indication.source, indication.group or "")
            member = HeldMember(indication, through, indication.accepted_at + recovery.offset)
            for place in places:
                held[place.destination].append((member, place.subscription))
        self.queues = [
            self._destination(queue, held[index])
            for index, queue in recovery.recovered.queues.items()
            if queue.positions or held[index]
        ]

    def _destination(
        self, queue: RecoveredQueue, held: Sequence[tuple[HeldMember, int]]
    ) -> AdoptedDestination:
        state, gaps = queue.state, GroupGaps()
        origin = f"{self._service}#{self._recovery.journal_id.hex()}#{queue.uid}"
        # An identity that all adopters give.
        context, base, at_gateway = f"{origin}#adopted", 0, False
        if state is not None:
            gaps.restore(state.gaps)
            at_gateway = state.listener.startswith(f"{RELAY} ")
            if at_gateway:
                # That of the lines that a gateway may have already.
                context, base = f"{origin}#{state.epoch}", state.base
        return AdoptedDestination(
            name=queue.name or queue.uid,
            positions=queue.positions,
            numbers=queue.numbers,
            subscriptions=queue.subscriptions,
            context=context,
            base=base,
            in_group=at_gateway and self._is_relayed(queue.uid),
            gaps=gaps,
            held=held,
            _reader=self._reader,
            _offset=self._recovery.offset,
            _subscriptions=self._recovery.recovered.subscriptions,
        )

    def close(self) -> None:
        self._reader.close()


def recover_copy(files: Files, *, clock: Clock) -> Recovery:
    """Blocks; raises JournalError."""
    return recover(files, clock=clock, identities=NoIdentities(), new_journal_id=bytes(16))
