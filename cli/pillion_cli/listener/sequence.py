"""The seven rules by which a listener puts indications in order (D.5, DSP1054 7.10).

Pure: the caller passes the arrival time. The rules for each sender (address and path):

1. no sequence identifier: deliver what is held, then the indication; forget the context;
2. the first indication of the sender: any number is accepted;
3. another context: late and dropped while one of its identifiers is remembered; else deliver what
   is held, and expect the numbers from 0;
4. the expected number: deliver it, and what is held behind it without a gap;
5. a remembered number: a duplicate, dropped;
6. a lower number that is not remembered: late, dropped;
7. a higher number: held until the gap fills or its lifetime ends.

An identifier is remembered for a lifetime after it was last seen. All memory is bounded: beyond the
bounds, the oldest is forgotten, or delivered early.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: SequenceNumber is a sint64 and goes on from 0.
_LAST_NUMBER = 2**63 - 1


class Verdict(StrEnum):
    DELIVERED = "delivered"
    #: Delivered later, with another outcome.
    HELD = "held"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class SequenceIdentifier:
    context: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[Item]):
    item: Item
    identifier: SequenceIdentifier | None
    verdict: Verdict
    reason: str
    #: Count of previous numbers that will never be delivered.
    missing: int = 0


class _Sender(Generic[Item]):
    __slots__ = ("context", "contexts", "expected", "held", "is_new", "remembered")

    def __init__(self) -> None:
        self.is_new = True
        self.context: str | None = None
        self.expected = 0
        #: By number, in order of arrival, which is the order of the ends of their lifetimes.
        self.held: dict[int, tuple[float, Item]] = {}
        #: Identifiers and when they are forgotten, soonest first; and how many of each context.
        self.remembered: OrderedDict[SequenceIdentifier, float] = OrderedDict()
        self.contexts: Counter[str] = Counter()

    def remember(self, identifier: SequenceIdentifier, until: float) -> None:
        if identifier not in self.remembered:
            self.contexts[identifier.context] += 1
        self.remembered[identifier] = until
        self.remembered.move_to_end(identifier)

    def forget(self) -> None:
        identifier, _ = self.remembered.popitem(last=False)
        self.contexts[identifier.context] -= 1
        if not self.contexts[identifier.context]:
            del self.contexts[identifier.context]

    def forget_what_ended(self, now: float) -> int:
        before = len(self.remembered)
        while self.remembered and next(iter(self.remembered.values())) <= now:
            self.forget()
        return before - len(self.remembered)

    def due(self) -> float:
        """The end of the lifetime of the longest held indication."""
        return next(iter(self.held.values()))[0]

    def release(self, upto: int, reason: str) -> list[Outcome[Item]]:
        """Deliver what is held up to a number, in order, and skip the gaps."""
        released = []
        for number in sorted(number for number in self.held if number <= upto):
            missing = max(0, number - self.expected)
            released.append(self._take(number, reason, missing))
        return released + self.drain()

    def drain(self) -> list[Outcome[Item]]:
        """Deliver what is held behind the expected number without a gap."""
        drained = []
        while self.expected in self.held:
            drained.append(self._take(self.expected, "the gap before it has filled", 0))
        return drained

    def _take(self, number: int, reason: str, missing: int) -> Outcome[Item]:
        _, item = self.held.pop(number)
        self.expected = _after(number)
        return Outcome(
            item=item,
            identifier=SequenceIdentifier(self.context or "", number),
            verdict=Verdict.DELIVERED,
            reason=reason,
            missing=missing,
        )


def _after(number: int) -> int:
    return 0 if number == _LAST_NUMBER else number + 1


class Sequencer(Generic[Item]):
    """Puts the indications of each sender in order.

    ``lifetime`` is that of a sequence identifier in seconds: in DSP1054, DeliveryRetryAttempts *
    DeliveryRetryInterval * 10. Times are of a monotonic clock.
    """

    def __init__(
        self,
        *,
        lifetime: float,
        max_senders: int = 1_000,
        max_held: int = 1_000,
        max_remembered: int = 100_000,
    ) -> None:
        self._lifetime = lifetime
        self._max_senders = max_senders
        self._max_held = max_held
        self._max_remembered = max_remembered
        self._senders: OrderedDict[Hashable, _Sender[Item]] = OrderedDict()
        self._held = 0
        self._remembered = 0

    @property
    def held(self) -> int:
        return self._held

    def receive(
        self, sender: Hashable, item: Item, identifier: SequenceIdentifier | None, *, now: float
    ) -> list[Outcome[Item]]:
        """The outcomes of ``item`` and of held items, in order."""
        outcomes = self._evict(sender)
        state = self._senders.setdefault(sender, _Sender())
        self._senders.move_to_end(sender)
        held, remembered = len(state.held), len(state.remembered)
        state.forget_what_ended(now)
        outcomes += self._judge(state, item, identifier, now)
        self._held += len(state.held) - held
        self._remembered += len(state.remembered) - remembered
        return outcomes + self._keep_bounds(state)

    def next_due(self) -> float | None:
        """When to call :meth:`expire`; None while nothing is held."""
        return min((state.due() for state in self._senders.values() if state.held), default=None)

    def expire(self, now: float) -> list[Outcome[Item]]:
        """Deliver what is held and has reached the end of its lifetime (rule 7)."""
        outcomes: list[Outcome[Item]] = []
        for state in self._senders.values():
            held = len(state.held)
            while state.held and state.due() <= now:
                outcomes += state.release(next(iter(state.held)), "the gap outlived its lifetime")
            self._held += len(state.held) - held
            self._remembered -= state.forget_what_ended(now)
        return outcomes

    def flush(self) -> list[Outcome[Item]]:
        outcomes: list[Outcome[Item]] = []
        for state in self._senders.values():
            outcomes += _flush(state, "the listener ends")
        self._held = 0
        return outcomes

    # --- the rules

    def _judge(
        self, state: _Sender[Item], item: Item, identifier: SequenceIdentifier | None, now: float
    ) -> list[Outcome[Item]]:
        if identifier is None:
            outcomes = _flush(state, "an indication without a sequence came")
            state.context, state.is_new = None, False
            return [*outcomes, _outcome(item, None, Verdict.DELIVERED, "no sequence")]
        if state.is_new:
            state.is_new, state.context = False, identifier.context
            state.expected = _after(identifier.number)
            return self._deliver(state, item, identifier, now, "first of its sender")
        if identifier.context != state.context:
            return self._change_context(state, item, identifier, now)
        if identifier.number == state.expected:
            state.expected = _after(identifier.number)
            return self._deliver(state, item, identifier, now, "in order") + state.drain()
        return [self._out_of_order(state, item, identifier, now)]

    def _change_context(
        self, state: _Sender[Item], item: Item, identifier: SequenceIdentifier, now: float
    ) -> list[Outcome[Item]]:
        if identifier.context in state.contexts:
            return [_outcome(item, identifier, Verdict.LATE, "from an old context")]
        outcomes = _flush(state, "the context changed")
        state.context, state.expected = identifier.context, 0
        if identifier.number == 0:
            state.expected = 1
            return outcomes + self._deliver(state, item, identifier, now, "new context")
        return [*outcomes, self._out_of_order(state, item, identifier, now)]

    def _out_of_order(
        self, state: _Sender[Item], item: Item, identifier: SequenceIdentifier, now: float
    ) -> Outcome[Item]:
        # What is held has not been forgotten, even if its identifier was evicted.
        known = identifier in state.remembered or identifier.number in state.held
        state.remember(identifier, now + self._lifetime)
        if known:
            return _outcome(item, identifier, Verdict.DUPLICATE, "came before")
        if identifier.number < state.expected:
            reason = f"{state.expected} is expected"
            return _outcome(item, identifier, Verdict.LATE, reason)
        state.held[identifier.number] = (now + self._lifetime, item)
        return _outcome(item, identifier, Verdict.HELD, f"{state.expected} is expected")

    def _deliver(
        self,
        state: _Sender[Item],
        item: Item,
        identifier: SequenceIdentifier,
        now: float,
        reason: str,
    ) -> list[Outcome[Item]]:
        state.remember(identifier, now + self._lifetime)
        return [_outcome(item, identifier, Verdict.DELIVERED, reason)]

    # --- the bounds

    def _evict(self, sender: Hashable) -> list[Outcome[Item]]:
        if sender in self._senders or len(self._senders) < self._max_senders:
            return []
        _, state = self._senders.popitem(last=False)
        self._held -= len(state.held)
        self._remembered -= len(state.remembered)
        return _flush(state, "its sender is forgotten: there are too many")

    def _keep_bounds(self, state: _Sender[Item]) -> list[Outcome[Item]]:
        outcomes: list[Outcome[Item]] = []
        while self._held > self._max_held and state.held:
            held = len(state.held)
            outcomes += state.release(min(state.held), "too many are held")
            self._held += len(state.held) - held
        while self._remembered > self._max_remembered and state.remembered:
            state.forget()
            self._remembered -= 1
        return outcomes


def _flush(state: _Sender[Item], reason: str) -> list[Outcome[Item]]:
    return state.release(max(state.held), reason) if state.held else []


def _outcome(
    item: Item, identifier: SequenceIdentifier | None, verdict: Verdict, reason: str
) -> Outcome[Item]:
    return Outcome(item=item, identifier=identifier, verdict=verdict, reason=reason)
