"""Puts the reconciles together: who is handed what."""

from dataclasses import dataclass

from pillion_cim.schema import load_schema
from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api
from pillion_operator.cluster.applier import Applier
from pillion_operator.controllers.acceptance import Acceptance
from pillion_operator.controllers.common import Common
from pillion_operator.controllers.destination import DestinationReconciler
from pillion_operator.controllers.filter_and_subscription import (
    FilterReconciler,
    Patience,
    SubscriptionReconciler,
    Subscriptions,
)
from pillion_operator.controllers.gateway_serving import ServingCertificates
from pillion_operator.controllers.ports import (
    Authority,
    Deliverers,
    Issuer,
    Missed,
    Poker,
    Recorder,
)
from pillion_operator.controllers.readiness import Readiness
from pillion_operator.controllers.relay_retention import Lingering
from pillion_operator.controllers.selector_overlap import Overlaps
from pillion_operator.controllers.service import ConfigurationReconciler, Wanted
from pillion_operator.controllers.service_status import ServiceStatusReconciler
from pillion_operator.controllers.states import ServiceStates
from pillion_operator.controllers.status_writer import StatusWriter
from pillion_operator.controllers.triggers import SERVICE_STATUS
from pillion_operator.controllers.worker import Engine, WorkQueue
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Parsing
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    SERVICE,
    SUBSCRIPTION,
    References,
)
from pillion_operator.settings import OperatorSettings
from pillion_operator.store import Key, Store
from pillion_operator.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What the reconciles of several kinds use."""

    common: Common
    judge: Judge
    subscriptions: Subscriptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The parts of which the engine is made."""

    settings: OperatorSettings
    api: Api
    store: Store
    references: References
    parsing: Parsing
    states: ServiceStates
    queue: WorkQueue[Key]
    applier: Applier
    deliverers: Deliverers
    poker: Poker
    recorder: Recorder
    missed: Missed
    metrics: Metrics
    clock: Clock
    #: From which the bearer tokens of deliverers are derived.
    token_key: bytes
    authority: Authority
    issuer: Issuer

    def engine(self) -> Engine:
        """The workers, with the reconcile of every kind."""
        shared = self._shared()
        return Engine(
            queue=self.queue,
            reconciles={
                SERVICE: self._configurations(shared).reconcile,
                SERVICE_STATUS: ServiceStatusReconciler(
                    store=self.store,
                    states=self.states,
                    readiness=shared.common.readiness,
                    missed=self.missed,
                    overlaps=self._overlaps(),
                    poker=self.poker,
                    statuses=shared.common.statuses,
                    clock=self.clock,
                    come_again=self._come_again,
                    installation=self.settings.installation,
                ).reconcile,
                DESTINATION: DestinationReconciler(
                    shared.common, api=self.api, states=self.states, recorder=self.recorder
                ).reconcile,
                FILTER: FilterReconciler(shared.common, states=self.states).reconcile,
                SUBSCRIPTION: SubscriptionReconciler(
                    shared.common,
                    subscriptions=shared.subscriptions,
                    patience=self._patience(),
                ).reconcile,
            },
            metrics=self.metrics,
            clock=self.clock,
            failed=shared.common.statuses.failed,
            succeeded=shared.common.statuses.succeeded,
        )

    def _shared(self) -> "_Shared":
        judge = Judge(addresses=self.settings.deliverer.addresses, schema=load_schema())
        readiness = Readiness(
            store=self.store,
            references=self.references,
            parsing=self.parsing,
            states=self.states,
            deliverers=self.deliverers,
        )
        acceptance = Acceptance(
            store=self.store, parsing=self.parsing, judge=judge, states=self.states
        )
        statuses = StatusWriter(
            api=self.api,
            store=self.store,
            recorder=self.recorder,
            clock=self.clock,
            come_again=self._come_again,
        )
        self.store.subscribe(statuses.follow)
        return _Shared(
            common=Common(
                store=self.store,
                acceptance=acceptance,
                readiness=readiness,
                statuses=statuses,
                clock=self.clock,
                come_again=self._come_again,
            ),
            judge=judge,
            subscriptions=Subscriptions(
                store=self.store,
                parsing=self.parsing,
                states=self.states,
                readiness=readiness,
                clock=self.clock,
            ),
        )

    def _patience(self) -> Patience:
        patience = Patience(clock=self.clock)
        self.store.subscribe(patience.follow)
        return patience

    def _overlaps(self) -> Overlaps:
        overlaps = Overlaps(store=self.store)
        self.store.subscribe(overlaps.follow)
        return overlaps

    def _configurations(self, shared: "_Shared") -> ConfigurationReconciler:
        configurations = ConfigurationReconciler(
            store=self.store,
            references=self.references,
            parsing=self.parsing,
            judge=shared.judge,
            states=self.states,
            applier=self.applier,
            deliverers=self.deliverers,
            poker=self.poker,
            wanted=Wanted(
                token_key=self.token_key,
                defaults=self.settings.deliverer,
                authority=self.authority,
                issuer=self.issuer,
                certificates=ServingCertificates(
                    authority=self.authority, clock=self.clock, recorder=self.recorder
                ),
            ),
            clock=self.clock,
            enqueue=self.queue.add,
            come_again=self._come_again,
            ended=shared.subscriptions.is_over,
            lingering=Lingering(
                store=self.store,
                references=self.references,
                parsing=self.parsing,
                states=self.states,
                readiness=shared.common.readiness,
                clock=self.clock,
            ),
        )
        self.store.subscribe(configurations.follow)
        return configurations

    def _come_again(self, key: Key, seconds: float) -> None:
        self.queue.add(key, delay=seconds)
