"""The status of an IndicationService: its configuration and the counts of its deliverers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pillion_operator.cluster.scaling import replicas_of, scaler
from pillion_operator.cluster.types import STATEFUL_SET, Object
from pillion_operator.controllers.acceptance import accepted_condition, not_ready
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.readiness import GRACE, counts, level_known
from pillion_operator.controllers.selector_overlap import Overlaps
from pillion_operator.controllers.states import ServiceState, spec_of
from pillion_operator.evaluation.references import (
    DESTINATION,
    GATEWAY_REF,
    HAND_OVER_TO,
    SERVICE,
    SUBSCRIPTION,
    destination_ref,
    gateway_named,
    is_gateway,
)
from pillion_operator.evaluation.relaying import storage_class_of
from pillion_operator.injection.decision import is_sidecar_service, labels_of
from pillion_operator.names import (
    ABANDON_RELAY_ANNOTATION,
    REVISION_ANNOTATION,
    SERVICE_LABEL,
    configuration_secret,
    gateway,
)
from pillion_operator.polling.reports import DelivererReport, last_report
from pillion_operator.status.conditions import Condition
from pillion_operator.status.deliverers import (
    another_installation,
    count_fields,
    durability_condition,
    injection_condition,
    older_condition,
    ready_condition,
    scaled_elsewhere,
)
from pillion_operator.status.relaying import (
    abandoned_condition,
    gateway_condition,
    gateway_not_running,
    retained_condition,
    serving,
)
from pillion_operator.store import Key, key_of
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.schema.service import Durability

#: Seconds to the next attempt to annotate pods.
POKE_AGAIN = 10.0
_BY_SAFETY = (Durability.MEMORY, Durability.STATE_ONLY, Durability.DISK)


class ServiceStatusReconciler:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._overlaps = Overlaps(store=context.store)
        context.store.subscribe(self._overlaps.follow)

    async def reconcile(self, key: Key) -> None:
        service = Key(SERVICE, key.namespace, key.name)
        body, state = self._context.store.get(service), self._context.states.get(service)
        if body is None or state is None or state.evaluated != spec_of(body):
            # The service's own reconcile is pending and will notify.
            return
        verdict = state.evaluation.verdict
        if not verdict.accepted:
            conditions = [
                accepted_condition(verdict),
                not_ready(verdict),
                *self._former_gateways(service, body),
            ]
            fields = self._fields(service, body, state)
            await self._context.statuses.write(body, conditions, fields, again_as=key)
            return
        if level_known(self._context, service) != state.level:
            # The oldest deliverer came or left.
            self._context.requeue(service, 0.0)
        named = gateway_services(body)
        if not self._context.gathered([service, *named.values(), *self._retained(service)]):
            return
        if state.unwritten is None and not state.written:
            # Until the service's own reconcile has rolled out this generation, what deliverers run
            # says nothing of it.
            return
        gateway = self._gateway(state, named) if named else None
        ready = self._ready(service, body, state, gateway)
        patience = state.rolled_out_at + GRACE - self._context.clock.monotonic()
        if ready.status == "False" and ready.reason == "RollingOut" and patience > 0:
            self._context.requeue(key, patience)
            return
        if ready.reason == "RollingOut":
            self._poke_again(key, service, state.rollout.revision)
        conditions = [accepted_condition(verdict), ready, *self._injection(service, body)]
        if gateway is not None:
            conditions.append(gateway)
        conditions += self._older(service, state)
        conditions += self._overruled(service, body, state)
        conditions += self._former_gateways(service, body)
        fields = self._fields(service, body, state)
        await self._context.statuses.write(body, conditions, fields, again_as=key)

    def _older(self, service: Key, state: ServiceState) -> list[Condition]:
        pods = {pod["metadata"]["name"] for pod in self._context.pods(service)}
        levels = {
            answer.pod: answer.schema_level
            for answer in self._context.answers(service)
            if isinstance(answer, DelivererReport)
        }
        older = [pod for pod in pods if levels.get(pod, LEVEL) < LEVEL]
        unheard = [pod for pod in pods if pod not in levels] if state.left_out else []
        if not older and not unheard:
            return []
        left_out = [str(one) for one in state.left_out]
        return [older_condition(older, unheard, len(pods), left_out)]

    def _overruled(self, service: Key, body: Object, state: ServiceState) -> list[Condition]:
        found = []
        if state.rival:
            found.append(another_installation(self._context.settings.installation, state.rival))
        there = self._stateful_set(service) if is_gateway(body) else None
        by = scaler(there)
        if by:
            replicas = replicas_of(body, there)
            found.append(scaled_elsewhere(gateway(service.name), by, replicas))
        return found

    def _retained(self, service: Key) -> dict[Key, set[str]]:
        """By gateway, the subscriptions of a service that it keeps although they are not relayed
        there any more."""
        found = {}
        for former in sorted(self._context.references.gateways(service.namespace)):
            state = self._context.states.get(former)
            if state is not None and service.name in state.retained:
                found[former] = state.retained[service.name]
        return found

    def _former_gateways(self, service: Key, body: Object) -> list[Condition]:
        retained = {former.name: kept for former, kept in self._retained(service).items()}
        found = [retained_condition(service.name, retained)] if retained else []
        asked = (body["metadata"].get("annotations") or {}).get(ABANDON_RELAY_ANNOTATION)
        if asked is None:
            return found
        former = Key(SERVICE, service.namespace, asked)
        abandoned = abandoned_condition(
            body,
            asked,
            named={key.name for key in gateway_services(body).values()},
            retained=retained,
            pending=self._pending(former, retained.get(asked, ())),
        )
        return [*found, abandoned]

    def _pending(self, gateway: Key, subscriptions: Iterable[str]) -> int | None:
        """How much a gateway last reported for the destinations of subscriptions; None if it has
        not answered."""
        store, namespace = self._context.store, gateway.namespace
        bodies = (store.get(Key(SUBSCRIPTION, namespace, name)) for name in subscriptions)
        places = {destination_ref(body) for body in bodies if body is not None}
        reports = [last_report(answer) for answer in self._context.answers(gateway)]
        known = [report.pending for report in reports if report is not None]
        return sum(one.get(place, 0) for one in known for place in places) if known else None

    def _gateway(self, state: ServiceState, named: Mapping[str, Key]) -> Condition:
        counted = {key.name: counts(self._context, key, ()) for key in named.values()}
        verdicts = state.evaluation.gateways.values()
        wrong = [(verdict.reason, verdict.message) for verdict in verdicts if not verdict.accepted]
        return gateway_condition(wrong, counted)

    def _poke_again(self, key: Key, service: Key, revision: str | None) -> None:
        """Annotate outdated pods: their annotation failed, or they are new."""
        if revision is None:
            return
        behind = {
            answer.pod
            for answer in self._context.answers(service)
            if isinstance(answer, DelivererReport) and answer.revision != revision
        }
        unpoked = [
            key_of(pod)
            for pod in self._context.pods(service)
            if pod["metadata"]["name"] in behind
            and (pod["metadata"].get("annotations") or {}).get(REVISION_ANNOTATION) != revision
        ]
        self._context.poker.poke(unpoked, revision)
        if unpoked:
            self._context.requeue(key, POKE_AGAIN)

    def _ready(
        self, service: Key, body: Object, state: ServiceState, gateway: Condition | None
    ) -> Condition:
        """``gateway`` is GatewayReady, of a service that names gateways."""
        if state.unwritten is not None:
            return Condition("Ready", "False", state.unwritten.reason, state.unwritten.message)
        if is_gateway(body):
            stopped = gateway_not_running(
                service.name,
                self._context.pods(service),
                serving=self._serving(service),
                replicas=replicas_of(body, self._stateful_set(service)),
                storage_class=storage_class_of(body),
            )
            if stopped is not None:
                return stopped
        revision = self._revision(service, state)
        ready = ready_condition(counts(self._context, service, {revision} if revision else ()))
        if ready.status != "False" and gateway is not None and gateway.status == "False":
            return Condition("Ready", "False", gateway.reason, f"GatewayReady: {gateway.message}")
        return ready

    def _serving(self, service: Key) -> set[str]:
        return serving(self._context.pods(service), self._context.answers(service))

    def _stateful_set(self, service: Key) -> Object | None:
        return self._context.store.get(
            Key(STATEFUL_SET.kind, service.namespace, gateway(service.name))
        )

    def _revision(self, service: Key, state: ServiceState) -> str | None:
        """The wanted revision: the rendered one, or the stored one if nothing can be rendered."""
        if state.evaluation.verdict.accepted and state.unwritten is None:
            return state.rollout.revision
        name = configuration_secret(service.name, 0)
        secret = self._context.store.get(Key("Secret", service.namespace, name))
        if secret is None or (labels_of(secret).get(SERVICE_LABEL) != service.name):
            return None
        annotations = secret["metadata"].get("annotations") or {}
        return annotations.get(REVISION_ANNOTATION)

    def _fields(self, service: Key, body: Object, state: ServiceState) -> Mapping[str, Any]:
        revision = self._revision(service, state)
        counted = counts(self._context, service, {revision} if revision else ())
        sidecar = is_sidecar_service(body)
        fields: dict[str, Any] = {
            "durability": self._durability(service, body).value,
            "destinations": state.evaluation.count(DESTINATION),
            "subscriptions": state.evaluation.count(SUBSCRIPTION),
            **count_fields(
                counted,
                ready=(
                    f"{len(self._serving(service))}/"
                    f"{replicas_of(body, self._stateful_set(service))}"
                    if is_gateway(body)
                    else f"{counted.ready}/{counted.deliverers}"
                ),
                injected=counted.deliverers if sidecar else None,
                missing=len(self._context.missed.missed(service)) if sidecar else None,
            ),
        }
        if revision is not None:
            fields["revision"] = revision
        return fields

    def _durability(self, service: Key, body: Object) -> Durability:
        """The lowest durability that a deliverer reports; without reports, the expected one."""
        reported = [
            answer.durability
            for answer in self._context.answers(service)
            if isinstance(answer, DelivererReport) and answer.durability is not None
        ]
        if reported:
            return min(reported, key=_BY_SAFETY.index)
        # Every deliverer that the operator makes has a folder for a journal.
        return Durability((body.get("spec") or {}).get("durability", Durability.DISK.value))

    def _injection(self, service: Key, body: Object) -> list[Condition]:
        if not is_sidecar_service(body):
            return []
        injected = len(self._context.pods(service))
        return [
            injection_condition(injected, self._context.missed.missed(service)),
            overlap_condition(self._overlaps.of(service)),
            durability_condition(
                self._durability(service, body), hand_over_to=gateway_named(body, HAND_OVER_TO)
            ),
        ]


def gateway_services(service: Object) -> Mapping[str, Key]:
    if is_gateway(service):
        return {}
    namespace = service["metadata"]["namespace"]
    named = {field: gateway_named(service, field) for field in (GATEWAY_REF, HAND_OVER_TO)}
    return {field: Key(SERVICE, namespace, name) for field, name in named.items() if name}


def overlap_condition(others: Sequence[str]) -> Condition:
    if not others:
        message = "No other service's podSelector selects what this one's selects."
        return Condition("SelectorsOverlap", "False", "Exclusive", message)
    return Condition(
        "SelectorsOverlap",
        "True",
        "PodsSelectedTwice",
        f"Pods that podSelector selects are selected by {', '.join(others)} too. The oldest "
        "service's deliverer is injected. Make the selectors exclusive.",
    )
