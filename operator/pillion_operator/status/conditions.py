from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pillion_sidecar.config.schema.status import CONDITIONS

#: Maximum length of a message and number of conditions, by the schema of status.
LONGEST_MESSAGE = 32_768
MOST_CONDITIONS = 32
#: Maximum names that a message lists.
MOST_NAMES = 5

#: Every type that the operator writes; all others are somebody else's.
OUR_TYPES = frozenset(one.name for one in CONDITIONS)
#: Those that depend on deliverers' answers.
REPORTED = frozenset(one.name for one in CONDITIONS if one.reported)


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: Literal["True", "False", "Unknown"]
    #: CamelCase.
    reason: str
    message: str


def set_conditions(
    live: Iterable[Mapping[str, Any]],
    wanted: Sequence[Condition],
    *,
    generation: int,
    now: str,
    ours: Collection[str] = OUR_TYPES,
) -> list[dict[str, Any]]:
    """Merge ``wanted`` into the ``live`` conditions, by type.

    ``generation`` is metadata.generation, ``now`` a time after RFC 3339. An unchanged status keeps
    its transition time. Live conditions of a type in ``ours`` go unless wanted; foreign ones stay
    while there is room.
    """
    known = {str(condition.get("type")): condition for condition in live}
    made = {
        condition.type: _written(condition, known.get(condition.type), generation, now)
        for condition in wanted
    }
    foreign = sorted(kind for kind in known if kind not in made and kind not in ours)
    for kind in foreign[: max(0, MOST_CONDITIONS - len(made))]:
        made[kind] = dict(known[kind])
    return [made[kind] for kind in sorted(made)]


def some_of(names: Sequence[str], between: str = ", ") -> str:
    """The first ``MOST_NAMES`` of them, and how many more there are."""
    more = len(names) - MOST_NAMES
    return between.join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def find_condition(
    conditions: Iterable[Mapping[str, Any]] | None, kind: str
) -> Mapping[str, Any] | None:
    return next((one for one in conditions or () if one.get("type") == kind), None)


def _written(
    condition: Condition, live: Mapping[str, Any] | None, generation: int, now: str
) -> dict[str, Any]:
    since = None
    if live is not None and live.get("status") == condition.status:
        since = live.get("lastTransitionTime")
    return {
        "type": condition.type,
        "status": condition.status,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": condition.reason,
        "message": bounded(condition.message),
    }


def bounded(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"


def rfc3339(at: float) -> str:
    """Convert seconds since the epoch to UTC, to the second."""
    return datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")


def seconds_of(text: object) -> float | None:
    """Return seconds since the epoch; None for an invalid time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None
