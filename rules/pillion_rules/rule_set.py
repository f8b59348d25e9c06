"""All rules over the readings of one key, with one state.

The state has the readings that the watermark has not passed, once for all rules, what is measured
of several readings, and what each rule keeps, by the rule's name. So rules may be added, edited and
removed between two steps, and a rule without an alert costs next to nothing.

A step judges all rules up to the same time, and a rule after those of its ``unless``: so it knows
when they were raised.
"""

import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from pillion_rules.errors import RuleError
from pillion_rules.machine import MOST_PENDING, Taken, advance, rank, removed, used_texts
from pillion_rules.maintenance import KeyedWindows, MaintenanceWindow, Span
from pillion_rules.measures import Measured, Measuring, Numbers, Windows, measuring
from pillion_rules.rule import Rule
from pillion_rules.state import FIRST_VERSION, NEVER, SECOND_VERSION, opened, sealed
from pillion_rules.templates import LONGEST_VALUE
from pillion_rules.transitions import Transition
from pillion_rules.unless import judging_order, spans_of, turns_after, unless_problems

#: What a rule has of a reading: its level, or the numbers that the rule measures.
Judged: TypeAlias = int | Numbers | None
#: Event time in microseconds since 1970, what each rule has of it (a tuple has no numbers), and the
#: texts of columns.
JudgedReading: TypeAlias = tuple[int, Sequence[Judged], Mapping[str, str]]
_Texts: TypeAlias = Mapping[str, str]
_Rank: TypeAlias = Callable[[tuple[Judged, _Texts]], Any]

#: Bytes of the document of readings; then of each rule the bytes of its name and of its state, its
#: fingerprint, its due time, and whether its alert is raised.
_LENGTH = struct.Struct(">I")
_KEPT = struct.Struct(">HIIq?")
#: Maximum bytes of a state with readings that wait. The earliest ones beyond are taken early, until
#: the others have half of them.
MOST_BYTES = 16_000_000
#: Before every number.
_LEAST = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStep:
    """What a step has made of the state of a key."""

    #: None: there is nothing to keep.
    state: bytes | None
    transitions: tuple[Transition, ...]
    untold: tuple[Transition, ...]
    #: The earliest watermark at which another step has something to do.
    due: int | None
    #: Readings that were ignored, since their time had been taken.
    late: int
    #: Whether an alert is raised.
    is_raised: bool

    @property
    def all_transitions(self) -> tuple[Transition, ...]:
        return self.transitions + self.untold


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one rule keeps."""

    state: bytes
    #: Of the rule and the maintenance windows that have made it: others may have something due
    #: earlier.
    fingerprint: int
    due: int
    is_raised: bool

    def is_idle(self, fingerprint: int, through: int) -> bool:
        """Whether the same rule has nothing to do up to a time."""
        return self.fingerprint == fingerprint and self.due > through


class _Waiting(NamedTuple):
    """Of one time: what each rule has of the reading that counts for it."""

    judged: Sequence[Judged]
    #: The texts of this reading, one for all rules or one for each.
    texts: Sequence[_Texts]

    def of(self, place: int) -> tuple[Judged, _Texts]:
        return self.judged[place], self.texts_of(place)

    def texts_of(self, place: int) -> _Texts:
        return self.texts[0] if len(self.texts) == 1 else self.texts[place]

    def joined(self, other: "_Waiting", ranks: Sequence[_Rank]) -> "_Waiting":
        found = [max(self.of(place), other.of(place), key=rank) for place, rank in enumerate(ranks)]
        return _Waiting([one for one, _ in found], [texts for _, texts in found])

    def chosen(self, places: Sequence[int | None]) -> "_Waiting":
        """Put what the rules have into another order. A rule that is new has nothing."""
        found = [(None, {}) if place is None else self.of(place) for place in places]
        return _Waiting([one for one, _ in found], [texts for _, texts in found])


@dataclass(slots=True)
class _KeyState:
    #: Up to this time all readings were taken.
    done: int = NEVER
    pending: dict[int, _Waiting] = field(default_factory=dict)
    rules: dict[str, _Kept] = field(default_factory=dict)
    #: Of the rules that measure, of JSON's types.
    measured: dict[str, Any] = field(default_factory=dict)
    measured_due: list[int] = field(default_factory=list)
    #: Of rules that others name in ``unless``: when their alerts began and ended, where the state
    #: of the rule does not say it.
    turns: dict[str, list[int]] = field(default_factory=dict)

    def accept(
        self,
        readings: Iterable[JudgedReading],
        ranks: Sequence[_Rank],
        windows: Mapping[int, Windows],
    ) -> int:
        """Keep readings, one for each time and rule, and all in windows; return how many are late.

        Of several at one time the one with the greatest rank counts.
        """
        late = 0
        for at, judged, texts in readings:
            if at <= self.done:
                late += 1
                continue
            if windows:
                judged = [*judged]
                for place, window in windows.items():
                    window.add(at, judged[place])  # type: ignore[arg-type]
                    judged[place] = None
                if len(windows) == len(judged):
                    continue
            given = _Waiting(judged, (texts,))
            before = self.pending.get(at)
            self.pending[at] = given if before is None else before.joined(given, ranks)
        return late

    def crowd(self, windows: Iterable[Windows], *, is_large: bool) -> int:
        """The time up to which to take, because too many wait; at least that of before."""
        found = [self.done, *(one.crowd(MOST_PENDING) for one in windows)]
        if len(self.pending) > MOST_PENDING:
            found.append(sorted(self.pending)[-MOST_PENDING - 1])
        if is_large:
            found.append(self._crowd_of_bytes())
        return max(found)

    def _crowd_of_bytes(self) -> int:
        left = MOST_BYTES // 2
        for at in sorted(self.pending, reverse=True):
            text = _waiting_text(at, self.pending[at])
            left -= len(text.encode("utf-8", "surrogatepass"))
            if left < 0:
                return at
        return NEVER

    def take(self, through: int) -> list[tuple[int, _Waiting]]:
        """Return the readings up to a time, in order. The others are pending."""
        return [(at, self.pending.pop(at)) for at in sorted(self.pending) if at <= through]

    def keep(self, name: str, measuring: Measuring) -> None:
        """Keep what a rule has measured."""
        if (due := measuring.due(self.done)) is not None:
            self.measured[name] = measuring.content()
            self.measured_due.append(due)

    def turns_of(self, name: str, kept: _Kept | None) -> list[int]:
        """When the alerts of a rule began and ended, as far as that is known and matters."""
        is_raised = kept is not None and kept.is_raised
        return [*self.turns.get(name, [NEVER] if is_raised else [])]

    def keep_turns(self, turns: Mapping[str, Sequence[int]]) -> None:
        """Keep what the states of the rules do not say."""
        left = {name: turns_after(one, self.done) for name, one in turns.items()}
        self.turns = {name: one for name, one in left.items() if one}

    def times(self, watermark: int) -> Iterator[int]:
        """When there is something to do."""
        yield from (kept.due for kept in self.rules.values())
        yield from self.measured_due
        yield from (turns[1] for turns in self.turns.values() if len(turns) > 1)
        if self.pending:
            yield min(self.pending)
        if self.done > watermark:
            # Until then it says what is late.
            yield self.done

    def content(self, names: Sequence[str], watermark: int) -> bytes | None:
        """The bytes of a state whose levels are by these rules; None if there is nothing in it."""
        is_empty = not (self.pending or self.rules or self.measured or self.turns)
        if is_empty and self.done <= watermark:
            return None
        document = [
            str(self.done),
            _json(names if self.pending else []),
            f"[{','.join(_waiting_text(at, one) for at, one in self.pending.items())}]",
        ]
        version = FIRST_VERSION
        if self.measured or self.turns:
            document.append(_json(self.measured))
            version = SECOND_VERSION
        if self.turns:
            document.append(_json(self.turns))
        # A value may have half of a surrogate pair.
        readings = f"[{','.join(document)}]".encode("utf-8", "surrogatepass")
        parts = [_LENGTH.pack(len(readings)), readings]
        for name, kept in self.rules.items():
            encoded = name.encode()
            head = _KEPT.pack(
                len(encoded), len(kept.state), kept.fingerprint, kept.due, kept.is_raised
            )
            parts += [head, encoded, kept.state]
        return sealed(b"".join(parts), version=version)


class _Member:
    """A rule of a set."""

    def __init__(self, rule: Rule, measured: Measured | None, of_windows: int) -> None:
        self.rule = rule
        self.is_silent = rule.is_silent
        self.measured = measured
        of_unless = repr(rule.unless).encode() if rule.unless else b""
        self.fingerprint = zlib.crc32(repr(rule).encode() + of_unless, of_windows)
        #: Of what readings that wait have for the rule: numbers mean nothing to an edited one.
        self.name = rule.name if measured is None else f"{rule.name} {measured.fingerprint}"
        self.rank = _rank(sorted(rule.columns), is_level=measured is None)

    def measuring(self, state: _KeyState) -> Measuring | None:
        if self.measured is None:
            return None
        return measuring(self.measured, state.measured.get(self.rule.name))


class RuleSet:
    """Rules with the same keys. ``measured`` has what is measured, by the names of the rules that
    have ``measure`` or ``rate``; ``told_from`` are those of :func:`pillion_rules.step`, too. Raises
    RuleError if ``unless`` of a rule is wrong."""

    def __init__(
        self,
        rules: Sequence[Rule],
        measured: Mapping[str, Measured] | None = None,
        maintenance: Iterable[MaintenanceWindow] = (),
        told_from: Mapping[str, int] | None = None,
    ) -> None:
        problems = [*unless_problems(rules)]
        if problems:
            raise RuleError(problems)
        self._told_from = told_from or {}
        self._maintenance = KeyedWindows(maintenance, rules[0].keys if rules else ())
        self._members = [
            _Member(rule, (measured or {}).get(rule.name), self._maintenance.fingerprint(rule.name))
            for rule in rules
        ]
        self._names = [one.name for one in self._members]
        self._ranks = [one.rank for one in self._members]
        self._order = judging_order(rules)
        self._named = {name for rule in rules for name in rule.unless or ()}
        times = (rule.durations.silent for rule in rules)
        #: The shortest ``silent`` of the rules; None: no rule has it.
        self.silent = min((one for one in times if one is not None), default=None)

    def step(
        self,
        key: Sequence[str],
        state: bytes | None,
        readings: Iterable[JudgedReading],
        *,
        watermark: int,
        clock: int | None = None,
    ) -> KeyStep:
        """Take ``readings``, then everything up to ``watermark``.

        The caller has left out late readings. A rule of the state that is not in the set was
        removed: its alert is cleared. ``clock`` is the present time, given only while the whole
        input is idle: rules with ``silent`` use it once the newest reading is older than the
        shortest ``silent``, and readings that wait are taken then. Raises StateError.
        """
        made = self._step(key, state, readings, watermark=watermark, clock=clock)
        if made.state is None or len(made.state) <= MOST_BYTES:
            return made
        more = self._step(key, made.state, (), watermark=watermark, clock=clock)
        return replace(
            more,
            transitions=made.transitions + more.transitions,
            untold=made.untold + more.untold,
            late=made.late,
        )

    def _step(
        self,
        key: Sequence[str],
        state: bytes | None,
        readings: Iterable[JudgedReading],
        *,
        watermark: int,
        clock: int | None,
    ) -> KeyStep:
        before = _state_of(state, self._names)
        measured = [one.measuring(before) for one in self._members]
        windows = {place: one for place, one in enumerate(measured) if isinstance(one, Windows)}
        late = before.accept(readings, self._ranks, windows)
        is_large = state is not None and len(state) > MOST_BYTES
        newest = max(before.pending, default=NEVER)
        if clock is None or self.silent is None or newest + self.silent > clock:
            clock = newest = NEVER
        through = max(watermark, newest, before.crowd(windows.values(), is_large=is_large))
        after = _KeyState(through, before.pending)
        judging = _Judging(key, before, after, through, max(through, clock))
        ready = _Ready.of(before.take(through))
        for place in self._order:
            member, one = self._members[place], measured[place]
            if one is None:
                begins, taken = ready.of_levels(place, is_silent=member.is_silent)
            else:
                begins, taken = ready.of_numbers(place, one, before.done, through)
                after.keep(member.rule.name, one)
            self._judge(member, begins, taken, judging, clock)
        after.keep_turns(judging.turns)
        for name, left in sorted(before.rules.items()):
            judging.found += removed(name, key, left.state, done=before.done)
        return KeyStep(
            state=after.content(self._names, watermark),
            transitions=tuple(judging.found),
            untold=tuple(judging.untold),
            due=min(after.times(watermark), default=None),
            late=late,
            is_raised=any(kept.is_raised for kept in after.rules.values()),
        )

    def _judge(
        self,
        member: _Member,
        begins: bool,
        taken: Iterable[Taken] | None,
        judging: "_Judging",
        clock: int,
    ) -> None:
        """Take what there is for a rule, after the rules of its ``unless``. ``begins``: whether
        that begins a state."""
        name, before = member.rule.name, judging.before
        kept = before.rules.pop(name, None)
        if name in self._named:
            judging.turns[name] = before.turns_of(name, kept)
        if kept is None and not begins:
            return
        unless = judging.raised(member.rule)
        if kept is not None and taken is None and judging.is_idle(member, kept, unless):
            judging.after.rules[name] = kept
            return
        made = advance(
            member.rule,
            judging.key,
            None if kept is None else kept.state,
            taken or (),
            through=judging.through,
            done=before.done,
            clock=clock,
            maintenance=self._maintenance.of(name, judging.key),
            unless=unless,
            told_from=self._told_from.get(name, NEVER),
        )
        judging.found += made.transitions
        judging.untold += made.untold
        if name in self._named:
            judging.turns[name] += made.turns
        if made.state is not None and made.due is not None:
            judging.after.rules[name] = _Kept(
                made.state, member.fingerprint, made.due, made.is_raised
            )


@dataclass(slots=True)
class _Judging:
    """One step of the rules of a key."""

    key: Sequence[str]
    before: _KeyState
    after: _KeyState
    through: int
    #: The time up to which rules with ``silent`` are judged.
    through_silent: int
    found: list[Transition] = field(default_factory=list)
    untold: list[Transition] = field(default_factory=list)
    #: Of the rules judged so far that others name in ``unless``.
    turns: dict[str, list[int]] = field(default_factory=dict)

    def raised(self, rule: Rule) -> Sequence[Sequence[Span]]:
        """The times at which the rules of ``unless`` are raised."""
        return [spans_of(self.turns[name]) for name in rule.unless or ()]

    def is_idle(self, member: _Member, kept: _Kept, unless: Sequence[Sequence[Span]]) -> bool:
        """Whether a rule without readings has nothing to do."""
        end = self.through_silent if member.rule.is_silent else self.through
        has_ended = any(spans and spans[0][1] <= end for spans in unless)
        return not has_ended and kept.is_idle(member.fingerprint, end)


class _Ready(NamedTuple):
    """The readings that a step takes, in order."""

    times: Sequence[int]
    waiting: Sequence[_Waiting]
    #: What each rule has of them.
    judged: Sequence[Sequence[Any]]
    #: Of each reading, if all rules have the same ones.
    texts: Sequence[_Texts] | None

    @classmethod
    def of(cls, found: Sequence[tuple[int, _Waiting]]) -> "_Ready":
        times, waiting = [at for at, _ in found], [one for _, one in found]
        is_shared = all(len(one.texts) == 1 for one in waiting)
        return cls(
            times,
            waiting,
            [*zip(*(one.judged for one in waiting), strict=True)],
            [one.texts[0] for one in waiting] if is_shared else None,
        )

    def of_levels(self, place: int, *, is_silent: bool) -> tuple[bool, Iterable[Taken] | None]:
        """Return whether the readings begin a state of a rule, and what it takes if there are
        readings."""
        if not self.times:
            return False, None
        levels = self.judged[place]
        taken = zip(self.times, levels, self._texts_of(place), strict=True)
        return is_silent or any(levels), taken

    def of_numbers(
        self, place: int, measuring: Measuring, after: int, through: int
    ) -> tuple[bool, Iterable[Taken] | None]:
        """The same of a rule that measures."""
        numbers = self.judged[place] if self.times else ()
        given = zip(self.times, numbers, self._texts_of(place), strict=True)
        found = measuring.take(
            (one for one in given if one[1] is not None), after=after, through=through
        )
        taken = [(one.at, one.level, one.values) for one in found]
        return any(one.level for one in found), taken or None

    def _texts_of(self, place: int) -> Iterable[_Texts]:
        if self.texts is not None:
            return self.texts
        return [one.texts_of(place) for one in self.waiting]


def _rank(columns: Sequence[str], *, is_level: bool) -> _Rank:
    if is_level:
        return lambda one: rank(one[0], used_texts(one[1], columns))  # type: ignore[arg-type]
    # Of several numbers at one time the greatest count.
    return lambda one: (
        [_LEAST if number is None else number for number in one[0] or ()],  # type: ignore[union-attr]
        sorted(used_texts(one[1], columns).items()),
    )


_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_decoded = json.JSONDecoder().raw_decode
#: A reading that waits, up to its texts, which are the same for all rules; none of them measures.
_PLAIN = re.compile(r"\[(-?\d+),(\[[\dnul,]*\]),\[[0,]*\],")


@lru_cache(maxsize=1_000)
def _levels_text(levels: tuple[Judged, ...]) -> str:
    """Most readings have the levels of many others."""
    return _json(levels)


@lru_cache(maxsize=1_000)
def _levels_of(text: str) -> tuple[Judged, ...]:
    return tuple(json.loads(text))


@lru_cache(maxsize=100)
def _zeros_text(count: int) -> str:
    return _json([0] * count)


def _waiting_text(at: int, waiting: _Waiting) -> str:
    """Its time, levels, the place of each rule's texts among the texts, and these."""
    judged = waiting.judged
    levels = _levels_text(judged) if isinstance(judged, tuple) else _json(judged)
    texts: Iterable[_Texts]
    if len(waiting.texts) == 1:
        places, texts = _zeros_text(len(judged)), waiting.texts
    else:
        found = {id(one): one for one in waiting.texts}
        of_texts = {one: place for place, one in enumerate(found)}
        places, texts = _json([of_texts[id(one)] for one in waiting.texts]), found.values()
    shown = [{name: text[:LONGEST_VALUE] for name, text in one.items()} for one in texts]
    return f"[{at},{levels},{places},{_json(shown)}]"


def _state_of(content: bytes | None, names: Sequence[str]) -> _KeyState:
    if content is None:
        return _KeyState()
    body = opened(content, of="rules")
    (length,) = _LENGTH.unpack_from(body)
    position = _LENGTH.size + length
    text = body[_LENGTH.size : position].decode("utf-8", "surrogatepass")
    done, of_rules, pending, others = _document(text)
    measured, turns = (*others, {}, {})[:2]
    found = _KeyState(
        done, dict(_renamed(pending, of_rules, names)), measured=measured, turns=turns
    )
    while position < len(body):
        of_name, of_state, fingerprint, due, is_raised = _KEPT.unpack_from(body, position)
        position += _KEPT.size
        name = body[position : position + of_name].decode()
        position += of_name
        state = body[position : position + of_state]
        position += of_state
        found.rules[name] = _Kept(state, fingerprint, due, is_raised)
    return found


def _document(text: str) -> tuple[int, list[str], list[tuple[int, _Waiting]], list[Any]]:
    """The parts of a document of readings."""
    done, end = _decoded(text, 1)
    of_rules, end = _decoded(text, end + 1)
    pending = []
    end += 2
    while text[end] != "]":
        waiting, end = _waiting(text, end + (text[end] == ","))
        pending.append(waiting)
    return done, of_rules, pending, json.loads(f"[{text[end + 2 :] or ']'}")


def _waiting(text: str, begin: int) -> tuple[tuple[int, _Waiting], int]:
    """The inverse of :func:`_waiting_text`, and where it ends."""
    if (found := _PLAIN.match(text, begin)) is not None:
        texts, end = _decoded(text, found.end())
        return (int(found[1]), _Waiting(_levels_of(found[2]), texts)), end + 1
    (at, judged, places, texts), end = _decoded(text, begin)
    if len(texts) > 1:
        texts = [texts[one] for one in places]
    return (at, _Waiting(judged, texts)), end


def _renamed(
    pending: Sequence[tuple[int, _Waiting]], of_rules: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[int, _Waiting]]:
    """Put the levels into the order of the rules of now. A rule that is new has none."""
    places = {name: place for place, name in enumerate(of_rules)}
    chosen = [places.get(name) for name in names]
    is_same = list(of_rules) == list(names)
    for at, found in pending:
        yield at, found if is_same else found.chosen(chosen)
