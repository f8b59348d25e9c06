"""All rules over the readings of one key, with one state.

The state is a version, a checksum, and the state of each rule by the rule's name. So rules may be
added, edited and removed between two steps.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pillion_rules.errors import StateError
from pillion_rules.machine import removed, step
from pillion_rules.rule import Rule
from pillion_rules.state import NEVER
from pillion_rules.transitions import Reading, Transition

#: Event time in microseconds since 1970, the level by each rule, and the texts of columns.
JudgedReading: TypeAlias = tuple[int, Sequence[int | None], Mapping[str, str]]

_VERSION = 1
_CHECKSUM, _NAME_LENGTH, _STATE_LENGTH = 4, 2, 4


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
class RuleSet:
    """Rules with the same keys."""

    rules: tuple[Rule, ...]

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
        before = _states_of(state)
        after: dict[str, bytes] = {}
        found: list[Transition] = []
        due: list[int] = []
        is_raised = False
        for number, rule in enumerate(self.rules):
            made = step(
                rule,
                key,
                before.pop(rule.name, None),
                (Reading(at, levels[number], values) for at, levels, values in readings),
                watermark=watermark,
                passed=NEVER,
            )
            found += made.transitions
            is_raised = is_raised or made.is_raised
            if made.state is not None:
                after[rule.name] = made.state
            if made.due is not None:
                due.append(made.due)
        for name, left in sorted(before.items()):
            found += removed(name, key, left)
        return KeyStep(
            state=_state_bytes(after),
            transitions=tuple(found),
            due=min(due, default=None),
            is_raised=is_raised,
        )


def _state_bytes(states: Mapping[str, bytes]) -> bytes | None:
    if not states:
        return None
    content = b"".join(_parts(states.items()))
    return bytes([_VERSION]) + zlib.crc32(content).to_bytes(_CHECKSUM) + content


def _parts(states: Iterable[tuple[str, bytes]]) -> Iterable[bytes]:
    for name, state in states:
        encoded = name.encode()
        yield len(encoded).to_bytes(_NAME_LENGTH)
        yield encoded
        yield len(state).to_bytes(_STATE_LENGTH)
        yield state


def _states_of(content: bytes | None) -> dict[str, bytes]:
    if content is None:
        return {}
    if content[:1] > bytes([_VERSION]):
        raise StateError(
            f"this state of rules has version {content[0]}, and this Pillion reads versions up to "
            f"{_VERSION}; run the version that wrote it, or a later one"
        )
    body = content[1 + _CHECKSUM :]
    checksum = zlib.crc32(body).to_bytes(_CHECKSUM)
    if content[: 1 + _CHECKSUM] != bytes([_VERSION]) + checksum:
        raise StateError("this state of rules is damaged; start from another checkpoint")
    found: dict[str, bytes] = {}
    position = 0

    def take(size: int) -> bytes:
        nonlocal position
        position += size
        return body[position - size : position]

    while position < len(body):
        name = take(int.from_bytes(take(_NAME_LENGTH))).decode()
        found[name] = take(int.from_bytes(take(_STATE_LENGTH)))
    return found
