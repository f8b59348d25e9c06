"""The status of an IndicationService: its configuration, and its deliverers counted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pillion_operator.clock import Clock
from pillion_operator.cluster.scaling import replicas_of, scaler
from pillion_operator.cluster.types import STATEFUL_SET, Object
from pillion_operator.controllers.acceptance import accepted_condition, not_ready
from pillion_operator.controllers.ports import Missed, Poker
from pillion_operator.controllers.readiness import GRACE, Readiness
from pillion_operator.controllers.selector_overlap import Overlaps
from pillion_operator.controllers.states import ServiceState, ServiceStates, spec_of
from pillion_operator.controllers.status_writer import StatusWriter
from pillion_operator.evaluation.references import (
    DESTINATION,
    GATEWAY_REF,
    HAND_OVER_TO,
    SERVICE,
    SUBSCRIPTION,
    gateway_named,
    is_gateway,
)
from pillion_operator.evaluation.relaying import storage_class_of
from pillion_operator.injection.decision import is_sidecar_service, labels_of
from pillion_operator.names import (
    REVISION_ANNOTATION,
    SERVICE_LABEL,
    configuration_secret,
    gateway,
)
from pillion_operator.polling.reports import DelivererReport
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
from pillion_operator.status.relaying import gateway_condition, gateway_not_running, serving
from pillion_operator.store import Key, Store, key_of
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.schema.service import Durability

#: Seconds until pods are looked at again that could not be annotated.
POKE_AGAIN = 10.0
#: From the least safe on.
_BY_SAFETY = (Durability.MEMORY, Durability.STATE_ONLY, Durability.DISK)


class ServiceStatusReconciler:
    """Writes what is so; renders nothing."""

    def __init__(
        self,
        *,
        store: Store,
        states: ServiceStates,
        readiness: Readiness,
        missed: Missed,
        overlaps: Overlaps,
        poker: Poker,
        statuses: StatusWriter,
        clock: Clock,
        come_again: Callable[[Key, float], None],
        installation: str,
    ) -> None:
        """``installation``: see ``OperatorSettings``."""
        self._store = store
        self._states = states
        self._readiness = readiness
        self._missed = missed
        self._overlaps = overlaps
        self._poker = poker
        self._statuses = statuses
        self._clock = clock
        self._come_again = come_again
        self._installation = installation

    async def reconcile(self, key: Key) -> None:
        """``key`` is of the kind ``IndicationService/status``."""
        service = Key(SERVICE, key.namespace, key.name)
        body, state = self._store.get(service), self._states.get(service)
        if body is None or state is None or state.evaluated != spec_of(body):
            # The service's own reconcile is to come, and calls.
            return
        verdict = state.evaluation.verdict
        if not verdict.accepted:
            conditions = [accepted_condition(verdict), not_ready(verdict)]
            fields = self._fields(service, body, state)
            await self._statuses.write(body, conditions, fields, again_as=key)
            return
        if self._readiness.level(service) != state.level:
            # The oldest deliverer has come, or has gone.
            self._come_again(service, 0.0)
        named = gateway_services(body)
        if not self._readiness.gathered([service, *named.values()]):
            return
        if state.unwritten is None and not state.written:
            # What deliverers run on says nothing of this generation before it is rolled out. The
            # service's own reconcile is under way or comes again, and calls.
            return
        gateway = self._gateway(state, named) if named else None
        ready = self._ready(service, body, state, gateway)
        patience = state.rolled_out_at + GRACE - self._clock.monotonic()
        if ready.status == "False" and ready.reason == "RollingOut" and patience > 0:
            self._come_again(key, patience)
            return
        if ready.reason == "RollingOut":
            self._poke_again(key, service, state.rollout.revision)
        conditions = [accepted_condition(verdict), ready, *self._injection(service, body)]
        if gateway is not None:
            conditions.append(gateway)
        conditions += self._older(service, state)
        conditions += self._overruled(service, body, state)
        fields = self._fields(service, body, state)
        await self._statuses.write(body, conditions, fields, again_as=key)

    def _older(self, service: Key, state: ServiceState) -> list[Condition]:
        pods = {pod["metadata"]["name"] for pod in self._readiness.pods(service)}
        levels = {
            answer.pod: answer.schema_level
            for answer in self._readiness.answers(service)
            if isinstance(answer, DelivererReport)
        }
        older = [pod for pod in pods if levels.get(pod, LEVEL) < LEVEL]
        unheard = [pod for pod in pods if pod not in levels] if state.left_out else []
        if not older and not unheard:
            return []
        left_out = [str(one) for one in state.left_out]
        return [older_condition(older, unheard, len(pods), left_out)]

    def _overruled(self, service: Key, body: Object, state: ServiceState) -> list[Condition]:
        """What others decide about the service's objects."""
        found = []
        if state.rival:
            found.append(another_installation(self._installation, state.rival))
        there = self._stateful_set(service) if is_gateway(body) else None
        by = scaler(there)
        if by:
            replicas = replicas_of(body, there)
            found.append(scaled_elsewhere(gateway(service.name), by, replicas))
        return found

    def _gateway(self, state: ServiceState, named: Mapping[str, Key]) -> Condition:
        counts = {key.name: self._readiness.counts(key, ()) for key in named.values()}
        verdicts = state.evaluation.gateways.values()
        wrong = [(verdict.reason, verdict.message) for verdict in verdicts if not verdict.accepted]
        return gateway_condition(wrong, counts)

    def _poke_again(self, key: Key, service: Key, revision: str | None) -> None:
        """Annotate the pods that are behind and were not: a request failed, or they are new."""
        if revision is None:
            return
        behind = {
            answer.pod
            for answer in self._readiness.answers(service)
            if isinstance(answer, DelivererReport) and answer.revision != revision
        }
        unpoked = [
            key_of(pod)
            for pod in self._readiness.pods(service)
            if pod["metadata"]["name"] in behind
            and (pod["metadata"].get("annotations") or {}).get(REVISION_ANNOTATION) != revision
        ]
        self._poker.poke(unpoked, revision)
        if unpoked:
            self._come_again(key, POKE_AGAIN)

    def _ready(
        self, service: Key, body: Object, state: ServiceState, gateway: Condition | None
    ) -> Condition:
        """``gateway`` is GatewayReady of a service that names gateways."""
        if state.unwritten is not None:
            return Condition("Ready", "False", state.unwritten.reason, state.unwritten.message)
        if is_gateway(body):
            stopped = gateway_not_running(
                service.name,
                self._readiness.pods(service),
                serving=self._serving(service),
                replicas=replicas_of(body, self._stateful_set(service)),
                storage_class=storage_class_of(body),
            )
            if stopped is not None:
                return stopped
        revision = self._revision(service, state)
        ready = ready_condition(self._readiness.counts(service, {revision} if revision else ()))
        if ready.status != "False" and gateway is not None and gateway.status == "False":
            return Condition("Ready", "False", gateway.reason, f"GatewayReady: {gateway.message}")
        return ready

    def _serving(self, service: Key) -> set[str]:
        return serving(self._readiness.pods(service), self._readiness.answers(service))

    def _stateful_set(self, service: Key) -> Object | None:
        return self._store.get(Key(STATEFUL_SET.kind, service.namespace, gateway(service.name)))

    def _revision(self, service: Key, state: ServiceState) -> str | None:
        """What deliverers are to run on. Where nothing can be rendered now that is what stands
        there, whoever has rendered it."""
        if state.evaluation.verdict.accepted and state.unwritten is None:
            return state.rollout.revision
        name = configuration_secret(service.name, 0)
        secret = self._store.get(Key("Secret", service.namespace, name))
        if secret is None or (labels_of(secret).get(SERVICE_LABEL) != service.name):
            return None
        annotations = secret["metadata"].get("annotations") or {}
        return annotations.get(REVISION_ANNOTATION)

    def _fields(self, service: Key, body: Object, state: ServiceState) -> Mapping[str, Any]:
        revision = self._revision(service, state)
        counts = self._readiness.counts(service, {revision} if revision else ())
        sidecar = is_sidecar_service(body)
        fields: dict[str, Any] = {
            "durability": self._durability(service, body).value,
            "destinations": state.evaluation.count(DESTINATION),
            "subscriptions": state.evaluation.count(SUBSCRIPTION),
            **count_fields(
                counts,
                ready=(
                    f"{len(self._serving(service))}/"
                    f"{replicas_of(body, self._stateful_set(service))}"
                    if is_gateway(body)
                    else f"{counts.ready}/{counts.deliverers}"
                ),
                injected=counts.deliverers if sidecar else None,
                missing=len(self._missed.missed(service)) if sidecar else None,
            ),
        }
        if revision is not None:
            fields["revision"] = revision
        return fields

    def _durability(self, service: Key, body: Object) -> Durability:
        """The least safe that a deliverer reports; where none does, what they will have."""
        reported = [
            answer.durability
            for answer in self._readiness.answers(service)
            if isinstance(answer, DelivererReport) and answer.durability is not None
        ]
        if reported:
            return min(reported, key=_BY_SAFETY.index)
        # Every deliverer that the operator makes has a folder for a journal.
        return Durability((body.get("spec") or {}).get("durability", Durability.DISK.value))

    def _injection(self, service: Key, body: Object) -> list[Condition]:
        if not is_sidecar_service(body):
            return []
        injected = len(self._readiness.pods(service))
        return [
            injection_condition(injected, self._missed.missed(service)),
            overlap_condition(self._overlaps.of(service)),
            durability_condition(
                self._durability(service, body), hand_over_to=gateway_named(body, HAND_OVER_TO)
            ),
        ]


def gateway_services(service: Object) -> Mapping[str, Key]:
    """The services that this one names as its gateways, by the field that names them."""
    if is_gateway(service):
        return {}
    namespace = service["metadata"]["namespace"]
    named = {field: gateway_named(service, field) for field in (GATEWAY_REF, HAND_OVER_TO)}
    return {field: Key(SERVICE, namespace, name) for field, name in named.items() if name}


def overlap_condition(others: Sequence[str]) -> Condition:
    """SelectorsOverlap; ``others`` are the services that select the same pods."""
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
