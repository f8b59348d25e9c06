"""All rules over the readings of one key, with one state.

The state has the readings that the watermark has not passed, once for all rules, and what each rule
keeps, by the rule's name. So rules may be added, edited and removed between two steps, and a rule
without an alert costs next to nothing.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pillion_rules.machine import MOST_PENDING, rank, removed, step, used_texts
from pillion_rules.rule import Rule
from pillion_rules.state import NEVER, opened, sealed
from pillion_rules.templates import LONGEST_VALUE
from pillion_rules.transitions import Reading, Transition

#: Event time in microseconds since 1970, the level by each rule, and the texts of columns.
JudgedReading: TypeAlias = tuple[int, Sequence[int | None], Mapping[str, str]]
#: Of one time: the level and the texts of the reading that counts, by each rule.
_Waiting: TypeAlias = list[tuple[int | None, Mapping[str, str]]]

#: Bytes of the document of readings; then of each rule the bytes of its name and of its state, its
#: fingerprint, its due time, and whether its alert is raised.
_LENGTH = struct.Struct(">I")
_KEPT = struct.Struct(">HIIq?")
_NEITHER: tuple[None, Mapping[str, str]] = (None, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStep:
    """What a step has made of the state of a key."""

    #: None: there is nothing to keep.
    state: bytes | None
    transitions: tuple[Transition, ...]
    #: The earliest watermark at which another step has something to do.
    due: int | None
    #: Readings that were ignored, since their time had been taken.
    late: int
    #: Whether an alert is raised.
    is_raised: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one rule keeps."""

    state: bytes
    #: Of the rule that has made it: an edited one may have something due earlier.
    fingerprint: int
    due: int
    is_raised: bool

    def is_idle(self, fingerprint: int, through: int) -> bool:
        """Whether the same rule has nothing to do up to a time."""
        return self.fingerprint == fingerprint and self.due > through


@dataclass(slots=True)
class _KeyState:
    #: Up to this time all readings were taken.
    done: int = NEVER
    pending: dict[int, _Waiting] = field(default_factory=dict)
    rules: dict[str, _Kept] = field(default_factory=dict)

    def accept(self, readings: Iterable[JudgedReading], columns: Sequence[Sequence[str]]) -> int:
        """Keep readings, one for each time and rule; return how many are late.

        Of several at one time the most severe counts, then the last by the texts in the rule's
        columns.
        """
        late = 0
        for at, levels, values in readings:
            if at <= self.done:
                late += 1
                continue
            given = [(level, values) for level in levels]
            before = self.pending.get(at)
            if before is None:
                self.pending[at] = given
            else:
                pairs = zip(before, given, columns, strict=True)
                self.pending[at] = [max(one, other, key=_rank(used)) for one, other, used in pairs]
        return late

    def take(self, watermark: int) -> tuple[list[tuple[int, _Waiting]], int]:
        """Return the readings up to the watermark in the order of time, and this time: a later one
        if too many wait. The others are pending."""
        times = sorted(self.pending)
        through = max(self.done, watermark)
        if len(times) > MOST_PENDING:
            through = max(through, times[-MOST_PENDING - 1])
        return [(at, self.pending.pop(at)) for at in times if at <= through], through

    def times(self, watermark: int) -> Iterator[int]:
        """When there is something to do."""
        yield from (kept.due for kept in self.rules.values())
        if self.pending:
            yield min(self.pending)
        if self.done > watermark:
            # Until then it says what is late.
            yield self.done

    def content(self, names: Sequence[str], watermark: int) -> bytes | None:
        """The bytes of a state whose levels are by these rules; None if there is nothing in it."""
        if not self.pending and not self.rules and self.done <= watermark:
            return None
        document = [
            self.done,
            names if self.pending else [],
            [*map(_document, self.pending.items())],
        ]
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        # A value may have half of a surrogate pair.
        readings = text.encode("utf-8", "surrogatepass")
        parts = [_LENGTH.pack(len(readings)), readings]
        for name, kept in self.rules.items():
            encoded = name.encode()
            head = _KEPT.pack(
                len(encoded), len(kept.state), kept.fingerprint, kept.due, kept.is_raised
            )
            parts += [head, encoded, kept.state]
        return sealed(b"".join(parts))


class RuleSet:
    """Rules with the same keys."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [(rule, zlib.crc32(repr(rule).encode())) for rule in rules]
        self._names = [rule.name for rule in rules]
        self._columns = [sorted(rule.columns) for rule in rules]
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
        before = _state_of(state, self._names)
        done = before.done
        late = before.accept(readings, self._columns)
        newest = max(before.pending, default=NEVER)
        if clock is None or self.silent is None or newest + self.silent > clock:
            clock = newest = NEVER
        ready, through = before.take(max(watermark, newest))
        after = _KeyState(through, before.pending)
        found: list[Transition] = []
        of_rules = zip(*(waiting for _, waiting in ready), strict=True) if ready else None
        for rule, fingerprint in self._rules:
            judged = () if of_rules is None else next(of_rules)
            kept = before.rules.pop(rule.name, None)
            if kept is None and not (judged and (rule.is_silent or any(one[0] for one in judged))):
                continue
            end = max(through, clock) if rule.is_silent else through
            if kept is not None and not ready and kept.is_idle(fingerprint, end):
                after.rules[rule.name] = kept
                continue
            made = step(
                rule,
                key,
                None if kept is None else kept.state,
                (
                    Reading(at, level, values)
                    for (at, _), (level, values) in zip(ready, judged, strict=True)
                ),
                watermark=through,
                done=done,
                clock=clock,
            )
            found += made.transitions
            if made.state is not None and made.due is not None:
                after.rules[rule.name] = _Kept(made.state, fingerprint, made.due, made.is_raised)
        for name, left in sorted(before.rules.items()):
            found += removed(name, key, left.state, done=done)
        return KeyStep(
            state=after.content(self._names, watermark),
            transitions=tuple(found),
            due=min(after.times(watermark), default=None),
            late=late,
            is_raised=any(kept.is_raised for kept in after.rules.values()),
        )


def _rank(columns: Sequence[str]) -> Any:
    return lambda one: rank(one[0], used_texts(one[1], columns))


def _document(pending: tuple[int, _Waiting]) -> list[Any]:
    """Its time, levels, the place of each rule's texts among the texts, and these."""
    at, waiting = pending
    texts: list[Mapping[str, str]] = []
    places: dict[int, int] = {}
    for _, values in waiting:
        if id(values) not in places:
            places[id(values)] = len(texts)
            texts.append({name: text[:LONGEST_VALUE] for name, text in values.items()})
    return [at, [level for level, _ in waiting], [places[id(one)] for _, one in waiting], texts]


def _state_of(content: bytes | None, names: Sequence[str]) -> _KeyState:
    if content is None:
        return _KeyState()
    body = opened(content, of="rules")
    (length,) = _LENGTH.unpack_from(body)
    position = _LENGTH.size + length
    text = body[_LENGTH.size : position].decode("utf-8", "surrogatepass")
    done, of_rules, pending = json.loads(text)
    found = _KeyState(done, dict(_renamed(pending, of_rules, names)))
    while position < len(body):
        of_name, of_state, fingerprint, due, is_raised = _KEPT.unpack_from(body, position)
        position += _KEPT.size
        name = body[position : position + of_name].decode()
        position += of_name
        state = body[position : position + of_state]
        position += of_state
        found.rules[name] = _Kept(state, fingerprint, due, is_raised)
    return found


def _renamed(
    pending: Sequence[Any], of_rules: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[int, _Waiting]]:
    """Put the levels into the order of the rules of now. A rule that is new has none."""
    places = {name: place for place, name in enumerate(of_rules)}
    chosen = [places.get(name) for name in names]
    for at, levels, of_texts, texts in pending:
        yield (
            at,
            [
                _NEITHER if place is None else (levels[place], texts[of_texts[place]])
                for place in chosen
            ],
        )
