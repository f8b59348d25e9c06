"""Writes statuses, and only what differs. Conditions and states are written at once; the reasons of
refusals and of stopped gateways within seconds; frequently changing values, such as depths, at
intervals."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api, NotFound
from pillion_operator.cluster.types import Object, our_type
from pillion_operator.controllers.states import SERVICE_STATUS
from pillion_operator.evaluation.references import REPLAY, SERVICE
from pillion_operator.events import EventRecorder
from pillion_operator.status.conditions import (
    OUR_TYPES,
    Condition,
    find_condition,
    rfc3339,
    set_conditions,
)
from pillion_operator.store import Change, Key, Store, key_of
from pillion_sidecar.config.problems import defect
from pillion_sidecar.config.schema.status import CONDITIONS, ConditionType, Told

#: Minimum seconds between two writes of a frequently changing value.
SLOW_INTERVAL = 30.0
#: Minimum seconds between two writes of a message of `_TOLD_SOON`, which any Secret or pod can
#: change.
SOON_INTERVAL = 5.0
#: Fields that are written at once, besides conditions.
_URGENT = ("observedGeneration", "revision", "subscriptionState")
#: Reasons with important messages: after fixing one problem of a Secret users look for the next; a
#: pending pod soon says what it waits for.
_TOLD_SOON = frozenset(("NotAccepted", "GatewayNotRunning"))
#: Temporary reasons for not being ready.
_ON_ITS_WAY = frozenset({"RollingOut", "Disabled", "Deleted"})


@dataclass(frozen=True, slots=True)
class Transition:
    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def transitions(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    conditions: Iterable[ConditionType] = CONDITIONS,
) -> Iterator[Transition]:
    yield from _readiness(before, after)
    for kind in conditions:
        old = find_condition(before.get("conditions"), kind.name)
        new = find_condition(after.get("conditions"), kind.name)
        was, now = (one is not None and one["status"] == kind.bad for one in (old, new))
        if new is None or was == now or kind.told is Told.NEVER:
            continue
        if now:
            # A reason may occur under several conditions.
            note = f"{new['reason']}: {new['message']}"
            yield Transition("Warning", kind.event(kind.bad), note)
        elif kind.told is Told.BOTH and new["status"] != "Unknown":
            yield Transition("Normal", kind.event(new["status"]), new["message"])
    yield from _states(before, after)


def _readiness(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Transition]:
    old = find_condition(before.get("conditions"), "Ready")
    new = find_condition(after.get("conditions"), "Ready")
    accepted = find_condition(after.get("conditions"), "Accepted")
    if new is None or before.get("subscriptionState") != after.get("subscriptionState"):
        return
    if accepted is not None and accepted["status"] == "False":
        return
    was, now = (one["status"] if one is not None else "True" for one in (old, new))
    if now == "False" and (was, old and old["reason"]) != (now, new["reason"]):
        # Deliverers that load a change are no warning.
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


class StatusWriter:
    def __init__(
        self,
        *,
        api: Api,
        store: Store,
        recorder: EventRecorder,
        clock: Clock,
        requeue: Callable[[Key, float], None],
    ) -> None:
        self._api = api
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._requeue = requeue
        self._written: dict[Key, float] = {}
        #: The services whose own reconcile failed last.
        self._failures: dict[Key, Condition] = {}

    def follow(self, change: Change) -> None:
        if change.after is None:
            self._written.pop(change.key, None)
            self._failures.pop(change.key, None)

    async def failed(self, key: Key, error: Exception) -> None:
        """Write an internal error of the operator into the object's status."""
        problem = defect(error)
        failure = Condition(
            "Ready", "False", problem.reason, f"{problem.message}. {problem.remedy}"
        )
        about = Key(SERVICE, key.namespace, key.name) if key.kind == SERVICE_STATUS else key
        if key.kind == SERVICE:
            # Reports of deliverers say nothing of a service that cannot be rendered.
            self._failures[key] = failure
        body = self._store.get(about)
        if body is not None:
            # The others were not judged, so they stay.
            await self._put(body, [failure], body.get("status") or {}, ours=(), again_as=key)

    def succeeded(self, key: Key) -> None:
        self._failures.pop(key, None)

    async def write(
        self,
        body: Object,
        conditions: Sequence[Condition],
        fields: Mapping[str, Any],
        *,
        again_as: Key | None = None,
    ) -> None:
        """``again_as`` is the key to requeue; default: the object's own."""
        failure = self._failures.get(key_of(body))
        if failure is not None:
            conditions = [*(one for one in conditions if one.type != "Ready"), failure]
        await self._put(body, conditions, fields, ours=OUR_TYPES, again_as=again_as)

    async def _put(
        self,
        body: Object,
        conditions: Sequence[Condition],
        fields: Mapping[str, Any],
        *,
        ours: Collection[str],
        again_as: Key | None,
    ) -> None:
        """``ours``: see ``set_conditions``."""
        key, now = key_of(body), self._clock.monotonic()
        live: Mapping[str, Any] = body.get("status") or {}
        generation = body["metadata"]["generation"]
        wanted = {
            **fields,
            "observedGeneration": generation,
            "conditions": set_conditions(
                live.get("conditions") or (),
                conditions,
                generation=generation,
                now=rfc3339(self._clock.time()),
                ours=ours,
            ),
        }
        slow = SOON_INTERVAL if key.kind == REPLAY else SLOW_INTERVAL
        patch = changes(live, wanted, last_written_at=self._written.get(key), now=now, slow=slow)
        if patch is None:
            return
        if isinstance(patch, Later):
            self._requeue(again_as or key, patch.seconds)
            return
        # A new object of the same name must not get the status of the old one.
        patch["metadata"] = {"uid": body["metadata"]["uid"]}
        kind = our_type(key.kind)
        try:
            answer = await self._api.patch(
                kind, key.namespace, key.name, patch, subresource="status"
            )
        except NotFound:
            return
        self._store.put(answer)
        if self._store.get(key) is None:
            return
        self._written[key] = now
        for transition in transitions(live, wanted):
            self._recorder.publish(
                body,
                type=transition.type,
                reason=transition.reason,
                note=transition.note,
                action="Reconcile",
            )


@dataclass(frozen=True, slots=True)
class Later:
    seconds: float


def changes(
    live_status: Mapping[str, Any] | None,
    wanted_status: Mapping[str, Any],
    *,
    last_written_at: float | None,
    now: float,
    slow: float = SLOW_INTERVAL,
) -> dict[str, Any] | Later | None:
    """The merge patch (RFC 7386) for ``/status``, None without a difference, or Later.

    ``wanted_status`` is the whole status; other fields are removed. ``last_written_at`` is the
    ``now`` of the last write, on any clock; None before the first write. ``slow`` is the minimum
    seconds between two writes of a frequently changing value.
    """
    live = live_status or {}
    difference = _difference(live, wanted_status)
    if not difference:
        return None
    if last_written_at is not None and not _urgent(live, wanted_status):
        soon = _told_soon(live) != _told_soon(wanted_status)
        interval = SOON_INTERVAL if soon else slow
        # Bounded even after the clock was set back.
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
