"""The state and services that the controllers share."""

from collections.abc import Iterable
from dataclasses import dataclass

from pillion_operator.certificates.gateways import GatewayAuthority
from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api
from pillion_operator.cluster.applier import Applier
from pillion_operator.cluster.issuer import IssuerKeeper
from pillion_operator.cluster.types import Object
from pillion_operator.controllers.states import ServiceStates
from pillion_operator.controllers.status_writer import StatusWriter
from pillion_operator.controllers.worker import WorkQueue
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.events import EventRecorder
from pillion_operator.injection.missed import MissedInjections
from pillion_operator.polling.poller import Poller
from pillion_operator.polling.reports import Answer, DelivererReport
from pillion_operator.refresh import KubeletRefresher
from pillion_operator.settings import OperatorSettings
from pillion_operator.status.adoption import PendingSessions
from pillion_operator.status.deliverers import is_deliverer
from pillion_operator.store import Key, Store

LONGEST_TIMER = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    settings: OperatorSettings
    api: Api
    clock: Clock
    store: Store
    references: References
    parsing: Parsing
    judge: Judge
    states: ServiceStates
    queue: WorkQueue[Key]
    statuses: StatusWriter
    recorder: EventRecorder
    applier: Applier
    deliverers: Poller
    refresher: KubeletRefresher
    missed: MissedInjections
    authority: GatewayAuthority
    issuer: IssuerKeeper
    #: The bearer tokens of deliverers are derived from it.
    token_key: bytes
    #: By service; without those of which no round has told yet.
    sessions: dict[Key, PendingSessions]

    def requeue(self, key: Key, seconds: float) -> None:
        """Reconcile ``key`` again, after LONGEST_TIMER at most."""
        self.queue.add(key, delay=min(seconds, LONGEST_TIMER))

    def namespace(self, name: str) -> Namespace:
        return Namespace(name, store=self.store, parsing=self.parsing)

    def answers(self, service: Key) -> tuple[Answer, ...]:
        return self.deliverers.reports(service.namespace, service.name)

    def reports(self, service: Key) -> list[DelivererReport]:
        return [one for one in self.answers(service) if isinstance(one, DelivererReport)]

    def evaluations(self, services: Iterable[Key]) -> dict[str, ServiceEvaluation]:
        """By service; without those that are not evaluated yet."""
        states = {service.name: self.states.get(service) for service in services}
        return {name: state.evaluation for name, state in states.items() if state is not None}

    def has_synced(self, services: Iterable[Key]) -> bool:
        """Whether the reports are newer than the statuses of an earlier leader."""
        return all(self.deliverers.has_synced(one.namespace, one.name) for one in services)

    def pods(self, service: Key, *, terminating: bool = False) -> list[Object]:
        """The pods with its deliverers, without finished ones."""
        pods = self.store.all("Pod", service.namespace).values()
        return [pod for pod in pods if is_deliverer(pod, service.name, terminating=terminating)]
