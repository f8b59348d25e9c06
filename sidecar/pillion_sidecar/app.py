"""The deliverer, whole: builds its parts, runs them, drains, stops.

What another room needs is made here and handed to it; nothing is found by itself.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version

from aiohttp import web

from pillion_cim.schema import load_schema
from pillion_sidecar.clock import Clock, LoopTimers, SystemClock, Timers
from pillion_sidecar.config.durability import assumed_acknowledgement
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.resources import (
    Configuration,
    Durability,
    IndicationService,
    ListenerDestination,
)
from pillion_sidecar.config.reuse import reuse
from pillion_sidecar.config.watching import FolderWatcher
from pillion_sidecar.delivery.handler import Handler
from pillion_sidecar.delivery.service import DeliveryService, TooManyDestinations
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.intake.acceptance import Rooms
from pillion_sidecar.intake.gate import IntakeGate
from pillion_sidecar.intake.server import create_intake
from pillion_sidecar.journal.memory import MemoryJournal
from pillion_sidecar.journal.ports import Journal
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.routing import Router
from pillion_sidecar.settings import Address, Settings
from pillion_sidecar.supervision import LoopSupervisor
from pillion_sidecar.telemetry.administration import Administration, add_administration_routes
from pillion_sidecar.telemetry.bearer import TokenFile, add_operator_route
from pillion_sidecar.telemetry.metrics import Metrics
from pillion_sidecar.telemetry.server import telemetry_app

logger = logging.getLogger("pillion.deliverer")

#: Seconds that a publisher's connection is kept without a request.
KEEPALIVE_SECONDS = 75.0
#: What publishers are told at the end.
SHUTTING_DOWN = "the deliverer is shutting down"
#: Seconds that answers under way are given once delivery has stopped.
ANSWER_SECONDS = 2.0


class StartFailed(Exception):
    """The deliverer cannot start; the text says all that is wrong."""


class Deliverer:
    """One running deliverer.

    Made on the event loop that it runs on. ``clock`` and ``timers`` stand for the machine's own
    where a test moves time by hand.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        timers: Timers | None = None,
        log_records_dropped: Callable[[], int] = int,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``loading`` stands around each load, in the thread that loads."""
        self._settings = settings
        self._loading = loading
        self._schema = load_schema()
        self._clock = clock or SystemClock()
        self._loop_timers = LoopTimers(loop=asyncio.get_running_loop())
        self._timers = timers or self._loop_timers
        self._configuration: Configuration | None = None
        #: Why the folder's last revision was not taken over; None where it was.
        self._refusal: Exception | None = None
        self._gate = IntakeGate()
        #: The configuration that was loaded last, with its routes.
        self._routed: tuple[Configuration, Router] | None = None
        self._metrics = Metrics(
            clock=self._clock,
            version=version("pillion"),
            log_records_dropped=log_records_dropped,
        )
        self._resolver = Resolver(nameservers=settings.nameservers)
        self._handlers: HandlerRegistry | None = None
        defaults = IndicationService()
        self._memory = DuplicateMemory(
            clock=self._clock,
            window_seconds=defaults.duplicate_window_seconds,
            capacity=defaults.duplicate_window_entries,
        )
        self._journal: Journal = MemoryJournal(clock=self._clock)
        self.delivery = DeliveryService(
            clock=self._clock,
            timers=self._timers,
            call_soon=asyncio.get_running_loop().call_soon,
            create_handler=self._create_handler,
            observer=self._metrics,
            journal=self._journal,
            followers=(self._memory,),
            maximum_destinations=settings.maximum_destinations,
        )
        self._metrics.watch(queues=self.delivery.queues, duplicates=self._memory)
        self._rooms = Rooms(
            clock=self._clock,
            memory=self._memory,
            routes=Router(Configuration(revision=""), schema=self._schema),
            queues=self.delivery,
        )
        self._runners: list[web.AppRunner] = []
        #: Where intake, telemetry and administration listen, once ``started`` is set.
        self.intake_url = ""
        self.telemetry_url = ""
        self.administration_url = ""
        self.started = asyncio.Event()

    # ------------------------------------------------------------------ life

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set; then close the door, drain, and end.

        Raises:
            StartFailed: the first configuration is wrong, or an address is taken.
            ExceptionGroup: a background task or a callback failed, so the deliverer stopped.
        """
        with LoopSupervisor(asyncio.get_running_loop()) as supervisor:
            try:
                await self._load_first()
                await self._listen()
                async with asyncio.TaskGroup() as tasks:
                    supervising = tasks.create_task(supervisor.failure())
                    watching = tasks.create_task(self._follow_changes())
                    await stop.wait()
                    watching.cancel()
                    await self._drain()
                    supervising.cancel()
            finally:
                await self._close()

    async def _load_first(self) -> None:
        try:
            configuration = await asyncio.to_thread(self._load)
            self.apply(configuration)
        except (ConfigurationError, TooManyDestinations) as error:
            if not self._settings.wait_for_configuration:
                raise StartFailed(str(error)) from error
            self._refuse(error)

    def _load(self) -> Configuration:
        with self._loading():
            loaded = load_folder(
                self._settings.resources,
                service=self._settings.service,
                addresses=self._settings.addresses,
            )
            # What is done here, in the thread, does not hold delivery up when it is applied.
            configuration = reuse(loaded, self._configuration)
            self._routed = configuration, Router(configuration, schema=self._schema)
            return configuration

    def _router(self, configuration: Configuration) -> Router:
        routed, self._routed = self._routed, None
        if routed is not None and routed[0] is configuration:
            return routed[1]
        return Router(configuration, schema=self._schema)

    async def _listen(self) -> None:
        telemetry = telemetry_app(
            exposition=self._metrics.exposition,
            readiness={"configuration": self._configuration_problem, "intake": self._gate_problem},
        )
        intake = create_intake(
            rooms=self._rooms,
            schema=self._schema,
            timers=self._timers,
            gate=self._gate,
            observer=self._metrics,
        )
        apart = self._settings.administration
        administered = intake if apart is None else web.Application()
        administration = Administration(
            delivery=self.delivery,
            clock=self._clock,
            revision=lambda: self._configuration.revision if self._configuration else None,
            drain=self.delivery.drain,
        )
        add_administration_routes(administered, administration)
        if self._settings.operator_token_file is not None:
            token = TokenFile(self._settings.operator_token_file)
            add_operator_route(
                telemetry, administration, token=token.read, refused=self._metrics.operator_refused
            )
        self.telemetry_url = await self._serve(telemetry, self._settings.telemetry)
        if apart is not None:
            self.administration_url = await self._serve(administered, apart)
        self.intake_url = await self._serve(intake, self._settings.intake)
        self.administration_url = self.administration_url or self.intake_url
        self.started.set()
        logger.info(
            "intake at %s, telemetry at %s",
            self.intake_url,
            self.telemetry_url,
            extra={
                "event": "deliverer-started",
                "intake": self.intake_url,
                "telemetry": self.telemetry_url,
            },
        )

    async def _serve(self, app: web.Application, address: Address) -> str:
        runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=KEEPALIVE_SECONDS,
            auto_decompress=False,
            shutdown_timeout=ANSWER_SECONDS,
        )
        self._runners.append(runner)
        await runner.setup()
        try:
            await web.TCPSite(runner, address.host, address.port).start()
        except OSError as error:
            raise StartFailed(f"cannot listen on {address}: {error.strerror or error}") from error
        host, port = runner.addresses[0][:2]
        return f"http://{Address(host, port)}"

    async def _drain(self) -> None:
        self._shut_the_door()
        left = 0
        if self._configuration is not None:
            grace = self._configuration.service.shutdown_grace_period_seconds
            left = await self.delivery.drain(grace)
        logger.info(
            "delivery ends with %d indications left",
            left,
            extra={"event": "deliverer-stopping", "left": left},
        )

    def _shut_the_door(self) -> None:
        self._gate.close(SHUTTING_DOWN)
        # Bodies that are still being read are answered with what was accepted of them until now.
        self._rooms.closing = SHUTTING_DOWN

    async def _close(self) -> None:
        self._shut_the_door()
        try:
            self.delivery.close()
        finally:
            # After delivery: those who wait for a receipt are answered by its last settlements.
            for runner in self._runners:
                await runner.cleanup()
            await self._resolver.close()
            self._loop_timers.close()

    # ------------------------------------------------------------------ configuration

    def apply(self, configuration: Configuration) -> None:
        """Take over a revision of the configuration.

        Raises TooManyDestinations, and changes nothing, where it has too many.
        """
        service = configuration.service
        router = self._router(configuration)
        if self._configuration is None or self._configuration.service.name != service.name:
            self._handlers = self._registry(service.name)
        self.delivery.apply(configuration)
        self._memory.configure(
            window_seconds=service.duplicate_window_seconds,
            capacity=service.duplicate_window_entries,
        )
        self._rooms.routes = router
        self._rooms.acknowledgement = assumed_acknowledgement(service, Durability.MEMORY)
        self._configuration = configuration
        self._refusal = None
        self._metrics.configuration_loaded(configuration.revision)
        self._gate.open()
        for warning in configuration.warnings:
            logger.warning(warning, extra={"event": "configuration-warning"})
        logger.info(
            "configuration %s is in force",
            configuration.revision,
            extra={
                "event": "configuration-loaded",
                "revision": configuration.revision,
                "destinations": len(configuration.destinations),
                "subscriptions": len(configuration.subscriptions),
            },
        )

    def _create_handler(self, destination: ListenerDestination) -> Handler:
        assert self._handlers is not None
        return self._handlers.create_handler(destination)

    def _registry(self, service_name: str) -> HandlerRegistry:
        return HandlerRegistry(
            clock=self._clock,
            timers=self._timers,
            resolver=self._resolver,
            address_policy=self._settings.addresses,
            schema=self._schema,
            service_name=service_name,
        )

    async def _follow_changes(self) -> None:
        watcher = FolderWatcher(self._settings.resources, load=self._load, timers=self._timers)
        async for change in watcher.changes():
            if isinstance(change, ConfigurationError):
                self._refuse(change)
            else:
                self._take_over(change)

    def _take_over(self, configuration: Configuration) -> None:
        # What is in force already is said again only where something else was refused meanwhile.
        current = None if self._refusal else self._configuration
        if current is not None and configuration.revision == current.revision:
            return
        try:
            self.apply(configuration)
        except TooManyDestinations as error:
            self._refuse(error)

    def _refuse(self, error: ConfigurationError | TooManyDestinations) -> None:
        if _says_the_same(error, self._refusal):
            # The watcher begins with what the start has met already.
            return
        self._refusal = error
        if isinstance(error, ConfigurationError) and self._is_awaited(error):
            self._metrics.configuration_awaited()
            logger.info(
                "the configuration has not come yet: %s",
                error,
                extra={"event": "configuration-awaited"},
            )
            return
        self._metrics.configuration_refused()
        logger.error(
            "the %s resources are not taken over: %s",
            "changed" if self._configuration else "first",
            error,
            extra={"event": "configuration-refused"},
        )

    def _is_awaited(self, error: ConfigurationError) -> bool:
        """Whether the rest is only on its way. A folder that was emptied is another matter."""
        return error.incomplete if self._configuration else error.absent

    # ------------------------------------------------------------------ readiness

    def _configuration_problem(self) -> str | None:
        if self._configuration is not None:
            return None
        if isinstance(self._refusal, ConfigurationError) and self._is_awaited(self._refusal):
            return "no configuration is loaded: no complete one has come yet"
        # What exactly is wrong is for the log: this answer is for whoever asks.
        return "no configuration is loaded: what has come was refused, and the log says why"

    def _gate_problem(self) -> str | None:
        return None if self._gate.is_open else "intake is closed"


def _says_the_same(error: Exception, other: Exception | None) -> bool:
    return type(error) is type(other) and str(error) == str(other)
