"""Which changes of a status are worth a Kubernetes Event: transitions alone. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pillion_operator.status.conditions import find_condition

#: Of each condition: the status that is bad news, and whether its end is told too.
_NEWS: Mapping[str, tuple[str, bool]] = {
    "Accepted": ("False", True),
    "ListenerUnreachable": ("True", True),
    "Backlogged": ("True", True),
    "InjectionComplete": ("False", True),
    "SelectorsOverlap": ("True", False),
    "Draining": ("True", True),
    "RelayFailing": ("True", True),
    "SequenceIdentifiersShared": ("True", False),
    "GatewayReady": ("False", True),
    "RetryTooShort": ("True", False),
    "ClassUnknown": ("True", False),
    "AnotherInstallation": ("True", False),
    "SharedPortAndPath": ("True", False),
}

#: Reasons why something is not ready that end by themselves.
_ON_ITS_WAY = frozenset({"RollingOut", "Disabled", "Deleted"})


@dataclass(frozen=True, slots=True)
class Transition:
    """One Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Transition]:
    """The Events that a status has to tell that became ``after`` from ``before``."""
    yield from _readiness(before, after)
    for kind, (bad, told_when_over) in _NEWS.items():
        old = find_condition(before.get("conditions"), kind)
        new = find_condition(after.get("conditions"), kind)
        was, now = (one is not None and one["status"] == bad for one in (old, new))
        if new is None or was == now:
            continue
        if now:
            # One reason may stand under several conditions; the Event says under which.
            yield Transition("Warning", _named(kind, bad), f"{new['reason']}: {new['message']}")
        elif told_when_over and new["status"] != "Unknown":
            yield Transition("Normal", _named(kind, new["status"]), new["message"])
    yield from _states(before, after)


def _readiness(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Transition]:
    """Every change of Ready that no other Event tells."""
    old = find_condition(before.get("conditions"), "Ready")
    new = find_condition(after.get("conditions"), "Ready")
    accepted = find_condition(after.get("conditions"), "Accepted")
    if new is None or before.get("subscriptionState") != after.get("subscriptionState"):
        return
    if accepted is not None and accepted["status"] == "False":
        return
    was, now = (one["status"] if one is not None else "True" for one in (old, new))
    if now == "False" and (was, old and old["reason"]) != (now, new["reason"]):
        # Deliverers that take over a change are no bad news.
        calm = new["reason"] in _ON_ITS_WAY
        type: Literal["Normal", "Warning"] = "Normal" if calm else "Warning"
        yield Transition(type, "NotReady", f"{new['reason']}: {new['message']}")
    elif now != was and now == "True" and (old and old["reason"]) != "NotAccepted":
        yield Transition("Normal", "Ready", f"{new['reason']}: {new['message']}")


def _states(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Transition]:
    old, new = before.get("subscriptionState"), after.get("subscriptionState")
    if old is None or new is None or old == new:
        return
    ready = find_condition(after.get("conditions"), "Ready")
    note = str(ready["message"]) if ready is not None else ""
    yield Transition("Normal" if new == "Enabled" else "Warning", f"Subscription{new}", note)


def _named(kind: str, status: str) -> str:
    return kind if status == "True" else f"Not{kind}"
