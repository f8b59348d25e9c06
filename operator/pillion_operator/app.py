"""Builds, runs and stops the operator. Every replica watches, answers the webhook and its probes;
only the leader writes."""

import asyncio
import logging
import os
import random
from collections import Counter
from functools import partial
from importlib.metadata import version

from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from pillion_cim.schema import load_schema
from pillion_operator.certificates.authority import KeyPair
from pillion_operator.certificates.webhook import CertificateKeeper, loaded, serve_folder
from pillion_operator.clock import Clock, SystemClock
from pillion_operator.cluster.api import FAILURES, Api, succeeds
from pillion_operator.cluster.connecting import connect
from pillion_operator.cluster.types import OURS, Object
from pillion_operator.console.server import Console
from pillion_operator.controllers.admission import Admission
from pillion_operator.definitions import Definitions
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Parsing
from pillion_operator.injection.webhook import InjectingWebhook
from pillion_operator.leadership import Leadership
from pillion_operator.leading import Leader
from pillion_operator.polling.client import DelivererClient
from pillion_operator.resync import Resync
from pillion_operator.settings import OperatorSettings, WebhookSettings
from pillion_operator.store import Store, key_of, version_of
from pillion_operator.telemetry.metrics import Metrics
from pillion_operator.telemetry.server import WatchHealth, telemetry_app
from pillion_operator.watching import WATCHED, watch
from pillion_sidecar.auth.tls import ServingTLS
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.connections import Connection, HTTPLog

logger = logging.getLogger("pillion.operator")

#: Seconds between two attempts to reach the cluster at the start.
RETRY = 2.0
#: Seconds that requests under way are given at the end.
ANSWER_SECONDS = 5.0


class StartFailed(Exception): ...


class Operator:
    """An operator process; created on the event loop that it runs on."""

    def __init__(self, settings: OperatorSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._store = Store()
        self._definitions: Definitions | None = None
        self._metrics = Metrics(version=version("pillion"))
        self._health = WatchHealth(
            (kind.plural for kind, _ in WATCHED), monotonic=self._clock.monotonic
        )
        for kind, _ in WATCHED:
            stalled = partial(self._health.stalled, kind.plural)
            self._metrics.watch_stalled.labels(kind.plural).set_function(stalled)
        self._tls = ServingTLS()
        self._waits_for: str | None = "the API server has not been asked yet"
        #: How often a watch of each kind (plural) has begun.
        self._watches: Counter[str] = Counter()
        self._all_watched = asyncio.Event()
        self._leading = False
        self._console: Console | None = None
        self._runners: list[web.AppRunner] = []
        self._servers: list[asyncio.Server] = []
        #: Set with ``started``; those of the webhook and the console only if there is one.
        self.telemetry_url = ""
        self.webhook_url = ""
        self.console_url = ""
        #: Set once the cluster is known and the probes and the webhook are served.
        self.started = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set.

        Raises:
            StartFailed: an address is in use, or the API server is not configured.
            ExceptionGroup: a background task failed or the leadership was lost.
        """
        try:
            configuration = await connect(self._settings.kubeconfig, context=self._settings.context)
        except (OSError, ValueError) as error:
            raise StartFailed(f"no way to an API server: {error}") from error
        async with ApiClient(configuration) as client:
            api = Api(client, wrote=lambda verb: self._metrics.api_writes.labels(verb).inc())
            self._definitions = Definitions(api=api, store=self._store, clock=self._clock)
            try:
                await self._serve_telemetry()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._watch(api, configuration, stop))
                    working = tasks.create_task(self._work(api))
                    await stop.wait()
                    working.cancel()
                    # At once: kopf waits only five seconds for other tasks, and the API server
                    # keeps its connection to the webhook open.
                    await self._close()
            finally:
                await self._close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for runner in self._runners:
            await runner.cleanup()

    async def _watch(self, api: Api, configuration: Configuration, stop: asyncio.Event) -> None:
        # kopf never watches a kind that is not served at the start.
        while not stop.is_set() and (missing := await self._missing(api)):
            if missing != self._waits_for:
                logger.warning(missing, extra={"event": "operator-waiting"})
            self._waits_for = missing
            await self._clock.sleep(RETRY)
        self._waits_for = "not all watches have begun"
        await watch(
            self._observe,
            self._watch_began,
            namespaces=self._settings.namespaces,
            configuration=lambda: configuration,
            stop=stop,
        )
        # kopf has ended by a signal or at a request.
        stop.set()

    async def _missing(self, api: Api) -> str | None:
        try:
            served = await api.served(OURS[0].api_version)
        except FAILURES as error:
            return f"the API server does not answer: {str(error) or type(error).__name__}"
        absent = sorted(kind.plural for kind in OURS if kind.plural not in served)
        if not absent:
            return None
        return f"the API server does not serve {', '.join(absent)}: install the CRDs"

    async def _work(self, api: Api) -> None:
        assert self._definitions is not None
        resync = Resync(
            api=api,
            store=self._store,
            namespaces=self._settings.namespaces,
            clock=self._clock,
            missed=lambda kind, count: self._metrics.watch_missed.labels(kind).inc(count),
            definitions=self._definitions,
        )
        # A listing after the start of every watch misses nothing, not even deletions meanwhile.
        await self._all_watched.wait()
        self._waits_for = "the cluster has not been listed yet"
        await self._fill(resync)
        async with asyncio.TaskGroup() as tasks:
            if self._settings.webhook is not None:
                await self._serve_webhook(api, self._settings.webhook, tasks)
            if self._settings.console is not None:
                client = DelivererClient(clock=self._clock)
                self._console = Console(api, clock=self._clock, client=client)
                self.console_url = await self._serve(
                    self._console.application(), self._settings.console, option="--console"
                )
            self.started.set()
            logger.info(
                "read the cluster; serving telemetry at %s",
                self.telemetry_url,
                extra={"event": "operator-started", "telemetry": self.telemetry_url},
            )
            # Also of a standby: it answers the webhook from its own store, and may become the
            # leader at any time.
            tasks.create_task(resync.run(self._settings.resync_interval))
            tasks.create_task(self._definitions.run())
            tasks.create_task(self._lead(api))

    async def _fill(self, resync: Resync) -> None:
        what = "cannot list the cluster yet"
        while not await succeeds(resync.fill(), what, extra={"event": "listing-failed"}):
            await self._clock.sleep(RETRY)
        self._waits_for = None

    async def _lead(self, api: Api) -> None:
        if self._settings.lease is None:
            self._set_leading(True)
            await self._leader(api).run()
            return
        leadership = Leadership(
            api,
            namespace=self._settings.namespace,
            name=self._settings.lease,
            identity=self._settings.identity,
            clock=self._clock,
            random=random.random,
            leads=self._set_leading,
        )
        await leadership.acquire()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(leadership.hold())
                leading = api.only_while(lambda: leadership.leading)
                tasks.create_task(self._leader(leading).run())
        finally:
            # All writers have ended by now. After LeadershipLost a request may still be in flight
            # until the process ends, and nothing is released.
            await leadership.release()

    def _leader(self, api: Api) -> Leader:
        return Leader(
            self._settings,
            api=api,
            store=self._store,
            metrics=self._metrics,
            clock=self._clock,
            console=self._console,
        )

    def _set_leading(self, leading: bool) -> None:
        self._leading = leading
        self._metrics.leader.set(leading)

    def _observe(self, kind: str | None, body: Object) -> None:
        assert self._definitions is not None
        if kind == "DELETED":
            self._definitions.removed(key_of(body), version=version_of(body))
        else:
            self._store.put(body)
            self._definitions.seen(key_of(body), version=version_of(body))

    def _watch_began(self, plural: str) -> None:
        self._health.began(plural)
        self._metrics.watch_restarts.labels(plural).inc()
        self._watches[plural] += 1
        each = len(self._settings.namespaces) or 1
        if all(self._watches[kind.plural] >= each for kind, _ in WATCHED):
            self._all_watched.set()

    async def _serve_telemetry(self) -> None:
        app = telemetry_app(
            self._metrics.registry,
            alive={"watches": self._health.problem},
            ready={"cluster": lambda: self._waits_for, "webhook": self._webhook_problem},
        )
        self.telemetry_url = await self._serve(app, self._settings.telemetry, option="--telemetry")

    async def _serve_webhook(
        self, api: Api, settings: WebhookSettings, tasks: asyncio.TaskGroup
    ) -> None:
        webhook = InjectingWebhook(
            services=self._store,
            defaults=self._settings.deliverer,
            operator_namespace=self._settings.namespace,
            clock=self._clock,
            seconds=self._metrics.webhook_seconds,
            answers=self._metrics.webhook_answers,
            admission=(await self._admission()).of,
        )
        if settings.certificates is not None:
            tasks.create_task(serve_folder(settings.certificates, use=self._use, clock=self._clock))
        else:
            keeper = CertificateKeeper(
                api=api,
                settings=settings,
                namespace=self._settings.namespace,
                leads=lambda: self._leading,
                use=self._use,
                clock=self._clock,
            )
            tasks.create_task(keeper.run())
        self.webhook_url = await self._serve(
            webhook.application(), settings.address, option="--webhook", tls=self._tls
        )

    async def _admission(self) -> Admission:
        parsing = Parsing()
        self._store.subscribe(parsing.follow)
        schema = await asyncio.to_thread(load_schema)
        judge = Judge(addresses=self._settings.deliverer.addresses, schema=schema)
        return Admission(store=self._store, parsing=parsing, judge=judge)

    async def _use(self, pair: KeyPair) -> None:
        certificate = await asyncio.to_thread(loaded, pair)
        self._tls.use(certificate)
        self._metrics.certificate_expiry.set(certificate.expires)

    async def _serve(
        self,
        app: web.Application,
        address: Address,
        *,
        option: str,
        tls: ServingTLS | None = None,
    ) -> str:
        log = HTTPLog(logging.getLogger("pillion.http"), {})
        runner = web.AppRunner(app, access_log=None, logger=log, shutdown_timeout=ANSWER_SECONDS)
        self._runners.append(runner)
        await runner.setup()
        assert runner.server is not None
        try:
            server = await asyncio.get_running_loop().create_server(
                partial(Connection, runner.server),
                address.host,
                address.port,
                ssl=tls.context if tls is not None else None,
            )
        except OSError as error:
            # asyncio repeats the address in strerror.
            why = os.strerror(error.errno) if error.errno else str(error)
            why += f"; choose another address by {option}"
            raise StartFailed(f"cannot listen on {address.host}:{address.port}: {why}") from error
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return f"http{'s' if tls is not None else ''}://{host}:{port}"

    def _webhook_problem(self) -> str | None:
        if self._settings.webhook is None or self._tls.has_certificate:
            return None
        return "the webhook has no certificate yet"
