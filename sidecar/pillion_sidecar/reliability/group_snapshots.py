"""Message groups as bytes for journal snapshots, in journal time and dates, which keep their
meaning over a restart."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from pillion_sidecar.reliability.group_rules import GroupState, Termination
from pillion_sidecar.reliability.intervals import Intervals

#: Maximum bytes of a name, a state and an interval in a snapshot.
NAME_BYTES = 16
STATE_BYTES = 80
INTERVAL_BYTES = 18

#: By number in a snapshot less one; 0 is none.
_TERMINATIONS = (
    Termination.EXPIRED,
    Termination.IDLE,
    Termination.ENDED,
    Termination.ENDED_UNTIMED,
    Termination.CUT_SHORT,
    Termination.OUT_OF_ORDER,
)


class Group(msgspec.Struct, frozen=True, array_like=True):
    generation: int
    ordered: bool
    expires: float | None
    max_idle_seconds: float | None
    last: int | None
    #: Journal time.
    received_at: float
    remembered_until: float
    #: Journal time; 0 for none.
    window_until: float
    termination: int
    received: tuple[int, ...]
    #: Journal time; None: no member was relayed.
    relayed_at: float | None = None
    passed: tuple[int, ...] = ()


class Name(msgspec.Struct, frozen=True, array_like=True):
    """The groups of one name: terminated ones, oldest first, then the live one."""

    source: str | None
    group: str
    states: tuple[Group, ...]


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    #: The largest in use.
    generation: int
    names: tuple[Name, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Snapshot).decode


def encode_groups(
    generation: int,
    names: Iterable[tuple[str | None, str, Sequence[GroupState]]],
    *,
    offset: float,
) -> bytes:
    """``offset``: journal time less ``Clock.monotonic()``."""
    return _encode(
        Snapshot(
            generation,
            tuple(
                Name(source, group, tuple(_written(state, offset) for state in states))
                for source, group, states in names
            ),
        )
    )


def decode_groups(
    data: bytes, *, offset: float
) -> tuple[int, list[tuple[str | None, str, list[GroupState]]]]:
    """The inverse of :func:`encode_groups`, with this run's ``offset``."""
    snapshot = _decode(data)
    return snapshot.generation, [
        (name.source, name.group, [_read(state, offset) for state in name.states])
        for name in snapshot.names
    ]


def _written(state: GroupState, offset: float) -> Group:
    return Group(
        state.generation,
        state.ordered,
        state.expires,
        state.max_idle_seconds,
        state.last,
        state.received_at + offset,
        state.remembered_until,
        max(0.0, state.window_until + offset),
        0 if state.terminated is None else _TERMINATIONS.index(state.terminated) + 1,
        state.received.bounds,
        None if state.relayed_at is None else state.relayed_at + offset,
        state.passed.bounds,
    )


def _read(group: Group, offset: float) -> GroupState:
    return GroupState(
        generation=group.generation,
        ordered=group.ordered,
        expires=group.expires,
        max_idle_seconds=group.max_idle_seconds,
        received=Intervals(group.received),
        passed=Intervals(group.passed),
        last=group.last,
        received_at=group.received_at - offset,
        remembered_until=group.remembered_until,
        window_until=group.window_until - offset if group.window_until else -math.inf,
        relayed_at=None if group.relayed_at is None else group.relayed_at - offset,
        terminated=_TERMINATIONS[group.termination - 1] if group.termination else None,
    )
