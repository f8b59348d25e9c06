"""The conditions of a resource, by the Kubernetes API conventions. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pillion_sidecar.config.schema.status import CONDITIONS

#: The longest message, and the most conditions, that the schema of status allows.
LONGEST_MESSAGE = 32_768
MOST_CONDITIONS = 32

#: Every type that the operator writes; all others are somebody else's.
OUR_TYPES = frozenset(one.name for one in CONDITIONS)
#: Those that only deliverers' answers can tell.
REPORTED = frozenset(one.name for one in CONDITIONS if one.reported)


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: Literal["True", "False", "Unknown"]
    #: One CamelCase word for programs.
    reason: str
    #: A sentence for people.
    message: str


def set_conditions(
    live: Iterable[Mapping[str, Any]],
    wanted: Sequence[Condition],
    *,
    generation: int,
    now: str,
    ours: Collection[str] = OUR_TYPES,
) -> list[dict[str, Any]]:
    """The conditions to be written, by type.

    ``live`` are those in the resource, ``generation`` its metadata.generation, ``now`` a time after
    RFC 3339. The time of transition stays where the status does. Of the live ones, those of a type
    in ``ours`` go unless they are wanted; foreign ones stay, as far as there is room.
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
    """``message``, cut off where it is longer than a condition may have."""
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"


def rfc3339(at: float) -> str:
    """Seconds since the epoch as the API server writes times: UTC, to the second."""
    return datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")


def seconds_of(text: object) -> float | None:
    """A time of the API server in seconds since the epoch; None where it is no time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None
