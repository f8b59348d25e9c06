"""Writes statuses: only what differs, conditions at once, what merely moves now and then."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api, NotFound
from pillion_operator.cluster.types import Object, our_type
from pillion_operator.controllers.states import SERVICE_STATUS
from pillion_operator.evaluation.references import SERVICE
from pillion_operator.events import EventRecorder
from pillion_operator.status.conditions import Condition, find_condition, rfc3339, set_conditions
from pillion_operator.status.writing import Later, changes
from pillion_operator.store import Change, Key, Store, key_of
from pillion_sidecar.config.problems import defect
from pillion_sidecar.config.schema.status import CONDITIONS, ConditionType, Told

#: Reasons why something is not ready that end by themselves.
_ON_ITS_WAY = frozenset({"RollingOut", "Disabled", "Deleted"})


@dataclass(frozen=True, slots=True)
class Transition:
    """One Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def transitions(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    conditions: Iterable[ConditionType] = CONDITIONS,
) -> Iterator[Transition]:
    """The Events that a status has to tell that became ``after`` from ``before``."""
    yield from _readiness(before, after)
    for kind in conditions:
        old = find_condition(before.get("conditions"), kind.name)
        new = find_condition(after.get("conditions"), kind.name)
        was, now = (one is not None and one["status"] == kind.bad for one in (old, new))
        if new is None or was == now or kind.told is Told.NEVER:
            continue
        if now:
            # One reason may stand under several conditions; the Event says under which.
            note = f"{new['reason']}: {new['message']}"
            yield Transition("Warning", kind.event(kind.bad), note)
        elif kind.told is Told.BOTH and new["status"] != "Unknown":
            yield Transition("Normal", kind.event(new["status"]), new["message"])
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


class StatusWriter:
    """Writes the status of Pillion's own kinds."""

    def __init__(
        self,
        *,
        api: Api,
        store: Store,
        recorder: EventRecorder,
        clock: Clock,
        requeue: Callable[[Key, float], None],
    ) -> None:
        """``requeue`` has a key reconciled again after so many seconds."""
        self._api = api
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._requeue = requeue
        #: When each status was last written, on the monotonic clock.
        self._written: dict[Key, float] = {}
        #: The services whose own reconcile has failed last.
        self._failures: dict[Key, Condition] = {}

    def follow(self, change: Change) -> None:
        """Forget what is gone."""
        if change.after is None:
            self._written.pop(change.key, None)
            self._failures.pop(change.key, None)

    async def failed(self, key: Key, error: Exception) -> None:
        """Have the object's status say that the operator itself fails on it."""
        problem = defect(error)
        failure = Condition(
            "Ready", "False", problem.reason, f"{problem.message}. {problem.remedy}"
        )
        about = Key(SERVICE, key.namespace, key.name) if key.kind == SERVICE_STATUS else key
        if key.kind == SERVICE:
            # What is known of its deliverers says nothing of a service that cannot be rendered.
            self._failures[key] = failure
        body = self._store.get(about)
        if body is None:
            return
        live: Mapping[str, Any] = body.get("status") or {}
        generation = body["metadata"]["generation"]
        conditions = set_conditions(
            live.get("conditions") or (),
            [failure],
            generation=generation,
            now=rfc3339(self._clock.time()),
            # The others stay as they are: they were not judged.
            ours=(),
        )
        wanted = {**live, "observedGeneration": generation, "conditions": conditions}
        await self._put(body, live, wanted, again_as=key)

    def succeeded(self, key: Key) -> None:
        """The reconcile of an object did not fail."""
        self._failures.pop(key, None)

    async def write(
        self,
        body: Object,
        conditions: Sequence[Condition],
        fields: Mapping[str, Any],
        *,
        again_as: Key | None = None,
    ) -> None:
        """Have the status say so. ``again_as`` is the key to come again with, if not its own."""
        failure = self._failures.get(key_of(body))
        if failure is not None:
            conditions = [*(one for one in conditions if one.type != "Ready"), failure]
        live: Mapping[str, Any] = body.get("status") or {}
        generation = body["metadata"]["generation"]
        wanted = {
            "observedGeneration": generation,
            "conditions": set_conditions(
                live.get("conditions") or (),
                conditions,
                generation=generation,
                now=rfc3339(self._clock.time()),
            ),
            **fields,
        }
        await self._put(body, live, wanted, again_as=again_as)

    async def _put(
        self,
        body: Object,
        live: Mapping[str, Any],
        wanted: Mapping[str, Any],
        *,
        again_as: Key | None,
    ) -> None:
        key = key_of(body)
        now = self._clock.monotonic()
        patch = changes(live, wanted, last_written_at=self._written.get(key), now=now)
        if patch is None:
            return
        if isinstance(patch, Later):
            self._requeue(again_as or key, patch.seconds)
            return
        # One that was made anew under the same name must not get the status of the one before.
        if not await self._patch(key, {"metadata": {"uid": body["metadata"]["uid"]}, **patch}):
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

    async def _patch(self, key: Key, patch: Mapping[str, Any]) -> bool:
        """Whether the object is still there."""
        kind = our_type(key.kind)
        try:
            answer = await self._api.patch(
                kind, key.namespace, key.name, patch, subresource="status"
            )
        except NotFound:
            # Deleted meanwhile; its watch will say so.
            return False
        self._store.put(answer)
        return self._store.get(key) is not None
