"""All rules over the readings of one key, with one state.

The state has the readings that the watermark has not passed, once for all rules, and what each rule
keeps, by the rule's name. So rules may be added, edited and removed between two steps, and a rule
without an alert costs next to nothing.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

from pillion_rules.errors import StateError
from pillion_rules.machine import MOST_PENDING, removed, step
from pillion_rules.rule import Rule
from pillion_rules.state import NEVER
from pillion_rules.templates import LONGEST_VALUE
from pillion_rules.transitions import Reading, Transition

#: Event time in microseconds since 1970, the level by each rule, and the texts of columns.
JudgedReading: TypeAlias = tuple[int, Sequence[int | None], Mapping[str, str]]

_VERSION = 1
_CHECKSUM = 4
#: Bytes of the document of readings; then of each rule the bytes of its name and of its state, its
#: fingerprint, its due time, and whether its alert is raised.
_LENGTH = struct.Struct(">I")
_KEPT = struct.Struct(">HIIq?")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStep:
    """What a step has made of the state of a key."""

    #: None: there is nothing to keep.
    state: bytes | None
    transitions: tuple[Transition, ...]
    #: The earliest watermark at which another step has something to do.
    due: int | None
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
    pending: list[JudgedReading] = field(default_factory=list)
    rules: dict[str, _Kept] = field(default_factory=dict)

    def take(
        self, readings: Sequence[JudgedReading], watermark: int
    ) -> tuple[list[JudgedReading], int]:
        """Return the readings up to the watermark in the order of time, and this time: a later one
        if too many wait. The others are pending."""
        self.pending += (one for one in readings if one[0] > self.done)
        self.pending.sort(key=itemgetter(0))
        through = max(self.done, watermark)
        if len(self.pending) > MOST_PENDING:
            through = max(through, self.pending[-MOST_PENDING - 1][0])
        count = sum(at <= through for at, _, _ in self.pending)
        ready, self.pending = self.pending[:count], self.pending[count:]
        return ready, through

    def times(self) -> Iterator[int]:
        """When there is something to do."""
        yield from (kept.due for kept in self.rules.values())
        yield from (at for at, _, _ in self.pending[:1])

    def content(self, names: Sequence[str]) -> bytes | None:
        """The bytes of a state whose levels are by these rules; None if there is nothing in it."""
        if not self.pending and not self.rules:
            return None
        pending = [
            [at, levels, {name: text[:LONGEST_VALUE] for name, text in values.items()}]
            for at, levels, values in self.pending
        ]
        document = [self.done, names if pending else [], pending]
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
        body = b"".join(parts)
        return bytes([_VERSION]) + zlib.crc32(body).to_bytes(_CHECKSUM) + body


class RuleSet:
    """Rules with the same keys."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [(rule, zlib.crc32(repr(rule).encode())) for rule in rules]
        self._names = [rule.name for rule in rules]

    def step(
        self,
        key: Sequence[str],
        state: bytes | None,
        readings: Sequence[JudgedReading],
        *,
        watermark: int,
    ) -> KeyStep:
        """Take ``readings``, then everything up to ``watermark``.

        The caller has left out late readings. A rule of the state that is not in the set was
        removed: its alert is cleared. Raises StateError.
        """
        before = _state_of(state, self._names)
        ready, through = before.take(readings, watermark)
        after = _KeyState(through, before.pending)
        found: list[Transition] = []
        by_rule = zip(*(levels for _, levels, _ in ready), strict=True) if ready else None
        for rule, fingerprint in self._rules:
            levels = () if by_rule is None else next(by_rule)
            kept = before.rules.pop(rule.name, None)
            if kept is None and not (any(levels) or (levels and rule.is_silent)):
                continue
            if kept is not None and not ready and kept.is_idle(fingerprint, through):
                after.rules[rule.name] = kept
                continue
            made = step(
                rule,
                key,
                None if kept is None else kept.state,
                (
                    Reading(at, level, values)
                    for (at, _, values), level in zip(ready, levels, strict=True)
                ),
                watermark=through,
                passed=NEVER,
            )
            found += made.transitions
            if made.state is not None and made.due is not None:
                after.rules[rule.name] = _Kept(made.state, fingerprint, made.due, made.is_raised)
        for name, left in sorted(before.rules.items()):
            found += removed(name, key, left.state)
        return KeyStep(
            state=after.content(self._names),
            transitions=tuple(found),
            due=min(after.times(), default=None),
            is_raised=any(kept.is_raised for kept in after.rules.values()),
        )


def _state_of(content: bytes | None, names: Sequence[str]) -> _KeyState:
    if content is None:
        return _KeyState()
    if content[:1] > bytes([_VERSION]):
        raise StateError(
            f"this state of rules has version {content[0]}, and this Pillion reads versions up to "
            f"{_VERSION}; run the version that wrote it, or a later one"
        )
    body = content[1 + _CHECKSUM :]
    if content[: 1 + _CHECKSUM] != bytes([_VERSION]) + zlib.crc32(body).to_bytes(_CHECKSUM):
        raise StateError("this state of rules is damaged; start from another checkpoint")
    (length,) = _LENGTH.unpack_from(body)
    position = _LENGTH.size + length
    text = body[_LENGTH.size : position].decode("utf-8", "surrogatepass")
    done, of_rules, pending = json.loads(text)
    found = _KeyState(done, [*_renamed(pending, of_rules, names)])
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
) -> Iterator[JudgedReading]:
    """Put the levels into the order of the rules of now. A rule that is new has none."""
    places = {name: place for place, name in enumerate(of_rules)}
    chosen = [places.get(name) for name in names]
    for at, levels, values in pending:
        yield at, [None if place is None else levels[place] for place in chosen], values
