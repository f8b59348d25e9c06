"""States and transitions of a message on the receiver's side (S1.1); ``docs/reliability.md`` shows
the table."""

from enum import IntEnum, StrEnum
from typing import NamedTuple


class State(IntEnum):
    #: Still in transport, or in an unreachable queue.
    IN_TRANSFER = 0
    #: Read; processing can start.
    READY = 1
    #: Accepted, and positively acknowledged (S1.2).
    IN_PROCESS = 2
    #: Accepted; held until its predecessors arrive, or its group ends (S1.5).
    OUT_OF_ORDER = 3
    #: In the destination queues; the groups are done with it.
    AVAILABLE = 4
    #: Never delivered by this receiver.
    DISCARDED = 5


class Transition(StrEnum):
    RECEIVE = "receive"
    ACCEPT = "accept"
    REJECT = "reject"
    HOLD = "hold"
    REPROCESS = "reprocess"
    DISCARD = "discard"
    DELIVER = "deliver"


class Guard(IntEnum):
    """Facts about a message that decide the transition."""

    READ = 0
    ACCEPTABLE = 1
    INVALID = 2
    EXPIRED = 3
    DUPLICATE = 4
    NO_ROOM = 5
    IN_SEQUENCE = 6
    PREDECESSORS_MISSING = 7
    HOPELESS = 8
    COMPLETED = 9
    TERMINATED = 10


class Row(NamedTuple):
    state: State
    transition: Transition
    guard: Guard
    to: State
    #: The guard, and the text for publishers.
    meaning: str


TABLE: tuple[Row, ...] = (
    Row(
        State.IN_TRANSFER,
        Transition.RECEIVE,
        Guard.READ,
        State.READY,
        "the line has been read",
    ),
    Row(
        State.READY,
        Transition.ACCEPT,
        Guard.ACCEPTABLE,
        State.IN_PROCESS,
        "valid, not expired, not a duplicate, and there is room: `accepted`",
    ),
    Row(
        State.READY,
        Transition.REJECT,
        Guard.INVALID,
        State.DISCARDED,
        "a member is wrong, or contradicts its group: 400, naming the field",
    ),
    Row(
        State.READY,
        Transition.REJECT,
        Guard.EXPIRED,
        State.DISCARDED,
        "its `expires` or `groupExpires` is over: 400, naming the field",
    ),
    Row(
        State.READY,
        Transition.REJECT,
        Guard.DUPLICATE,
        State.DISCARDED,
        "accepted before: `duplicate`, with the result of the original",
    ),
    Row(
        State.READY,
        Transition.REJECT,
        Guard.NO_ROOM,
        State.DISCARDED,
        "a queue, the journal or the groups are full: 429, to be sent again",
    ),
    Row(
        State.IN_PROCESS,
        Transition.DELIVER,
        Guard.IN_SEQUENCE,
        State.AVAILABLE,
        "its group is not ordered, or all its predecessors were delivered to the queues",
    ),
    Row(
        State.IN_PROCESS,
        Transition.HOLD,
        Guard.PREDECESSORS_MISSING,
        State.OUT_OF_ORDER,
        "predecessors are missing, and the group has a limit for the wait",
    ),
    Row(
        State.IN_PROCESS,
        Transition.DISCARD,
        Guard.HOPELESS,
        State.DISCARDED,
        "predecessors are missing, and the group has no such limit, or has ended: "
        "the fault `out-of-order`",
    ),
    Row(
        State.OUT_OF_ORDER,
        Transition.REPROCESS,
        Guard.COMPLETED,
        State.IN_PROCESS,
        "its predecessors have come",
    ),
    Row(
        State.OUT_OF_ORDER,
        Transition.REPROCESS,
        Guard.TERMINATED,
        State.IN_PROCESS,
        "its group has ended without them",
    ),
)

_BY_STATE = tuple(
    tuple(
        next((row for row in TABLE if row.state is state and row.guard is guard), None)
        for guard in Guard
    )
    for state in State
)


def step(state: State, guard: Guard) -> Row:
    """Return the row for a state and a guard. Raises LookupError if there is none."""
    row = _BY_STATE[state][guard]
    if row is None:
        raise LookupError(f"a message that is {state.name} has nothing to do with {guard.name}")
    return row
