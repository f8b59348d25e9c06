"""The leader's work: all that writes to the cluster."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Protocol

from pillion_cim.schema import load_schema
from pillion_operator.certificates.gateways import GatewayAuthority
from pillion_operator.certificates.secret_store import token_key
from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api, ApiError
from pillion_operator.cluster.applier import Applier, Repair
from pillion_operator.cluster.issuer import IssuerKeeper
from pillion_operator.cluster.types import has_ended
from pillion_operator.console.server import Console
from pillion_operator.controllers.adoptions import Adoptions
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.destination import DestinationReconciler
from pillion_operator.controllers.filter_and_subscription import (
    SubscriptionReconciler,
    reconcile_filter,
)
from pillion_operator.controllers.lost_deliveries import LostDeliveries
from pillion_operator.controllers.replay import ReplayReconciler
from pillion_operator.controllers.service import ConfigurationReconciler
from pillion_operator.controllers.service_status import ServiceStatusReconciler
from pillion_operator.controllers.states import SERVICE_STATUS, ServiceStates, status_of
from pillion_operator.controllers.status_writer import StatusWriter
from pillion_operator.controllers.triggers import DeliveryChanges, labelled, triggered
from pillion_operator.controllers.worker import Engine, WorkQueue
from pillion_operator.desired.configuration import operator_token
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.lastgood import recall
from pillion_operator.evaluation.namespace import Parsing
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    REPLAY,
    SERVICE,
    SUBSCRIPTION,
    References,
)
from pillion_operator.events import EventRecorder
from pillion_operator.injection.missed import MissedInjections
from pillion_operator.names import DELIVERER_LABEL
from pillion_operator.polling.adoptions import Asking
from pillion_operator.polling.client import DelivererClient
from pillion_operator.polling.poller import Client, Poller
from pillion_operator.refresh import KubeletRefresher
from pillion_operator.settings import OperatorSettings
from pillion_operator.store import Change, Key, Store, key_of, uid_of
from pillion_operator.telemetry.metrics import Metrics

logger = logging.getLogger("pillion.operator")

#: Objects that are taken in without a pause for the event loop.
AT_ONCE = 500
#: Seconds between two attempts to get the key of the deliverers' tokens.
KEY_RETRY = 2.0
#: Seconds after which the process ends without the key.
KEY_PATIENCE = 60.0


class LeaderClient(Client, Asking, Protocol): ...


class Leader:
    """Made and run once this process leads; cancelled when it no longer does."""

    def __init__(
        self,
        settings: OperatorSettings,
        *,
        api: Api,
        store: Store,
        metrics: Metrics,
        clock: Clock,
        console: Console | None = None,
    ) -> None:
        self._settings = settings
        self._console = console
        self._api = api
        self._store = store
        self._metrics = metrics
        self._clock = clock
        loop = asyncio.get_running_loop()
        self._queue: WorkQueue[Key] = WorkQueue(call_later=loop.call_later, time=loop.time)
        self._recorder = EventRecorder(
            api, instance=settings.identity, clock=clock, dropped=metrics.events_dropped.inc
        )
        self._lost = LostDeliveries(
            store=store, recorder=self._recorder, metrics=metrics, clock=clock
        )
        self._missed = MissedInjections(
            api=api,
            services=store,
            settings=settings,
            clock=clock,
            recorder=self._recorder,
            changed=lambda service: self._queue.add(status_of(service)),
            gauge=metrics.missed_injections,
            evictions=metrics.evictions,
        )

    async def run(self) -> None:
        """Reconcile forever, continuing from what another leader has left."""
        key = await self._token_key()
        async with aclosing(DelivererClient(clock=self._clock)) as client:
            await self.lead(client, token_key=key)

    async def lead(self, client: LeaderClient, *, token_key: bytes) -> None:
        """``client`` asks deliverers; their tokens are derived from ``token_key``."""
        context = self._context(client, token_key)
        self._metrics.unreachable_deliverers.set_function(lambda: context.deliverers.unreachable)
        self._metrics.queue_depth.set_function(lambda: context.queue.depth)
        engine = self._engine(context)
        adoptions = Adoptions(
            context,
            client=client,
            metrics=self._metrics,
            interval=self._settings.gather_interval,
        )
        # Before rendering: what is unknown would be left out of new services.
        await context.authority.look()
        await context.issuer.look()
        await recall(self._store)
        self._store.subscribe(lambda change: self._follow(change, context))
        await self._activate(context)
        if self._console is not None:
            self._console.show(context.deliverers)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(engine.run())
                tasks.create_task(context.deliverers.run())
                tasks.create_task(context.refresher.run())
                tasks.create_task(self._recorder.run())
                tasks.create_task(context.authority.run())
                tasks.create_task(context.issuer.run())
                tasks.create_task(adoptions.run())
                if self._settings.webhook is not None:
                    tasks.create_task(self._missed.run())
        finally:
            if self._console is not None:
                self._console.show(None)
            self._queue.close()

    async def _token_key(self) -> bytes:
        """Retries; raises ApiError if the API server refuses for KEY_PATIENCE."""
        deadline = self._clock.monotonic() + KEY_PATIENCE
        while True:
            try:
                return await token_key(
                    self._api, namespace=self._settings.namespace, name=self._settings.token_secret
                )
            except FAILURES as error:
                refused = isinstance(error, ApiError) and error.reason != "NotLeading"
                if refused and self._clock.monotonic() >= deadline:
                    # A leader that cannot work ends, so that another one can lead.
                    raise
                logger.warning(
                    "cannot read the key of deliverers' tokens yet, retrying: %s",
                    error,
                    extra={"event": "token-key-failed"},
                )
                await self._clock.sleep(KEY_RETRY)

    def _context(self, client: Client, key: bytes) -> Context:
        statuses = StatusWriter(
            api=self._api,
            store=self._store,
            recorder=self._recorder,
            clock=self._clock,
            requeue=lambda key, seconds: self._queue.add(key, delay=seconds),
        )
        self._store.subscribe(statuses.follow)
        context = Context(
            settings=self._settings,
            api=self._api,
            clock=self._clock,
            store=self._store,
            references=References(),
            parsing=Parsing(),
            judge=Judge(addresses=self._settings.deliverer.addresses, schema=load_schema()),
            states=ServiceStates(),
            queue=self._queue,
            statuses=statuses,
            recorder=self._recorder,
            applier=Applier(
                self._api,
                installation=self._settings.installation,
                clock=self._clock,
                repaired=self._repaired,
            ),
            deliverers=self._poller(
                client, key, lambda namespace, name: changes.enqueue(Key(SERVICE, namespace, name))
            ),
            refresher=KubeletRefresher(
                self._api,
                clock=self._clock,
                enabled=self._settings.poke,
                done=lambda result: self._metrics.pokes.labels(result).inc(),
            ),
            missed=self._missed,
            authority=GatewayAuthority(
                api=self._api,
                settings=self._settings,
                clock=self._clock,
                changed=self._render_all,
                expiry=self._metrics.gateway_ca_expiry,
            ),
            issuer=IssuerKeeper(
                api=self._api,
                clock=self._clock,
                draw=random.random,
                changed=self._render_all,
                reads=self._metrics.token_keys_read,
            ),
            token_key=key,
            sessions={},
        )
        changes = DeliveryChanges(context)
        return context

    def _poller(self, client: Client, key: bytes, on_change: Callable[[str, str], None]) -> Poller:
        return Poller(
            client,
            clock=self._clock,
            token=lambda namespace, service: operator_token(key, namespace, service),
            on_change=on_change,
            known=lambda kind, namespace, name: (
                self._store.get(Key(kind, namespace, name)) is not None
            ),
            polled=self._polled,
            draw=random.random,
            interval=self._settings.gather_interval,
        )

    def _polled(self, reachable: bool, seconds: float) -> None:
        self._metrics.polls.labels("answered" if reachable else "unreachable").inc()
        self._metrics.poll_seconds.observe(seconds)

    def _engine(self, context: Context) -> Engine:
        subscriptions = SubscriptionReconciler(context)
        services = ConfigurationReconciler(context, remaining=subscriptions.remaining)
        self._store.subscribe(services.follow)
        return Engine(
            queue=self._queue,
            reconciles={
                SERVICE: services.reconcile,
                SERVICE_STATUS: ServiceStatusReconciler(context).reconcile,
                DESTINATION: DestinationReconciler(context).reconcile,
                FILTER: partial(reconcile_filter, context),
                SUBSCRIPTION: subscriptions.reconcile,
                REPLAY: ReplayReconciler(context).reconcile,
            },
            metrics=self._metrics,
            clock=self._clock,
            failed=context.statuses.failed,
            succeeded=context.statuses.succeeded,
        )

    async def _activate(self, context: Context) -> None:
        for kind in (SUBSCRIPTION, REPLAY, DESTINATION, FILTER, SERVICE):
            for number, key in enumerate(list(self._store.keys(kind))):
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                context.references.follow(Change(key, None, self._store.get(key)))
                self._queue.add(key)
        # Also pods of services that do not exist: these may be created later.
        pods = (self._store.get(key) for key in list(self._store.keys("Pod")))
        changes = (Change(key_of(pod), None, pod) for pod in pods if pod is not None)
        served = (labelled(change, DELIVERER_LABEL) for change in changes)
        for service in sorted(set[Key]().union(*served)):
            self._pods_changed(service, context)

    def _follow(self, change: Change, context: Context) -> None:
        context.references.follow(change)
        context.parsing.follow(change)
        if change.key.kind == "Pod":
            for service in labelled(change, DELIVERER_LABEL):
                self._pods_changed(service, context, change)
        if change.after is not None and context.applier.wrote(change.after):
            # The watch shows the operator's own write.
            return
        services = self._store.all(SERVICE, change.key.namespace).values()
        for key, delay in triggered(change, context.references, services=services):
            self._queue.add(key, delay=delay)

    def _render_all(self) -> None:
        """Enqueue every service, after a change of the gateways' authorities or the token keys."""
        for key in list(self._store.keys(SERVICE)):
            self._queue.add(key)

    def _pods_changed(self, service: Key, context: Context, change: Change | None = None) -> None:
        pods = context.pods(service, terminating=True)
        departures = context.deliverers.pods_changed(service.namespace, service.name, pods)
        # The last state of a pod that is gone, or has ended and still exists.
        last = [] if change is None else [change.before, change.after]
        known = {uid_of(pod): pod for pod in last if pod is not None}
        for departure in departures:
            pod = known.get(departure.uid)
            there = None if pod is None else self._store.get(key_of(pod))
            # One that exists and has not ended has merely lost its label.
            if there is None or has_ended(there) or uid_of(there) != departure.uid:
                self._lost.report(service, departure, pod=pod)

    def _repaired(self, repair: Repair) -> None:
        kind, metadata = repair.body["kind"], repair.body["metadata"]
        self._metrics.drift.labels(kind).inc()
        logger.warning(
            "repaired %s %s/%s, which somebody else had changed: %s",
            kind,
            metadata["namespace"],
            metadata["name"],
            ", ".join(repair.fields) or "it had been deleted",
            extra={"event": "drift-repaired", "kind": kind, "times": repair.times},
        )
        if repair.times == 1:
            self._recorder.publish(
                repair.body,
                type="Warning",
                reason="DriftRepaired",
                note="Somebody else changed or deleted it, and the operator has restored it. "
                "Change the IndicationService instead.",
                action="Apply",
            )
