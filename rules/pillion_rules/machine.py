"""The step function: from the readings of one key to the transitions of one rule.

Everything is decided by event time. At each time readings go before what is due at it, and what is
due goes in the order clear or raise, repeat, forget, end of what hides the alert. So the
transitions do not depend on how the readings were cut into steps, nor on their order between two
watermarks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias

from pillion_rules.durations import time_text
from pillion_rules.maintenance import Windows, outside
from pillion_rules.names import level_names
from pillion_rules.rule import Rule
from pillion_rules.state import FOREVER, NEVER, Alert, State, Waiting, state_bytes, state_of
from pillion_rules.templates import LONGEST_VALUE, fill, parse_template
from pillion_rules.transitions import CLEAR, Reading, Reason, Transition, TransitionKind, Untold

#: Maximum times of one key that wait for the watermark. The earliest ones beyond are taken early.
MOST_PENDING = 10_000

#: Time, level and texts of a reading: making an object of each costs more than taking it.
Taken: TypeAlias = tuple[int, int | None, Mapping[str, str]]
_REASONS = {
    Reason.FORGOTTEN: "cleared because no reading has come for the time of forget",
    Reason.REMOVED: "cleared because the rule was removed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a step has made of a state."""

    #: None: there is nothing to keep.
    state: bytes | None
    transitions: tuple[Transition, ...]
    #: What is not told, because of ``maintenance``, ``unless`` or ``told_from``.
    untold: tuple[Transition, ...]
    #: The earliest watermark at which another step has something to do.
    due: int | None
    #: Readings that were ignored, because the watermark had passed them.
    late: int
    is_raised: bool
    #: The times at which an alert was raised or cleared, told or not.
    turns: tuple[int, ...]


def step(
    rule: Rule,
    key: Sequence[str],
    state: bytes | None,
    readings: Iterable[Reading],
    *,
    watermark: int,
    done: int | None = None,
    clock: int | None = None,
    maintenance: Windows = (),
    unless: Windows = (),
    told_from: int = NEVER,
) -> Step:
    """Take ``readings``, then everything up to ``watermark``.

    A reading at ``watermark`` or before it is late. A caller that takes readings behind the
    watermark gives ``done``, the time up to which the key was evaluated: only readings at this time
    or before it are late. ``clock`` is the present time, given only while the whole input is idle:
    only rules with ``silent`` use it. In ``maintenance`` windows nothing is told but the clear of
    an alert that was told; what an alert is at their end is told then. So it is in ``unless``, the
    times up to ``watermark`` at which another rule is raised. Nor is anything told of a time before
    ``told_from``, but what still holds then. Raises StateError.
    """
    before = state_of(state)
    if done is not None:
        before.done = max(before.done, done)
    machine = _Machine(rule, tuple(key), before, maintenance, unless, told_from)
    late = machine.accept(readings, after=watermark if done is None else before.done)
    machine.make_room()
    machine.advance(watermark)
    return machine.step(clock, late=late)


def advance(
    rule: Rule,
    key: Sequence[str],
    state: bytes | None,
    readings: Iterable[Taken],
    *,
    through: int,
    done: int,
    clock: int | None = None,
    maintenance: Windows = (),
    unless: Windows = (),
    told_from: int = NEVER,
) -> Step:
    """Take readings that are in order, one for each time, after ``done`` and up to ``through``;
    then everything up to ``through``. The rest is as in :func:`step`."""
    before = state_of(state)
    before.done = max(before.done, done)
    machine = _Machine(rule, tuple(key), before, maintenance, unless, told_from)
    for at, level, values in readings:
        machine.take(at, level, values)
    machine.advance(through)
    return machine.step(clock, late=0)


def removed(
    name: str, key: Sequence[str], state: bytes | None, *, done: int = NEVER
) -> tuple[Transition, ...]:
    """Clear the alert of a rule that is there no more; its state can go. ``done`` is the time up to
    which the key was evaluated, if the state is older. Raises StateError."""
    found = state_of(state)
    alert = found.alert
    if alert is None or not alert.told_level:
        return ()
    return (
        _transition(
            name,
            tuple(key),
            alert,
            TransitionKind.CLEARED,
            at=max(done, found.done, alert.told, NEVER if found.last is None else found.last),
            text=f"{name} ({_REASONS[Reason.REMOVED]})",
            reason=Reason.REMOVED,
        ),
    )


class _Due(IntEnum):
    """In the order at one time."""

    RAISE = 0
    CLEAR = 1
    REPEAT = 2
    FORGET = 3
    #: What was hidden is told.
    TELL = 4


class _Machine:
    def __init__(
        self,
        rule: Rule,
        key: tuple[str, ...],
        state: State,
        maintenance: Windows,
        unless: Windows,
        told_from: int,
    ) -> None:
        self.state = state
        self.found: list[Transition] = []
        self._turns: list[int] = []
        self._rule = rule
        self._times = rule.durations
        self._key = key
        self._maintenance = maintenance
        self._unless = unless
        self._hiding = [*maintenance, *unless] if unless else maintenance
        self._told_from = told_from
        self._columns = sorted(rule.columns)
        #: Of the last reading that counts for the text; None: they are in the state.
        self._values: Mapping[str, str] | None = None
        #: Nothing is due before this time, which is cheaper to know than what is due.
        self._quiet = NEVER
        times = self._times
        #: What a reading makes due is not due earlier, without an alert and with one.
        self._shortest = _shortest(times.hold, times.silent, times.forget)
        self._shortest_raised = _shortest(times.keep, times.repeat, times.forget)
        self._is_silent = rule.is_silent
        if rule.is_silent:
            # An earlier version of the rule had conditions.
            state.waiting = None

    # ------------------------------------------------------------------ readings

    def accept(self, readings: Iterable[Reading], *, after: int) -> int:
        """Keep readings until the watermark passes them; return how many are late.

        Of several at one time the most severe counts, then the last by the values of the message.
        """
        pending, floor, late = self.state.pending, max(self.state.done, after), 0
        for one in readings:
            if one.at <= floor:
                late += 1
                continue
            kept = Reading(one.at, one.level, used_texts(one.values, self._columns))
            before = pending.get(one.at)
            if before is None or rank(before.level, before.values) < rank(kept.level, kept.values):
                pending[one.at] = kept
        return late

    def make_room(self) -> None:
        excess = len(self.state.pending) - MOST_PENDING
        if excess > 0:
            self.advance(sorted(self.state.pending)[excess - 1])

    def advance(self, through: int) -> None:
        state = self.state
        for at in sorted(one for one in state.pending if one <= through):
            one = state.pending.pop(at)
            self.take(at, one.level, one.values)
        self._fire(before=through + 1)
        state.done = max(state.done, through)

    def advance_by_clock(self, clock: int, silent: int) -> None:
        """Nothing arrives any more, so what is due by the clock is due. Waiting readings go first
        when they are older than ``silent``."""
        newest = max(self.state.pending, default=NEVER)
        if newest != NEVER and newest + silent <= clock:
            self.advance(newest)
        if not self.state.pending:
            self._fire(before=clock + 1)

    def step(self, clock: int | None, *, late: int) -> Step:
        """Make what was done a step, after what is due by the clock."""
        if clock is not None and self._times.silent is not None:
            self.advance_by_clock(clock, self._times.silent)
        self._settle()
        return Step(
            state=state_bytes(self.state),
            transitions=tuple(one for one in self.found if one.untold is None),
            untold=tuple(one for one in self.found if one.untold is not None),
            due=self.next_time(),
            late=late,
            is_raised=self.state.alert is not None,
            turns=tuple(self._turns),
        )

    def _settle(self) -> None:
        """Without an alert past readings say nothing, unless the rule watches for their absence."""
        self._keep_values()
        state = self.state
        if state.alert is None and state.waiting is None and not self._rule.is_silent:
            state.last, state.values = None, {}

    def _keep_values(self) -> None:
        if self._values is not None:
            self.state.values, self._values = used_texts(self._values, self._columns), None

    def take(self, at: int, level: int | None, values: Mapping[str, str]) -> None:
        """Take a reading, after what is due before it."""
        if not level and self._is_idle():
            return
        if at > self._quiet or not self._is_more_of_it(at, level, values):
            self._fire(before=at)
            self._take(at, level, values)
            self._quiet = min(self._quiet, self._soonest(at))

    def _is_idle(self) -> bool:
        """Whether a reading without a severity changes nothing, as most are."""
        return self.state.alert is None and self.state.waiting is None and not self._is_silent

    def _is_more_of_it(self, at: int, level: int | None, values: Mapping[str, str]) -> bool:
        """Take a reading that makes nothing due earlier, as most are while an alert is raised."""
        state = self.state
        alert = state.alert
        if alert is None or self._is_silent:
            return False
        if level is None:
            state.last = at
            return True
        if level != alert.level or alert.clear_since is not None:
            return False
        state.last, self._values = at, values
        alert.count += 1
        return True

    def _soonest(self, at: int) -> int:
        """A time before which nothing is due that was not due before a reading."""
        waiting, alert = self.state.waiting, self.state.alert
        if alert is not None:
            return NEVER if alert.is_hidden else at + self._shortest_raised
        soon = at + self._shortest
        return soon if waiting is None else min(soon, waiting.since + self._times.hold)

    def _take(self, at: int, level: int | None, values: Mapping[str, str]) -> None:
        state = self.state
        state.last = at
        if self._is_silent:
            self._values = values
            if state.alert is not None:
                self._clear(at)
            return
        if level is None:
            return
        self._values = values
        if state.alert is not None:
            self._take_raised(state.alert, at, level)
        elif level == CLEAR:
            state.waiting = None
        else:
            self._take_waiting(at, level)

    def _take_waiting(self, at: int, level: int) -> None:
        waiting, gap = self.state.waiting, self._times.max_gap
        if waiting is None or (gap is not None and at - waiting.confirmed > gap):
            self.state.waiting = waiting = Waiting(level, since=at, confirmed=at, count=0)
        waiting.level, waiting.confirmed, waiting.count = level, at, waiting.count + 1
        if not self._times.hold:
            self._raise(at, waiting.level, since=waiting.since, count=waiting.count)

    def _take_raised(self, alert: Alert, at: int, level: int) -> None:
        if level == CLEAR:
            if alert.clear_since is None:
                alert.clear_since = at
            if not self._times.keep:
                self._clear(at)
            return
        alert.clear_since = None
        alert.count += 1
        if level != alert.level:
            alert.level = level
            self._tell(alert, TransitionKind.CHANGED, at)

    # ------------------------------------------------------------------ times

    def next_time(self) -> int | None:
        """The earliest time of a waiting reading, or at which something is due."""
        due = self._next_due()
        return min([*self.state.pending, *([due[0]] if due else [])], default=None)

    def _next_due(self) -> tuple[int, _Due] | None:
        state, times = self.state, self._times
        found: list[tuple[int, _Due]] = []
        if state.alert is not None:
            found += self._dues(state.alert)
        elif state.waiting is not None:
            end = state.waiting.since + times.hold
            if times.max_gap is None or end <= state.waiting.confirmed + times.max_gap:
                found.append((end, _Due.RAISE))
        elif times.silent is not None and state.last is not None:
            found.append((state.last + times.silent, _Due.RAISE))
        if state.last is not None:
            found.append((state.last + times.forget, _Due.FORGET))
        return min(found, default=None)

    def _dues(self, alert: Alert) -> Iterator[tuple[int, _Due]]:
        if alert.clear_since is not None:
            yield alert.clear_since + self._times.keep, _Due.CLEAR
        if alert.is_hidden:
            # By the windows of now: the one that hid it may be gone.
            is_old = not alert.is_covered and (alert.is_old or alert.told_level)
            since = max(alert.told, self.state.done, self._told_from if is_old else NEVER)
            if (at := outside(self._hiding, since)) < FOREVER:
                yield at, _Due.TELL
        elif self._times.repeat is not None:
            yield alert.told + self._times.repeat, _Due.REPEAT

    def _fire(self, *, before: int) -> None:
        if before <= self._quiet:
            return
        while (due := self._next_due()) is not None and due[0] < before:
            # A time that lies before the last step belongs to a rule that was edited.
            at = max(due[0], self.state.done)
            match due[1]:
                case _Due.RAISE:
                    self._raise_due(at)
                case _Due.CLEAR:
                    self._clear(at)
                case _Due.REPEAT:
                    assert self.state.alert is not None
                    self._tell(self.state.alert, TransitionKind.REPEATED, at)
                case _Due.FORGET:
                    self._forget(at)
                case _Due.TELL:
                    assert self.state.alert is not None
                    self._tell_hidden(self.state.alert, at)
        self._quiet = FOREVER if due is None else due[0]

    def _raise_due(self, at: int) -> None:
        waiting = self.state.waiting
        if waiting is not None:
            self._raise(at, waiting.level, since=waiting.since, count=waiting.count)
        else:
            assert self.state.last is not None
            self._raise(at, self._rule.silent_level, since=self.state.last, count=0)

    def _forget(self, at: int) -> None:
        if self.state.alert is not None:
            self._clear(at, reason=Reason.FORGOTTEN)
        self.state.last = self.state.waiting = None

    # ------------------------------------------------------------------ transitions

    def _raise(self, at: int, level: int, *, since: int, count: int) -> None:
        alert = Alert(level, since=since, count=count, raised_at=at, raised_level=level, told=at)
        self.state.alert, self.state.waiting = alert, None
        self._turns.append(at)
        self._tell(alert, TransitionKind.RAISED, at)

    def _clear(self, at: int, *, reason: Reason | None = None) -> None:
        alert = self.state.alert
        assert alert is not None
        self.state.alert = None
        self._turns.append(max(at, alert.told))
        if at < alert.told:
            # By the clock it was ahead of the readings. What follows is later than what was told,
            # so it has no identity that was there before.
            self.state.done = max(self.state.done, alert.told + 1)
        self._tell(alert, TransitionKind.CLEARED, at, reason=reason)

    def _tell(
        self, alert: Alert, transition: TransitionKind, at: int, *, reason: Reason | None = None
    ) -> None:
        # By the clock an alert may be ahead of the readings.
        at = max(at, alert.told)
        alert.told = at
        ends = transition is TransitionKind.CLEARED
        if not ends and self._is_told(at) and self._tell_old_raise(alert) and not alert.is_hidden:
            alert.is_covered = False
            return
        kind, untold = self._seen(alert, transition, at)
        if untold is Untold.AGE and outside(self._hiding, at) == at:
            _age(alert, at)
        alert.is_covered = untold is not None and outside(self._unless, at) != at
        self._add(alert, kind, at, reason=reason, untold=untold)

    def _tell_hidden(self, alert: Alert, at: int) -> None:
        """Tell what an alert is: as of now if something has hidden it until then, else as it was
        then, so that it has the same identity whenever the job was started."""
        if at < self._told_from:
            # It was hidden until then, and is too old to be told of.
            alert.told, alert.is_covered = at, False
            _age(alert, at)
            return
        is_covered = alert.is_covered or outside(self._maintenance, alert.told) != alert.told
        if is_covered or alert.told >= self._told_from:
            self._tell(alert, TransitionKind.CHANGED, at)
            return
        self._tell_old_raise(alert)
        if alert.is_hidden:
            alert.told_level = alert.level
            self._add(alert, TransitionKind.CHANGED, alert.told)
        if (repeat := self._times.repeat) is not None:
            # The repeats until now were not told, and the others come as after them.
            alert.told += (at - alert.told - 1) // repeat * repeat

    def _tell_old_raise(self, alert: Alert) -> bool:
        """Tell the raise of an alert that lasts, if it was too old: another job may have told it.
        Return whether it was."""
        is_told = alert.is_old and not alert.told_level
        if is_told:
            alert.told_level, level = alert.raised_level, alert.level
            alert.level = alert.raised_level
            self._add(alert, TransitionKind.RAISED, alert.raised_at)
            alert.level = level
        return is_told

    def _is_told(self, at: int) -> bool:
        return at >= self._told_from and outside(self._hiding, at) == at

    def _seen(
        self, alert: Alert, transition: TransitionKind, at: int
    ) -> tuple[TransitionKind, Untold | None]:
        """What a transition is to those who have heard what was told of its alert."""
        if transition is TransitionKind.CLEARED:
            return transition, None if alert.told_level else self._reason(alert, at)
        if not self._is_told(at):
            return transition, self._reason(alert, at)
        if not alert.told_level:
            transition = TransitionKind.RAISED
            alert.raised_at, alert.raised_level = at, alert.level
        elif transition is TransitionKind.CHANGED and not alert.is_hidden:
            return transition, self._reason(alert, at)
        alert.told_level = alert.level
        return transition, None

    def _reason(self, alert: Alert, at: int) -> Untold:
        """Why a transition is not told, or why that of the alert before it was not."""
        if at < self._told_from:
            return Untold.AGE
        in_maintenance = outside(self._maintenance, at) != at
        is_covered = alert.is_covered or outside(self._unless, at) != at
        return Untold.UNLESS if is_covered and not in_maintenance else Untold.MAINTENANCE

    def _add(
        self,
        alert: Alert,
        kind: TransitionKind,
        at: int,
        *,
        reason: Reason | None = None,
        untold: Untold | None = None,
    ) -> None:
        made = _transition(self._rule.name, self._key, alert, kind, at=at, text="", reason=reason)
        self.found.append(replace(made, text=self._text(made), untold=untold))

    def _text(self, one: Transition) -> str:
        self._keep_values()
        built_in = {
            "rule": one.rule,
            "transition": one.transition.value,
            "level": one.level,
            "at": time_text(one.at),
            "since": time_text(one.since),
            "count": str(one.count),
        }
        keys = dict(zip(self._rule.keys, self._key, strict=True))
        text = fill(parse_template(self._rule.message), {**built_in, **keys, **self.state.values})
        return text if one.reason is None else f"{text} ({_REASONS[one.reason]})"


def _age(alert: Alert, at: int) -> None:
    """Keep the raise that was not told for its age alone."""
    if not alert.told_level and not alert.is_old:
        alert.raised_at, alert.raised_level, alert.is_old = at, alert.level, True


def _shortest(*durations: int | None) -> int:
    return min(one for one in durations if one)


def used_texts(values: Mapping[str, str], columns: Iterable[str]) -> dict[str, str]:
    """The texts that a message uses, at their longest."""
    return {name: values[name][:LONGEST_VALUE] for name in columns if name in values}


def rank(level: int | None, texts: Mapping[str, str]) -> tuple[int, list[tuple[str, str]]]:
    """Of the readings at one time the one with the greatest rank counts."""
    return (-1 if level is None else level, sorted(texts.items()))


def _transition(
    name: str,
    key: tuple[str, ...],
    alert: Alert,
    transition: TransitionKind,
    *,
    at: int,
    text: str,
    reason: Reason | None,
) -> Transition:
    names = level_names()
    return Transition(
        rule=name,
        key=key,
        transition=transition,
        level=names[alert.level],
        at=at,
        since=alert.since,
        count=alert.count,
        text=text,
        raised_at=alert.raised_at,
        raised_level=names[alert.raised_level],
        reason=reason,
    )
