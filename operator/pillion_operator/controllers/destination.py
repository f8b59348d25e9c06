"""The reconcile of destinations: their status, and the finalizer that lets them drain."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pillion_operator.cluster.api import NotFound
from pillion_operator.cluster.types import Object, being_deleted, our_type
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.readiness import conditions, services_of, verdict_of
from pillion_operator.evaluation.namespace import being_drained
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
        if not await self._set_finalizer(body, drained=delivery.drained):
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
                *self._warnings(body, services, accepted=verdict.accepted),
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
        synced = self._context.has_synced(services)
        evaluations = self._context.evaluations(services)
        reasons = (evaluation.held.get(key.name) for evaluation in evaluations.values())
        verdict = judge_delivery(
            delivery,
            DestinationFacts(
                suspended=bool((body.get("spec") or {}).get("suspended")),
                held=next(filter(None, reasons), None),
                retry_interval=self._retry_interval(body, services),
                draining=draining,
                removed_everywhere=draining and synced and self._removed(key, services),
            ),
            live_conditions=(body.get("status") or {}).get("conditions"),
            now=self._context.clock.time(),
        )
        return verdict if synced else _with_live_status(body, verdict)

    def _warnings(
        self, body: Object, services: Sequence[Key], *, accepted: bool
    ) -> Iterator[Condition]:
        key, spec = key_of(body), body.get("spec") or {}
        if spec.get("sequenceIdentifiers") == SequenceIdentifiers.SEND:
            namespace = self._context.namespace(key.namespace)
            senders = shared_by(body, namespace=namespace, references=self._context.references)
            yield shared_condition(senders)
        evaluations = self._context.evaluations(services).values()
        others = {other for one in evaluations for other in one.same_places.get(key.name, ())}
        if others:
            yield same_place_condition(sorted(others))
        retry = retry_condition(spec, self._specs(services)) if accepted else None
        if retry is not None:
            yield retry

    def _specs(self, services: Sequence[Key]) -> dict[str, Object]:
        found = {service.name: self._context.store.get(service) for service in services}
        return {name: one.get("spec") or {} for name, one in found.items() if one is not None}

    def _removed(self, key: Key, services: Sequence[Key]) -> bool:
        """Whether every reachable deliverer runs a revision without the destination."""
        for service in services:
            state, found = self._context.states.get(service), self._context.store.get(service)
            # One that is being deleted is no longer rendered: its deliverers get no new revision.
            rendered = found is None or not being_deleted(found)
            if state is None or (rendered and key in state.rollout.content):
                return False
            revisions = (None, state.rollout.revision)
            for answer in self._context.answers(service):
                if isinstance(answer, Unreachable):
                    # It may be back soon, with its queue.
                    if key.name in answer.held:
                        return False
                elif rendered and answer.revision not in revisions:
                    return False
        return True

    def _retry_interval(self, body: Object, services: Sequence[Key]) -> float:
        retry = (body.get("spec") or {}).get("retry") or {}
        if "intervalSeconds" in retry:
            return float(retry["intervalSeconds"])
        specs = self._specs(services).values()
        intervals = (float(spec.get("deliveryRetryIntervalSeconds", 30)) for spec in specs)
        return max(intervals, default=30.0)

    async def _set_finalizer(self, body: Object, *, drained: bool) -> bool:
        """Set or remove the finalizer; return False if that removes the resource."""
        finalizers = body["metadata"].get("finalizers") or ()
        deleted, present = being_deleted(body), DRAIN_FINALIZER in finalizers
        wanted = (body.get("spec") or {}).get("removalPolicy") == "Drain"
        if deleted:
            wanted = wanted and present and not drained and not self._is_overdue(body)
        if wanted != present:
            others = [name for name in finalizers if name != DRAIN_FINALIZER]
            await self._patch(body, [*others, DRAIN_FINALIZER] if wanted else others)
        return not deleted or wanted == present

    def _is_overdue(self, body: Object) -> bool:
        """Whether it has drained for as long as it may; reports it, or looks again then."""
        began = seconds_of(body["metadata"]["deletionTimestamp"]) or 0.0
        lifetime = (body.get("spec") or {}).get("indicationLifetimeSeconds")
        timeout = min(float(lifetime), LONGEST_DRAIN) if lifetime else LONGEST_DRAIN
        timeout = max(timeout, SHORTEST_DRAIN)
        remaining = began + timeout - self._context.clock.time()
        if remaining > 0:
            self._context.requeue(key_of(body), remaining)
            return False
        self._context.recorder.publish(
            body,
            type="Warning",
            reason="DrainAbandoned",
            note=f"It was not drained within {timeout:g} s, and is removed. Deliverers continue "
            "with the rest.",
            action="Reconcile",
        )
        return True

    async def _patch(self, body: Object, finalizers: list[str]) -> None:
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


def _with_live_status(body: Object, verdict: DeliveryVerdict) -> DeliveryVerdict:
    """Take what only deliverers can tell from the live status, before they are polled."""
    status: Mapping[str, Any] = body.get("status") or {}
    before = [
        Condition(one["type"], one["status"], one["reason"], one["message"])
        for one in status.get("conditions") or ()
        if one.get("type") in REPORTED
    ]
    if not before:
        return verdict
    types = {condition.type for condition in before}
    rest = [condition for condition in verdict.conditions if condition.type not in types]
    others = ("conditions", "observedGeneration")
    return replace(
        verdict,
        conditions=(*before, *rest),
        fields={name: value for name, value in status.items() if name not in others},
        drained=False,
    )
