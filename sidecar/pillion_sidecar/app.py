"""Builds, runs, drains and stops a deliverer. Parts receive each other here; none looks another one
up."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from aiohttp import web

from pillion_cim.schema import load_schema
from pillion_sidecar.adoption_routes import AdoptionRoutes, DelivererParts
from pillion_sidecar.auth.acceptor import ConnectionAcceptor
from pillion_sidecar.clock import Clock, LoopTimers, Slices, SystemClock, Timers
from pillion_sidecar.config.durability import LEAST_DUPLICATE_WINDOW, duplicate_window
from pillion_sidecar.config.loader import FolderWatcher
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.service import AllowedPublisher, Durability, IndicationService
from pillion_sidecar.console.routes import add_console_routes
from pillion_sidecar.delivery.events import delivery_ends
from pillion_sidecar.delivery.handler import Handler
from pillion_sidecar.delivery.service import DeliveryService
from pillion_sidecar.delivery.table import TooManyDestinations
from pillion_sidecar.descriptors import DescriptorShares
from pillion_sidecar.diagnosis.routes import Diagnosis, add_diagnosis_routes
from pillion_sidecar.gateway_access import GatewayAccess, most_connections
from pillion_sidecar.handlers.callbacks import HTTPCallbackPoster
from pillion_sidecar.handlers.libraries import load
from pillion_sidecar.handlers.plugin_slots import LINK_DESCRIPTORS, MOST_LINKS, LinkSlots
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.handlers.transport.outgoing import OutgoingConnections
from pillion_sidecar.history.recorder import History
from pillion_sidecar.history_runtime import HistoryRuntime
from pillion_sidecar.http_errors import OriginPolicy, answer_the_rest
from pillion_sidecar.http_server import AddressTaken, Listeners, tell_listening
from pillion_sidecar.intake.answers import callback_body
from pillion_sidecar.intake.bodies import INTAKE_KINDS
from pillion_sidecar.intake.cim_service import service_document
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.limits import IntakeGate
from pillion_sidecar.intake.notices import HeldBack, UndeclaredClasses, UnreachedIndications
from pillion_sidecar.intake.pacing import paced_publishers
from pillion_sidecar.intake.server import create_intake
from pillion_sidecar.journal.files import JournalError
from pillion_sidecar.journal.memory import MemoryJournal
from pillion_sidecar.journal.ports import Recovered
from pillion_sidecar.journal_runtime import (
    JournalFolder,
    fail,
    history_bytes,
    restore_groups,
    wanted_durability,
)
from pillion_sidecar.openapi import add_openapi_route
from pillion_sidecar.reliability.callbacks import Callbacks
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.revisions import Refusals, Revisions
from pillion_sidecar.routing import Router
from pillion_sidecar.settings import Settings
from pillion_sidecar.supervision import LoopSupervisor, goes_on
from pillion_sidecar.telemetry.administration import (
    Administration,
    AdministrationRoutes,
    OperatorGuard,
    add_administration_routes,
    add_operator_route,
)
from pillion_sidecar.telemetry.metrics import Metrics
from pillion_sidecar.telemetry.server import telemetry_app

if TYPE_CHECKING:
    from pillion_sidecar.journal.disk import DiskJournal
    from pillion_sidecar.telemetry.spans import Spans

#: Bytes of a request's head at the telemetry listener, which is open to the network.
TELEMETRY_HEAD_BYTES = 8 * 1024
#: The reason for publishers at shutdown.
SHUTTING_DOWN = "the deliverer is shutting down"


class StartFailed(Exception): ...


class Deliverer:
    """One deliverer, on the event loop that creates it.

    Tests pass ``clock`` and ``timers`` to control time. It closes ``spans`` at its end.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        timers: Timers | None = None,
        log_records_dropped: Callable[[], int] = int,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
        spans: "Spans | None" = None,
    ) -> None:
        self._settings, self._spans = settings, spans
        self._schema = load_schema()
        self._clock = clock or SystemClock()
        self._loop_timers = LoopTimers(loop=asyncio.get_running_loop())
        self._timers = timers or self._loop_timers
        self._configuration: Configuration | None = None
        self._revisions = Revisions(
            settings,
            schema=self._schema,
            current=lambda: self._configuration,
            loading=loading,
            connections=lambda: self._shares,
        )
        self._gate = IntakeGate()
        self._metrics = Metrics(
            clock=self._clock,
            version=version("pillion"),
            log_records_dropped=log_records_dropped,
            intake_kinds=INTAKE_KINDS,
        )
        self._refusals = Refusals(
            metrics=self._metrics, configured=lambda: self._configuration is not None
        )
        self._plugin_links = LinkSlots(timers=self._timers)
        self._shares = DescriptorShares.of_process(
            kept=MOST_LINKS * LINK_DESCRIPTORS if settings.plugins else 0
        )
        self._outgoing = OutgoingConnections(self._shares.outgoing, timers=self._timers)
        self._resolver = Resolver(nameservers=settings.nameservers)
        self._access = GatewayAccess(
            settings,
            clock=self._clock,
            timers=self._timers,
            publishers=self._publishers,
            metrics=self._metrics.gateway,
            connections=min(self._shares.intake, most_connections()),
        )
        #: The work for destinations that do not answer.
        self._slices = Slices(clock=self._clock, timers=self._timers)
        self._make_callbacks()
        self._make_parts()
        self._listeners = Listeners()
        #: Number of indications left at the end; None before.
        self.left: int | None = None
        #: By destination, most first.
        self.left_at: dict[str, int] = {}
        #: Listener addresses, once ``started`` is set.
        self.intake_url = self.telemetry_url = self.administration_url = ""
        self.started = asyncio.Event()

    def _make_callbacks(self) -> None:
        self._poster = HTTPCallbackPoster(
            clock=self._clock,
            timers=self._timers,
            resolver=self._resolver,
            address_policy=self._settings.addresses,
            outgoing=self._outgoing,
        )
        self._callbacks = Callbacks(
            poster=self._poster, timers=self._timers, observer=self._metrics
        )

    def _make_parts(self) -> None:
        """Build what is behind intake; the first revision configures it."""
        self._handlers: HandlerRegistry | None = None
        self._memory = DuplicateMemory(
            clock=self._clock,
            window_seconds=LEAST_DUPLICATE_WINDOW,
            capacity=IndicationService().duplicate_window_entries,
        )
        self._history = History(clock=self._clock, timers=self._timers)
        self._folder = JournalFolder(
            self._settings,
            clock=self._clock,
            timers=self._timers,
            identities=self._memory,
            history=self._history,
            observer=self._metrics,
            waiting=self._gate.close,
        )
        # For the first revision.
        self._recovered: tuple[DiskJournal, Recovered] | None = None
        self.delivery = DeliveryService(
            clock=self._clock,
            timers=self._timers,
            call_soon=asyncio.get_running_loop().call_soon,
            create_handler=self._create_handler,
            observer=self._metrics,
            followers=(self._memory,),
            maximum_destinations=self._settings.maximum_destinations,
            history=self._history,
            begin_span=None if self._spans is None else self._spans.begin_attempt,
            slices=self._slices,
        )
        self._work = HistoryRuntime(
            history=self._history,
            delivery=self.delivery,
            folder=self._folder,
            memory=self._memory,
            clock=self._clock,
            timers=self._timers,
        )
        self._make_context()

    def _make_context(self) -> None:
        self._groups = Groups(
            clock=self._clock,
            timers=self._timers,
            queues=self.delivery,
            window_seconds=LEAST_DUPLICATE_WINDOW,
        )
        self._unreached = UnreachedIndications(timers=self._timers)
        self._held_back = HeldBack(timers=self._timers)
        self._undeclared = UndeclaredClasses(
            timers=self._timers, schema=lambda: self._context.routes.schema
        )
        self._metrics.watch(
            queues=self.delivery.queues,
            former_discards=self.delivery.former_discards,
            duplicates=self._memory,
            groups=self._groups,
            unreached=self._unreached.total,
            undeclared=lambda: self._undeclared.total,
            history=self._history,
            replayed=self._work.replays.totals,
            beyond_limit=lambda: self._context.beyond_limit,
            spans=None if self._spans is None else self._spans.exports,
        )
        self._context = IntakeContext(
            clock=self._clock,
            memory=self._memory,
            routes=Router(Configuration(revision=""), schema=self._schema),
            queues=self.delivery,
            groups=self._groups,
            unreached=self._unreached,
            held_back=self._held_back,
            undeclared=self._undeclared,
            redeliveries=self._work.redeliveries,
            histories=self._work.taken,
            spans=self._spans,
        )
        self._adoptions = AdoptionRoutes(
            DelivererParts(
                context=self._context,
                timers=self._timers,
                observer=self._metrics,
                journal=self._folder,
                access=self._access,
                configuration=lambda: self._configuration,
                handlers=lambda: self._handlers,
            )
        )

    # ------------------------------------------------------------------ life

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set; then close intake, drain, and end.

        Raises:
            StartFailed: the first configuration is wrong, or an address is taken.
            ExceptionGroup: a background task or a callback failed, so the deliverer stopped.
        """
        with LoopSupervisor(asyncio.get_running_loop()) as supervisor:
            try:
                loading = asyncio.create_task(self._load_first())
                if not await goes_on(loading, stop=stop, slow=self._folder.waits):
                    return
                await self._listen()
                async with asyncio.TaskGroup() as tasks:
                    supervising = tasks.create_task(supervisor.failure())
                    watching = tasks.create_task(self._follow_changes(loading))
                    following = tasks.create_task(self._access.follow())
                    replaying = tasks.create_task(self._work.replays.run())
                    await stop.wait()
                    watching.cancel()
                    replaying.cancel()
                    await self._drain()
                    following.cancel()
                    supervising.cancel()
            except AddressTaken as error:
                raise StartFailed(str(error)) from error
            finally:
                await self._close()
            supervisor.check()  # The last write may fail.

    async def _load_first(self) -> None:
        if self._settings.plugins:
            process = await load("pillion_sidecar.handlers.plugin.process")
            await asyncio.to_thread(process.warn_of_missing_programs, self._settings.plugins)
        try:
            configuration = await asyncio.to_thread(self._revisions.load)
            await self._take_up(configuration)
        except (ConfigurationError, TooManyDestinations) as error:
            if not self._settings.wait_for_configuration:
                raise StartFailed(str(error)) from error
            self._refusals.note(error)

    async def _take_up(self, configuration: Configuration) -> None:
        """Activate a revision; before the first one, open its journal.

        Raises:
            StartFailed: the journal cannot be opened.
            ConfigurationError, TooManyDestinations: the revision is rejected.
        """
        if not self._folder.opened:
            service = configuration.service
            durability = wanted_durability(service, folder=self._settings.journal)
            window = duplicate_window(configuration, durability)
            # Before the journal is opened, which restores identities.
            self._configure_memory(service, window)
            self._handlers = self._registry(service.name)
            try:
                self._recovered = await self._folder.open(
                    service, identity_seconds=window, connect=self._handlers.stores
                )
            except JournalError as error:
                raise StartFailed(str(error)) from error
            self.delivery.open(
                *(self._recovered or (MemoryJournal(clock=self._clock), Recovered()))
            )
        self.apply(configuration)
        if configuration.kept_filters:
            # Part of the revision is rejected, which the metric and its alert report like the
            # whole.
            self._metrics.configuration_refused()
        on_disk = self._folder.durability is not Durability.MEMORY
        await asyncio.to_thread(self._revisions.keep, configuration, on_disk=on_disk)

    def _telemetry(self) -> web.Application:
        return telemetry_app(
            exposition=self._metrics.exposition,
            startup={"intake": lambda: None if self.started.is_set() else "it does not listen yet"},
            readiness={
                "configuration": self._refusals.problem,
                "intake": self._gate.problem,
                **self._access.readiness,
            },
        )

    def _applications(self) -> dict[str, web.Application]:
        # A web page has no token.
        tokens, host = self._access.tokens, self._settings.intake.host
        origins = OriginPolicy(host) if tokens is None else None
        intake = create_intake(
            context=self._context,
            schema=self._schema,
            timers=self._timers,
            gate=self._gate,
            observer=self._metrics,
            callbacks=self._callbacks,
            tokens=tokens,
            origins=origins,
            service=self._describe_service,
            history=self._history,
            kept=self._work.receipts,
        )
        telemetry = self._telemetry()
        found = {"intake": intake, "telemetry": telemetry}
        administered, apart = intake, self._settings.administration
        if apart is not None:
            origins = OriginPolicy(apart.host)
            administered = found["administration"] = web.Application()
        administration = self._administration(origins)
        routes = AdministrationRoutes(administration)
        add_administration_routes(administered, routes)
        add_diagnosis_routes(administered, self._diagnosis(administration))
        add_console_routes(administered, has_root=apart is not None)
        if self._settings.operator_token_file is not None:
            token, console = self._settings.operator_token_file, self._settings.operator_console
            guard = OperatorGuard.of_file(token, refused=self._metrics.operator_refused)
            add_operator_route(telemetry, routes, guard=guard, console=console)
            self._adoptions.add_to(telemetry, guard)
        for application in found.values():
            add_openapi_route(application)
        answer_the_rest(found)
        return found

    async def _listen(self) -> None:
        applications = self._applications()
        self.telemetry_url = await self._listeners.serve(
            applications["telemetry"],
            self._settings.telemetry,
            option="--telemetry",
            acceptor=self._plain("telemetry", self._shares.telemetry, head=TELEMETRY_HEAD_BYTES),
        )
        if self._settings.administration is not None:
            self.administration_url = await self._listeners.serve(
                applications["administration"],
                self._settings.administration,
                option="--administration",
                acceptor=self._plain("administration", self._shares.administration),
            )
        # An existing certificate and keys apply to the first client.
        await self._access.look()
        self.intake_url = await self._listeners.serve(
            applications["intake"],
            self._settings.intake,
            option="--intake",
            acceptor=self._access.acceptor or self._plain("intake", self._shares.intake),
        )
        self.administration_url = self.administration_url or self.intake_url
        self.started.set()
        tell_listening(self.intake_url, self.telemetry_url)

    def _plain(self, name: str, connections: int, **more: int) -> ConnectionAcceptor:
        observer, clock = self._metrics.connections.listener(name), self._clock
        return ConnectionAcceptor.plain(
            name, connections, clock=clock, timers=self._timers, observer=observer, **more
        )

    def _describe_service(self) -> Mapping[str, Any] | None:
        if self._configuration is None:
            return None
        return service_document(
            self._configuration.service,
            durability=self._folder.durability,
            maximum_destinations=self._settings.maximum_destinations,
            system=socket.gethostname(),
            schema=self._schema,
        )

    def _administration(self, origins: OriginPolicy | None) -> Administration:
        return Administration(
            delivery=self.delivery,
            clock=self._clock,
            timers=self._timers,
            revision=lambda: self._configuration.revision if self._configuration else None,
            durability=lambda: self._folder.durability,
            kept_filters=lambda: self._configuration.kept_filters if self._configuration else {},
            drain=self.delivery.drain,
            starting=lambda: self._gate.reason if self._folder.is_awaited else None,
            origins=origins,
            history=self._history,
            redriver=self._work.redriver,
            replays=self._work.replays.statuses,
        )

    def _diagnosis(self, administration: Administration) -> Diagnosis:
        return Diagnosis(
            administration=administration,
            memory=self._memory,
            folder=self._folder,
            settings=self._settings,
            configuration=lambda: self._configuration,
            problem=lambda: self._refusals.last,
            router=lambda: self._router,
            create_handler=self._create_handler,
        )

    async def _drain(self) -> None:
        self._close_intake()
        await self._adoptions.close()
        left, gateway, until = 0, None, 0.0
        if self._configuration is not None:
            service = self._configuration.service
            gateway = service.hand_over_to if self._settings.gateway else None
            seconds = service.shutdown_grace_period_seconds
            until = self._clock.monotonic() + seconds
            left = await self.delivery.drain(seconds, hand_over_to=gateway)
            delivery_ends(left)
        self.left, self.left_at = left, self.delivery.left()
        await self.delivery.give_up()
        if gateway is not None:
            assert self._handlers is not None
            await self._work.hand_over(gateway, handlers=self._handlers, until=until)
        await self._folder.shipped(until)

    def _close_intake(self) -> None:
        self._gate.close(SHUTTING_DOWN)
        # Bodies being read are answered with what was accepted so far.
        self._context.closing = SHUTTING_DOWN

    async def _close(self) -> None:
        self._close_intake()
        try:
            self.delivery.close()
        finally:
            await self._plugin_links.close()
            # After delivery: the last settlements answer those who wait for a receipt.
            await self._listeners.close()
            self._work.receipts.close()
            self._callbacks.close(are_kept=self._folder.keeps is not None)
            for part in (self._unreached, self._held_back, self._undeclared, self._poster):
                part.close()
            if self._handlers is not None:
                self._handlers.close()
            await self._resolver.close()
            self._folder.close()
            self._loop_timers.close()
            if self._spans is not None:
                # After the journal, whose last commits end spans.
                await asyncio.to_thread(self._spans.close)

    # ------------------------------------------------------------------ configuration

    def apply(self, configuration: Configuration) -> None:
        """Activate a revision. Raises TooManyDestinations, and changes nothing, if it has too
        many."""
        service, durability = configuration.service, self._folder.durability
        self._folder.warn_of_change(service)
        self._history.configure(service.history, size=history_bytes(service))
        self._router = router = self._revisions.router(configuration)
        if self._configuration is not None and self._configuration.service.name != service.name:
            self._handlers = self._registry(service.name)
        self.delivery.apply(configuration, selections=router.selections)
        self._work.replays.configure(configuration.replays, selects=router.selects)
        window = duplicate_window(configuration, durability)
        self._configure_memory(service, window)
        self._groups.configure(window_seconds=window)
        self._resume_earlier_run()
        self._context.routes = router
        self._context.acknowledgement = self._folder.acknowledgement(service)
        self._context.durability, self._context.stable = durability, self._folder.stable
        self._context.stores = self._folder.stores
        self._context.callbacks = service.callbacks
        self._context.paces = paced_publishers(
            service.publisher_rate_limit, before=self._context.paces
        )
        self._configuration = configuration
        self._refusals.clear()
        self._metrics.configuration_loaded(configuration.revision)
        self._gate.open()
        self._revisions.announce(configuration)

    def _configure_memory(self, service: IndicationService, window_seconds: float) -> None:
        self._memory.configure(
            window_seconds=window_seconds, capacity=service.duplicate_window_entries
        )

    def _resume_earlier_run(self) -> None:
        """Once, with the first revision, when all destinations are known."""
        found, self._recovered = self._recovered, None
        if found is None:
            return
        journal, recovered = found
        restore_groups(self._groups, recovered, offset=journal.offset)
        # The first segment has the state of queues and groups; later records follow it.
        journal.attach(
            self.delivery.journal_listener(
                groups=self._groups.snapshot,
                identities=self._memory.ended,
                failed=partial(fail, self._settings.journal),
            )
        )
        self._folder.begun(self._metrics)
        self._groups.resume()
        self._work.receipts.resume(
            self._callbacks, prefixes=lambda: self._context.callbacks, render=callback_body
        )

    def _publishers(self) -> Sequence[AllowedPublisher]:
        return () if self._configuration is None else self._configuration.service.publishers

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
            gateway=self._settings.gateway,
            outgoing=self._outgoing,
            delivery_folder=self._settings.delivery_folder,
            plugins=self._settings.plugins,
            plugin_links=self._plugin_links,
            slices=self._slices,
        )

    async def _follow_changes(self, loading: asyncio.Task[None]) -> None:
        await loading
        watcher = FolderWatcher(
            self._settings.resources, load=self._revisions.load, timers=self._timers
        )
        async for change in watcher.changes():
            if isinstance(change, ConfigurationError):
                self._refusals.note(change)
            else:
                await self._take_over(change)

    async def _take_over(self, configuration: Configuration) -> None:
        # A revision in force is announced again only after another was rejected.
        current = None if self._refusals.last else self._configuration
        said = configuration.revision, configuration.kept_filters
        if current is not None and said == (current.revision, current.kept_filters):
            return
        try:
            await self._take_up(configuration)
        except (ConfigurationError, TooManyDestinations) as error:
            self._refusals.note(error)
