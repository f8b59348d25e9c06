"""The status of an IndicationService: its configuration and the counts of its deliverers."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pillion_operator.cluster.scaling import replicas_of, scaler
from pillion_operator.cluster.types import STATEFUL_SET, Object, annotations_of, labels_of
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
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    destination_ref,
    gateway_named,
    is_gateway,
    streams_named,
)
from pillion_operator.evaluation.relaying import (
    GATEWAY_NOT_USABLE,
    accounts_refused,
    storage_class_of,
)
from pillion_operator.injection.decision import is_sidecar_service
from pillion_operator.names import (
    ABANDON_RELAY_ANNOTATION,
    REVISION_ANNOTATION,
    SERVICE_LABEL,
    configuration_secret,
    gateway,
)
from pillion_operator.polling.reports import last_report
from pillion_operator.status.adoption import sessions_condition
from pillion_operator.status.conditions import Condition, find_condition
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
    publishers_lacking,
    retained_condition,
    serving,
)
from pillion_operator.store import Key, key_of
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.schema.service import Durability

PENDING_SESSIONS = "pendingSessions"
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
        found = _Observed(self._context, service, body, state)
        if verdict.accepted:
            conditions = self._conditions(key, found)
        else:
            left = (*found.former_gateways(), *found.sessions())
            conditions = [*refused_conditions(verdict), *left]
        if conditions is not None:
            await self._context.statuses.write(body, conditions, found.fields(), again_as=key)

    def _conditions(self, key: Key, found: "_Observed") -> list[Condition] | None:
        """The conditions of an accepted service; None while a later reconcile is to write them."""
        service, state = found.service, found.state
        if level_known(self._context, service) != state.level:
            # The oldest deliverer came or left.
            self._context.requeue(service, 0.0)
        named = state.evaluation.gateways
        references = self._context.references
        gateways = sorted(references.gateways_of(service) | references.stores_of(service))
        gateways = gateways if named else []
        if not self._context.has_synced([service, *gateways, *found.retained]):
            return None
        if state.unwritten is None and not state.written:
            # Until the service's own reconcile has rolled out this generation, what deliverers run
            # says nothing of it.
            return None
        gateway = found.gateway(gateways) if named else None
        ready = found.ready(gateway)
        grace = state.rolled_out_at + GRACE - self._context.clock.monotonic()
        if ready.status == "False" and ready.reason == "RollingOut" and grace > 0:
            self._context.requeue(key, grace)
            return None
        if ready.reason == "RollingOut":
            self._refresh_outdated(key, found)
        return [
            accepted_condition(state.evaluation.verdict),
            ready,
            *(found.injection(self._overlaps.of(service), gateway) if found.has_sidecars else ()),
            *([] if gateway is None else [gateway]),
            *found.older(),
            *found.overruled(),
            *found.former_gateways(),
            *found.sessions(),
        ]

    def _refresh_outdated(self, key: Key, found: "_Observed") -> None:
        """Annotate outdated pods: their annotation failed, or they are new."""
        revision = found.state.rollout.revision
        if revision is None:
            return
        outdated = {report.pod for report in found.reports if report.revision != revision}
        pods = [
            key_of(pod)
            for pod in found.pods
            if pod["metadata"]["name"] in outdated
            and annotations_of(pod).get(REVISION_ANNOTATION) != revision
        ]
        self._context.refresher.refresh(pods, revision)
        if pods:
            self._context.requeue(key, REFRESH_AGAIN)


class _Observed:
    """A service as one reconcile of its status sees it."""

    def __init__(self, context: Context, service: Key, body: Object, state: ServiceState) -> None:
        self._context = context
        self.service = service
        self.body = body
        self.state = state
        self.pods = context.pods(service)
        self.reports = context.reports(service)
        self.has_sidecars = is_sidecar_service(body)
        self._is_gateway = is_gateway(body)
        self._missed = context.missed.missed(service)
        stateful_set = Key(STATEFUL_SET.kind, service.namespace, gateway(service.name))
        self._stateful_set = context.store.get(stateful_set) if self._is_gateway else None
        self._replicas = replicas_of(body, self._stateful_set)
        answers = context.answers(service) if self._is_gateway else ()
        self._serving = serving(self.pods, answers)
        self._revision = self._desired_revision()
        self._counts = counts(context, service, self._revision)
        self._durability = self._lowest_durability()
        self._stores = context.references.stores_of(service)
        self._only_stores = self._stores - context.references.gateways_of(service)
        self.retained = self._retained()

    def _desired_revision(self) -> str | None:
        """The rendered revision, or the stored one if nothing can be rendered. If its Secret is
        lost, deliverers still use the one in the status."""
        if self.state.evaluation.verdict.accepted and self.state.unwritten is None:
            return self.state.rollout.revision
        name = configuration_secret(self.service.name, 0)
        secret = self._context.store.get(Key(SECRET, self.service.namespace, name))
        if labels_of(secret).get(SERVICE_LABEL) != self.service.name:
            return (self.body.get("status") or {}).get("revision")
        return annotations_of(secret).get(REVISION_ANNOTATION)

    def _lowest_durability(self) -> Durability:
        """The lowest durability that a deliverer reports; without reports, the expected one."""
        reported = [one.durability for one in self.reports if one.durability is not None]
        if reported:
            return min(reported, key=_BY_SAFETY.index)
        # Every deliverer that the operator makes has a folder for a journal.
        return Durability((self.body.get("spec") or {}).get("durability", Durability.DISK.value))

    def _retained(self) -> dict[Key, Collection[str]]:
        """By gateway, the subscriptions of the service that it keeps although they are not relayed
        there any more."""
        found = {}
        for former in sorted(self._context.references.gateways(self.service.namespace)):
            state = self._context.states.get(former)
            if state is not None and self.service.name in state.evaluation.retained:
                found[former] = state.evaluation.retained[self.service.name]
        return found

    def older(self) -> list[Condition]:
        pods = {pod["metadata"]["name"] for pod in self.pods}
        levels = {report.pod: report.schema_level for report in self.reports}
        older = [pod for pod in pods if levels.get(pod, LEVEL) < LEVEL]
        unheard = [pod for pod in pods if pod not in levels] if self.state.left_out else []
        if not older and not unheard:
            return []
        return [older_condition(older, unheard, len(pods), self.state.left_out)]

    def overruled(self) -> Iterator[Condition]:
        if self.state.rival:
            yield another_installation(self._context.settings.installation, self.state.rival)
        if manager := scaler(self._stateful_set):
            yield scaled_elsewhere(gateway(self.service.name), manager, self._replicas)

    def former_gateways(self) -> list[Condition]:
        retained = {former.name: kept for former, kept in self.retained.items()}
        found = [retained_condition(self.service.name, retained)] if retained else []
        asked = annotations_of(self.body).get(ABANDON_RELAY_ANNOTATION)
        if asked is None:
            return found
        former = Key(SERVICE, self.service.namespace, asked)
        fields = () if self._is_gateway else (GATEWAY_REF, HAND_OVER_TO)
        abandoned = abandoned_condition(
            self.body,
            asked,
            named={gateway_named(self.body, field) for field in fields} - {""},
            retained=retained,
            pending=self._pending(former, retained.get(asked, ())),
        )
        return [*found, abandoned]

    def _pending_sessions(self) -> Mapping[str, int]:
        known = self._context.sessions.get(self.service)
        if known is None:
            live = (self.body.get("status") or {}).get(PENDING_SESSIONS)
            return {} if live is None else {PENDING_SESSIONS: live}
        if not self._stores and not known.sessions:
            return {}
        return {PENDING_SESSIONS: known.sessions}

    def sessions(self) -> list[Condition]:
        """SessionsPending, of a service whose pods have stores or had them."""
        known = self._context.sessions.get(self.service)
        if known is None:
            # This leader does not know yet. What an earlier one has found stays.
            live = find_condition(
                (self.body.get("status") or {}).get("conditions"), "SessionsPending"
            )
            names = ("type", "status", "reason", "message")
            return [] if live is None else [Condition(*(live[name] for name in names))]
        return [sessions_condition(known)] if self._stores or known.sessions else []

    def _pending(self, gateway: Key, subscriptions: Iterable[str]) -> int | None:
        """How much a gateway last reported for the destinations of subscriptions; None if it has
        not answered."""
        store, namespace = self._context.store, gateway.namespace
        bodies = (store.get(Key(SUBSCRIPTION, namespace, name)) for name in subscriptions)
        places = {destination_ref(body) for body in bodies if body is not None}
        reports = [last_report(answer) for answer in self._context.answers(gateway)]
        known = [report.pending for report in reports if report is not None]
        return sum(one.get(place, 0) for one in known for place in places) if known else None

    def gateway(self, gateways: Iterable[Key]) -> Condition:
        verdicts = self.state.evaluation.gateways.values()
        wrong = [(verdict.reason, verdict.message) for verdict in verdicts if not verdict.accepted]
        wrong += self._refusing() if not wrong else ()
        return gateway_condition(
            wrong,
            {key.name: counts(self._context, key) for key in gateways},
            stores={key.name for key in self._only_stores},
        )

    def _refusing(self) -> Iterator[tuple[str, str]]:
        """The stores that would refuse the journals of some pods."""
        specs = (pod.get("spec") or {} for pod in self.pods)
        accounts = {spec.get("serviceAccountName", "default") for spec in specs}
        if adopter := gateway_named(self.body, HAND_OVER_TO):
            accounts.add(gateway(adopter))
        for key in sorted(self._stores):
            body = self._context.store.get(key)
            refused = accounts_refused(body, accounts) if body is not None else []
            if refused:
                yield GATEWAY_NOT_USABLE, publishers_lacking(key.name, refused)

    def ready(self, gateway: Condition | None) -> Condition:
        """``gateway`` is GatewayReady, of a service that names gateways."""
        unwritten = self.state.unwritten
        if unwritten is not None:
            return Condition("Ready", "False", unwritten.reason, unwritten.message)
        if self._is_gateway:
            stopped = gateway_not_running(
                self.service.name,
                self.pods,
                serving=self._serving,
                replicas=self._replicas,
                storage_class=storage_class_of(self.body),
            )
            if stopped is not None:
                return stopped
        ready = ready_condition(self._counts)
        if ready.status != "False" and gateway is not None and gateway.status == "False":
            return Condition("Ready", "False", gateway.reason, f"GatewayReady: {gateway.message}")
        return ready

    def injection(self, overlapping: Sequence[str], gateway: Condition | None) -> list[Condition]:
        """``gateway``: as for ``ready``."""
        hand_over_to = gateway_named(self.body, HAND_OVER_TO)
        serve = gateway is not None and gateway.status == "True"
        return [
            injection_condition(len(self.pods), self._missed),
            overlap_condition(overlapping),
            durability_condition(
                self._durability,
                hand_over_to=hand_over_to,
                stores=sorted(key.name for key in self._stores),
                streams=streams_named(self.body),
                serve=serve,
            ),
        ]

    def fields(self) -> Mapping[str, Any]:
        counted, sidecar = self._counts, self.has_sidecars
        ready, of = counted.ready, counted.deliverers
        if self._is_gateway:
            ready, of = len(self._serving), self._replicas
        return {
            "durability": self._durability.value,
            "destinations": self.state.evaluation.counts[DESTINATION],
            "subscriptions": self.state.evaluation.counts[SUBSCRIPTION],
            **count_fields(
                counted,
                ready=f"{ready}/{of}",
                injected=counted.deliverers if sidecar else None,
                missing=len(self._missed) if sidecar else None,
            ),
            **({} if self._revision is None else {"revision": self._revision}),
            **self._pending_sessions(),
        }


def overlap_condition(others: Sequence[str]) -> Condition:
    if not others:
        message = "No other service's podSelector selects the same pods."
        return Condition("SelectorsOverlap", "False", "Exclusive", message)
    return Condition(
        "SelectorsOverlap",
        "True",
        "PodsSelectedTwice",
        f"The podSelector of {', '.join(others)} selects the same pods. The oldest service "
        "serves them. Make the selectors exclusive.",
    )
