"""The reconcile of destinations: their status, and the finalizer that lets them drain."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pillion_operator.cluster.api import NotFound
from pillion_operator.cluster.types import Object, our_type
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.readiness import conditions, services_of, verdict_of
from pillion_operator.evaluation.namespace import being_deleted, being_drained
from pillion_operator.evaluation.references import DESTINATION, SERVICE
from pillion_operator.evaluation.relaying import shared_by
from pillion_operator.names import DRAIN_FINALIZER
from pillion_operator.polling.aggregate import delivery_of
from pillion_operator.polling.reports import Unreachable
from pillion_operator.status.conditions import REPORTED, Condition, seconds_of
from pillion_operator.status.delivery import DeliveryVerdict, DestinationFacts, judge_delivery
from pillion_operator.status.relaying import same_place_condition, shared_condition
from pillion_operator.status.retry import retry_condition
from pillion_operator.store import Key, key_of
from pillion_sidecar.config.schema.destination import SequenceIdentifiers

#: Maximum seconds that a destination is kept while its queues drain.
LONGEST_DRAIN = 86_400.0
#: Minimum seconds, however short the lifetime of indications.
SHORTEST_DRAIN = 60.0

#: Status fields that only deliverers report.
_TOLD = (
    "depth",
    "highWater",
    "oldestIndicationTime",
    "lastResult",
    "nextAttemptTime",
    "firstLossDueTime",
    "discarded",
    "lastDiscardTime",
    "deliverers",
    "relays",
)


class DestinationReconciler:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def reconcile(self, key: Key) -> None:
        """Set the finalizer by removalPolicy, and write the status."""
        body = self._context.store.get(key)
        if body is None:
            return
        services = services_of(self._context, key)
        delivery = self._judge(body, services)
        if not await self._hold(body, drained=delivery.drained):
            return
        body = self._context.store.get(key)
        verdict = verdict_of(self._context, body, services) if body is not None else None
        if body is None or verdict is None:
            return
        found = conditions(self._context, body, verdict, services)
        if found is None:
            return
        if delivery.due_again is not None:
            self._context.requeue(key, delivery.due_again)
        await self._context.statuses.write(
            body,
            [
                *found,
                *delivery.conditions,
                *self._identifiers(body),
                *self._same_place(key, services),
                *self._retry(body, services, accepted=verdict.accepted),
            ],
            delivery.fields,
        )

    def _judge(self, body: Object, services: Sequence[Key]) -> DeliveryVerdict:
        key = key_of(body)
        draining = being_drained(body)
        if draining:
            names = self._context.store.all(SERVICE, key.namespace)
            services = [Key(SERVICE, key.namespace, name) for name in sorted(names)]
        answers = [one for service in services for one in self._context.answers(service)]
        delivery = delivery_of(key.name, answers)
        asked = self._context.has_synced(services)
        verdict = judge_delivery(
            delivery,
            DestinationFacts(
                suspended=bool((body.get("spec") or {}).get("suspended")),
                held=next(filter(None, (self._held(key, one) for one in services)), None),
                retry_interval=self._retry_interval(body, services),
                draining=draining,
                removed_everywhere=draining and asked and self._removed(key, services),
            ),
            live_conditions=_status(body).get("conditions"),
            now=self._context.clock.time(),
        )
        return verdict if asked else _as_told_before(body, verdict)

    def _held(self, key: Key, service: Key) -> str | None:
        """Why it is rendered suspended although its user has not suspended it."""
        state = self._context.states.get(service)
        return None if state is None else state.evaluation.held.get(key.name)

    def _identifiers(self, body: Object) -> list[Condition]:
        if (body.get("spec") or {}).get("sequenceIdentifiers") != SequenceIdentifiers.SEND:
            return []
        namespace = self._context.namespace(body["metadata"]["namespace"])
        services = shared_by(body, namespace=namespace, references=self._context.references)
        return [shared_condition(services)]

    def _same_place(self, key: Key, services: Sequence[Key]) -> list[Condition]:
        states = [self._context.states.get(service) for service in services]
        others = {
            other
            for state in states
            if state is not None
            for other in state.evaluation.same_places.get(key.name, ())
        }
        return [same_place_condition(sorted(others))] if others else []

    def _retry(self, body: Object, services: Sequence[Key], *, accepted: bool) -> list[Condition]:
        if not accepted:
            return []
        found = {service.name: self._context.store.get(service) for service in services}
        specs = {name: one.get("spec") or {} for name, one in found.items() if one is not None}
        condition = retry_condition(body.get("spec") or {}, specs)
        return [] if condition is None else [condition]

    def _removed(self, key: Key, services: Sequence[Key]) -> bool:
        """Whether every reachable deliverer runs a revision without the destination."""
        for service in services:
            state, found = self._context.states.get(service), self._context.store.get(service)
            # One that is being deleted is no longer rendered: its deliverers get no new revision.
            told = found is None or not being_deleted(found)
            if state is None or (told and key in state.rollout):
                return False
            revisions = (None, state.rollout.revision)
            for answer in self._context.answers(service):
                if isinstance(answer, Unreachable):
                    # It may be back soon, with its queue.
                    if key.name in answer.held:
                        return False
                elif told and answer.revision not in revisions:
                    return False
        return True

    def _retry_interval(self, body: Object, services: Sequence[Key]) -> float:
        retry = (body.get("spec") or {}).get("retry") or {}
        if "intervalSeconds" in retry:
            return float(retry["intervalSeconds"])
        found = [self._context.store.get(service) for service in services]
        intervals = [
            float((service.get("spec") or {}).get("deliveryRetryIntervalSeconds", 30))
            for service in found
            if service is not None
        ]
        return max(intervals, default=30.0)

    async def _hold(self, body: Object, *, drained: bool) -> bool:
        """Set or remove the finalizer; return False if that removes the resource."""
        finalizers = _finalizers(body)
        held = DRAIN_FINALIZER in finalizers
        wanted = (body.get("spec") or {}).get("removalPolicy") == "Drain"
        if being_deleted(body):
            if not held:
                return True
            overdue = self._overdue(body)
            if wanted and not drained and overdue is None:
                return True
            if wanted and not drained and overdue is not None:
                self._context.recorder.publish(
                    body,
                    type="Warning",
                    reason="DrainAbandoned",
                    note=overdue,
                    action="Reconcile",
                )
            await self._finalize(body, [name for name in finalizers if name != DRAIN_FINALIZER])
            return False
        if wanted and not held:
            await self._finalize(body, [*finalizers, DRAIN_FINALIZER])
        elif held and not wanted:
            await self._finalize(body, [name for name in finalizers if name != DRAIN_FINALIZER])
        return True

    def _overdue(self, body: Object) -> str | None:
        began = seconds_of(body["metadata"]["deletionTimestamp"]) or 0.0
        lifetime = (body.get("spec") or {}).get("indicationLifetimeSeconds")
        patience = min(float(lifetime), LONGEST_DRAIN) if lifetime else LONGEST_DRAIN
        remaining = began + max(patience, SHORTEST_DRAIN) - self._context.clock.time()
        if remaining > 0:
            self._context.requeue(key_of(body), remaining)
            return None
        return (
            f"It was held for {max(patience, SHORTEST_DRAIN):g} s to be drained, and is not. "
            "Deliverers go on with what they hold."
        )

    async def _finalize(self, body: Object, finalizers: list[str]) -> None:
        metadata = body["metadata"]
        # The version protects a finalizer that others set meanwhile.
        patch = {
            "metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}
        }
        key = key_of(body)
        try:
            answer = await self._context.api.patch(
                our_type(DESTINATION), key.namespace, key.name, patch
            )
        except NotFound:
            self._context.store.remove(key)
            return
        self._context.store.put(answer)


def _finalizers(body: Object) -> list[str]:
    return list(body["metadata"].get("finalizers") or ())


def _status(body: Object) -> Mapping[str, Any]:
    status: Mapping[str, Any] = body.get("status") or {}
    return status


def _as_told_before(body: Object, verdict: DeliveryVerdict) -> DeliveryVerdict:
    """Complete a verdict by the live status while nobody could be asked."""
    status = _status(body)
    before = [
        Condition(one["type"], one["status"], one["reason"], one["message"])
        for one in status.get("conditions") or ()
        if one.get("type") in REPORTED
    ]
    if not before:
        return verdict
    told = {condition.type for condition in before}
    rest = [condition for condition in verdict.conditions if condition.type not in told]
    return replace(
        verdict,
        conditions=(*before, *rest),
        fields={name: status[name] for name in _TOLD if name in status},
        drained=False,
    )
