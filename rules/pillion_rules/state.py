"""The state of one key and rule between two steps, as bytes: a version, a checksum, JSON."""

import json
import zlib
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from pillion_rules.errors import StateError
from pillion_rules.transitions import Reading

#: The first byte of a state: of one with what version 1 does not know, and the latest one.
FIRST_VERSION, SECOND_VERSION, VERSION = 1, 2, 3
#: Bytes of the CRC-32.
_CHECKSUM = 4
#: Before every event time.
NEVER = -(2**63)
#: After every event time.
FOREVER = 2**63


@dataclass(slots=True)
class Waiting:
    """A severity holds, and ``hold`` has not passed."""

    level: int
    since: int
    #: Time of the last reading with a severity.
    confirmed: int
    count: int


@dataclass(slots=True)
class Alert:
    """An alert that is raised."""

    level: int
    since: int
    count: int
    raised_at: int
    raised_level: int
    #: Time of its last transition, also of one that was not told.
    told: int
    #: Since when readings are clear; None: they are not.
    clear_since: int | None = None
    #: The level that was told last; 0: nothing was told of this alert.
    told_level: int = 0
    #: Whether a rule of ``unless`` was raised at the last transition.
    is_covered: bool = False
    #: Whether its raise was not told for its age alone.
    is_old: bool = False

    @property
    def is_hidden(self) -> bool:
        """Whether it was not told what the alert is."""
        return self.told_level != self.level


#: astuple copies what it finds, which takes many times as long.
_of_waiting = attrgetter(*(one.name for one in fields(Waiting)))
_of_alert = attrgetter(*(one.name for one in fields(Alert)))


@dataclass(slots=True)
class State:
    """``pending`` has the readings that the watermark has not passed, one for each time."""

    done: int = NEVER
    last: int | None = None
    waiting: Waiting | None = None
    alert: Alert | None = None
    #: For the message: of the last reading with a severity, or that was clear.
    values: dict[str, str] = field(default_factory=dict)
    pending: dict[int, Reading] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return self.last is None and self.alert is None and not self.pending


def state_bytes(state: State) -> bytes | None:
    """None for a state without content."""
    if state.is_empty:
        return None
    version, alert = _alert_of(state.alert)
    document = [
        state.done,
        state.last,
        _of_waiting(state.waiting) if state.waiting else None,
        alert,
        state.values,
        [[one.at, one.level, dict(one.values)] for one in state.pending.values()],
    ]
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    # A value may have half of a surrogate pair.
    content = text.encode("utf-8", "surrogatepass")
    return sealed(content, version=version)


def _alert_of(alert: Alert | None) -> tuple[int, tuple[Any, ...] | None]:
    """The first version that knows what there is, and no more than that."""
    if alert is None or not alert.is_hidden:
        return FIRST_VERSION, None if alert is None else _of_alert(alert)[:-3]
    content = _of_alert(alert)
    if alert.is_old:
        return VERSION, content
    return (VERSION, content[:-1]) if alert.is_covered else (SECOND_VERSION, content[:-2])


def sealed(content: bytes, *, version: int = FIRST_VERSION) -> bytes:
    """The bytes of a state: the version, a checksum, and its content."""
    return bytes([version]) + zlib.crc32(content).to_bytes(_CHECKSUM) + content


def opened(state: bytes, *, of: str) -> bytes:
    """The inverse of :func:`sealed`. Raises StateError for a later version, and a damaged state."""
    version = state[0] if state else 0
    if version > VERSION:
        raise StateError(
            f"this state of {of} has version {version}, and this Pillion reads versions up to "
            f"{VERSION}; run the version that wrote it, or a later one"
        )
    content = state[1 + _CHECKSUM :]
    if not version or state != sealed(content, version=version):
        raise damaged(of)
    return content


def damaged(of: str) -> StateError:
    return StateError(f"this state of {of} is damaged; start from another checkpoint")


def state_of(content: bytes | None) -> State:
    """The inverse of :func:`state_bytes`. Raises StateError."""
    if content is None:
        return State()
    body = opened(content, of="a rule")
    try:
        return _state(*json.loads(body.decode("utf-8", "surrogatepass")))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise damaged("a rule") from None


def _state(
    done: int,
    last: int | None,
    waiting: list[Any] | None,
    alert: list[Any] | None,
    values: dict[str, str],
    pending: list[list[Any]],
) -> State:
    return State(
        done=int(done),
        last=last,
        waiting=Waiting(*waiting) if waiting else None,
        alert=_alert(*alert) if alert else None,
        values=dict(values),
        pending={at: Reading(at, level, given) for at, level, given in pending},
    )


def _alert(level: int, *others: Any) -> Alert:
    found = Alert(level, *others)
    if len(others) < len(fields(Alert)) - 3:
        found.told_level = level
    return found
