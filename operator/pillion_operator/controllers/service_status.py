"""The status of an IndicationService: its configuration and the counts of its deliverers."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pillion_operator.cluster.scaling import replicas_of, scaler
from pillion_operator.cluster.types import STATEFUL_SET, Object
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.readiness import (
    GRACE,
    accepted_condition,
    counts,
    level_known,
    refused_conditions,
)
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
from pillion_operator.polling.reports import last_report
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
REFRESH_AGAIN = 10.0
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
        if verdict.accepted:
            conditions = self._conditions(key, service, body, state)
        else:
            conditions = [*refused_conditions(verdict), *self._former_gateways(service, body)]
        if conditions is not None:
            fields = self._fields(service, body, state)
            await self._context.statuses.write(body, conditions, fields, again_as=key)

    def _conditions(
        self, key: Key, service: Key, body: Object, state: ServiceState
    ) -> list[Condition] | None:
        """The conditions of an accepted service; None while a later reconcile is to write them."""
        if level_known(self._context, service) != state.level:
            # The oldest deliverer came or left.
            self._context.requeue(service, 0.0)
        named = state.evaluation.gateways
        gateways = sorted(self._context.references.gateways_of(service)) if named else []
        if not self._context.has_synced([service, *gateways, *self._retained(service)]):
            return None
        if state.unwritten is None and not state.written:
            # Until the service's own reconcile has rolled out this generation, what deliverers run
            # says nothing of it.
            return None
        gateway = self._gateway(state, gateways) if named else None
        ready = self._ready(service, body, state, gateway)
        grace = state.rolled_out_at + GRACE - self._context.clock.monotonic()
        if ready.status == "False" and ready.reason == "RollingOut" and grace > 0:
            self._context.requeue(key, grace)
            return None
        if ready.reason == "RollingOut":
            self._refresh_outdated(key, service, state.rollout.revision)
        return [
            accepted_condition(state.evaluation.verdict),
            ready,
            *self._injection(service, body),
            *([] if gateway is None else [gateway]),
            *self._older(service, state),
            *self._overruled(service, body, state),
            *self._former_gateways(service, body),
        ]

    def _older(self, service: Key, state: ServiceState) -> list[Condition]:
        pods = {pod["metadata"]["name"] for pod in self._context.pods(service)}
        levels = {report.pod: report.schema_level for report in self._context.reports(service)}
        older = [pod for pod in pods if levels.get(pod, LEVEL) < LEVEL]
        unheard = [pod for pod in pods if pod not in levels] if state.left_out else []
        if not older and not unheard:
            return []
        return [older_condition(older, unheard, len(pods), state.left_out)]

    def _overruled(self, service: Key, body: Object, state: ServiceState) -> Iterator[Condition]:
        if state.rival:
            yield another_installation(self._context.settings.installation, state.rival)
        live = self._stateful_set(service) if is_gateway(body) else None
        if manager := scaler(live):
            yield scaled_elsewhere(gateway(service.name), manager, replicas_of(body, live))

    def _retained(self, service: Key) -> dict[Key, Collection[str]]:
        """By gateway, the subscriptions of a service that it keeps although they are not relayed
        there any more."""
        found = {}
        for former in sorted(self._context.references.gateways(service.namespace)):
            state = self._context.states.get(former)
            if state is not None and service.name in state.evaluation.retained:
                found[former] = state.evaluation.retained[service.name]
        return found

    def _former_gateways(self, service: Key, body: Object) -> list[Condition]:
        retained = {former.name: kept for former, kept in self._retained(service).items()}
        found = [retained_condition(service.name, retained)] if retained else []
        asked = (body["metadata"].get("annotations") or {}).get(ABANDON_RELAY_ANNOTATION)
        if asked is None:
            return found
        former = Key(SERVICE, service.namespace, asked)
        fields = () if is_gateway(body) else (GATEWAY_REF, HAND_OVER_TO)
        abandoned = abandoned_condition(
            body,
            asked,
            named={gateway_named(body, field) for field in fields} - {""},
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

    def _gateway(self, state: ServiceState, gateways: Iterable[Key]) -> Condition:
        verdicts = state.evaluation.gateways.values()
        wrong = [(verdict.reason, verdict.message) for verdict in verdicts if not verdict.accepted]
        return gateway_condition(wrong, {key.name: counts(self._context, key) for key in gateways})

    def _refresh_outdated(self, key: Key, service: Key, revision: str | None) -> None:
        """Annotate outdated pods: their annotation failed, or they are new."""
        if revision is None:
            return
        reports = self._context.reports(service)
        outdated = {report.pod for report in reports if report.revision != revision}
        pods = [
            key_of(pod)
            for pod in self._context.pods(service)
            if pod["metadata"]["name"] in outdated
            and (pod["metadata"].get("annotations") or {}).get(REVISION_ANNOTATION) != revision
        ]
        self._context.refresher.refresh(pods, revision)
        if pods:
            self._context.requeue(key, REFRESH_AGAIN)

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
        ready = ready_condition(counts(self._context, service, self._revision(service, state)))
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
        """The desired revision: the rendered one, or the stored one if nothing can be rendered."""
        if state.evaluation.verdict.accepted and state.unwritten is None:
            return state.rollout.revision
        name = configuration_secret(service.name, 0)
        secret = self._context.store.get(Key("Secret", service.namespace, name))
        if secret is None or labels_of(secret).get(SERVICE_LABEL) != service.name:
            return None
        return (secret["metadata"].get("annotations") or {}).get(REVISION_ANNOTATION)

    def _fields(self, service: Key, body: Object, state: ServiceState) -> Mapping[str, Any]:
        revision = self._revision(service, state)
        counted = counts(self._context, service, revision)
        sidecar = is_sidecar_service(body)
        return {
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
            **({} if revision is None else {"revision": revision}),
        }

    def _durability(self, service: Key, body: Object) -> Durability:
        """The lowest durability that a deliverer reports; without reports, the expected one."""
        reported = [
            report.durability
            for report in self._context.reports(service)
            if report.durability is not None
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
