"""Whether a status is written, when, and what of it. Pure.

What somebody may wait for is written at once; why an object is not accepted or a gateway does not
run, within seconds; what merely moves, such as a depth, at most once in a while; what is the same
already, never.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Seconds between two writes of what merely moves.
SLOW_INTERVAL = 30.0
#: Seconds between two writes of a message of `_TOLD_SOON`, which each Secret or pod can change.
SOON_INTERVAL = 5.0
#: Fields whose change is written at once; conditions beside them.
_URGENT = ("observedGeneration", "revision", "subscriptionState")
#: Reasons whose message is what people look for: who mends one fault of a Secret sees the next
#: one; a pod is at first only pending, and says soon afterwards what it waits for.
_TOLD_SOON = frozenset(("NotAccepted", "GatewayNotRunning"))


@dataclass(frozen=True, slots=True)
class Later:
    """The status differs, and is to be written later."""

    #: From now.
    seconds: float


def changes(
    live_status: Mapping[str, Any] | None,
    wanted_status: Mapping[str, Any],
    *,
    last_written_at: float | None,
    now: float,
    slow_interval: float = SLOW_INTERVAL,
) -> dict[str, Any] | Later | None:
    """The merge patch (RFC 7386) for ``/status``, None where nothing differs, or Later.

    ``wanted_status`` is the whole status: what it lacks, the patch removes. ``last_written_at`` is
    the ``now`` of the last write, on any clock; None where this process has not written it yet.
    """
    live = live_status or {}
    difference = _difference(live, wanted_status)
    if not difference:
        return None
    if last_written_at is not None and not _urgent(live, wanted_status):
        soon = _told_soon(live) != _told_soon(wanted_status)
        interval = min(SOON_INTERVAL, slow_interval) if soon else slow_interval
        # Within the interval even where the clock was set back.
        wait = min(interval, last_written_at + interval - now)
        if wait > 0:
            return Later(wait)
    return {"status": difference}


def _difference(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    difference: dict[str, Any] = {name: None for name in live if name not in wanted}
    for name, value in wanted.items():
        before = live.get(name)
        if name in live and before == value:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            difference[name] = _difference(before, value)
        else:
            difference[name] = value
    return difference


def _urgent(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    if any(live.get(name) != wanted.get(name) for name in _URGENT):
        return True
    return _transitions(live) != _transitions(wanted)


def _transitions(status: Mapping[str, Any]) -> dict[Any, tuple[Any, ...]]:
    return {
        condition.get("type"): (
            condition.get("status"),
            condition.get("reason"),
            condition.get("observedGeneration"),
        )
        for condition in status.get("conditions") or ()
    }


def _told_soon(status: Mapping[str, Any]) -> dict[Any, Any]:
    return {
        condition.get("type"): condition.get("message")
        for condition in status.get("conditions") or ()
        if condition.get("reason") in _TOLD_SOON
    }
