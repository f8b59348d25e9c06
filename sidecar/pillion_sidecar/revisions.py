"""Revisions of the configuration: read from the folder, and prepared in a thread before they are
applied."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from pillion_cim.schema import Schema
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, defect
from pillion_sidecar.config.resources import Configuration, reuse
from pillion_sidecar.delivery.relay import missing_gateway
from pillion_sidecar.delivery.table import TooManyDestinations
from pillion_sidecar.descriptors import DescriptorShares
from pillion_sidecar.handlers.plugin_slots import MOST_LINKS
from pillion_sidecar.handlers.registry import load_factories
from pillion_sidecar.lastgood import LastGoodFilters
from pillion_sidecar.protocols.plugin import PROTOCOL as PLUGIN
from pillion_sidecar.routing import Router
from pillion_sidecar.settings import Settings
from pillion_sidecar.telemetry.metrics import Metrics

logger = logging.getLogger("pillion.deliverer")


class Refusals:
    """Remembers why the folder's last revision was rejected."""

    def __init__(self, *, metrics: Metrics, configured: Callable[[], bool]) -> None:
        self._metrics = metrics
        self._configured = configured
        #: None if the last revision was accepted.
        self.last: Exception | None = None

    def note(self, error: ConfigurationError | TooManyDestinations) -> None:
        if _says_the_same(error, self.last):
            # The watcher repeats what the start has reported.
            return
        self.last = error
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
            "changed" if self._configured() else "first",
            error,
            extra={"event": "configuration-refused"},
        )

    def clear(self) -> None:
        self.last = None

    def problem(self) -> str | None:
        if self._configured():
            return None
        if self.last is None:
            return "no configuration is loaded yet"
        if isinstance(self.last, ConfigurationError) and self._is_awaited(self.last):
            return "no configuration is loaded: no complete one has come yet"
        # The details are for the log only: anybody can read this answer.
        return "no configuration is loaded: what has come was refused, and the log says why"

    def _is_awaited(self, error: ConfigurationError) -> bool:
        """Whether the missing resources may only be late; not in an emptied folder."""
        return error.incomplete if self._configured() else error.absent


def _says_the_same(error: Exception, other: Exception | None) -> bool:
    return type(error) is type(other) and str(error) == str(other)


class Revisions:
    """Loads revisions, in the caller's thread, and caches the last routes."""

    def __init__(
        self,
        settings: Settings,
        *,
        schema: Schema,
        current: Callable[[], Configuration | None],
        loading: Callable[[], AbstractContextManager[None]],
        connections: Callable[[], DescriptorShares] | None = None,
    ) -> None:
        """``current``: the revision in force. ``loading`` wraps each load, in its thread."""
        self._settings = settings
        self._connections = connections
        # Once, so that a shortage of descriptors does not matter.
        self._schema = schema
        self._current = current
        self._loading = loading
        self._routed: tuple[Configuration, Router] | None = None
        self._last_good = LastGoodFilters(settings.journal)

    def load(self) -> Configuration:
        """Read the folder.

        Raises ConfigurationError: an error in it, or a defect of this program, so that no content
        ends a running deliverer. OSError: a shortage of descriptors or memory.
        """
        with self._loading():
            try:
                return self._load()
            except (ConfigurationError, OSError):
                raise
            except Exception as error:
                raise ConfigurationError([defect(error)]) from error

    def _load(self) -> Configuration:
        try:
            loaded = self._read()
        except ConfigurationError as error:
            kept = self._last_good.for_all_of(error)
            if kept is None:
                raise
            loaded = self._read(kept)
            self._last_good.note(error)
        else:
            self._last_good.note(None)
        # Work done in this thread does not delay delivery later.
        configuration = replace(reuse(loaded, self._current()), kept_filters=self._last_good.kept)
        self._routed = configuration, Router(configuration, schema=self._schema)
        destinations = configuration.destinations.values()
        load_factories(one.protocol for one in destinations if one.relay_to is None)
        return configuration

    def _read(self, in_place_of: Mapping[str, Any] | None = None) -> Configuration:
        current = self._current()
        return load_folder(
            self._settings.resources,
            service=self._settings.service,
            addresses=self._settings.addresses,
            schema=self._schema,
            # At the start one bad destination does not stop the others; later, one held since then
            # does not stop changes of others.
            may_be_held=None if current is None else current.held,
            in_place_of=in_place_of,
        )

    def keep(self, configuration: Configuration, *, on_disk: bool) -> None:
        """Remember what is good in a revision in force. Blocks."""
        self._last_good.keep(configuration, on_disk=on_disk)

    def router(self, configuration: Configuration) -> Router:
        routed, self._routed = self._routed, None
        if routed is not None and routed[0] is configuration:
            return routed[1]
        return Router(configuration, schema=self._schema)

    def announce(self, configuration: Configuration) -> None:
        """Log that a revision is in force, with its warnings."""
        unreachable = () if self._settings.gateway else missing_gateway(configuration)
        few = self._few_connections(configuration)
        links = _few_links(configuration)
        for warning in (*configuration.warnings, *unreachable, *few, *links):
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

    def _few_connections(self, configuration: Configuration) -> Sequence[str]:
        """Warn that not every destination can have its connections at the same time."""
        if self._connections is None:
            return ()
        shares, destinations = self._connections(), configuration.destinations.values()
        wanted = sum(one.max_in_flight for one in destinations)
        if wanted <= shares.outgoing:
            return ()
        return (
            f"{len(destinations):,} destinations may use {wanted:,} connections at a time, and the"
            f" limit of open files leaves {shares.outgoing:,} of {shares.available:,} for them:"
            " idle ones are closed for others, and attempts wait for their turn; raise the hard"
            " limit (ulimit -Hn)",
        )


def _few_links(configuration: Configuration) -> Sequence[str]:
    """Warn that not every destination of a plug-in can have a link at the same time."""
    destinations = configuration.destinations.values()
    wanted = sum(one.protocol == PLUGIN.name and one.relay_to is None for one in destinations)
    if wanted <= MOST_LINKS:
        return ()
    return (
        f"{wanted:,} destinations deliver by a plug-in, and a deliverer has {MOST_LINKS} links to"
        " plug-ins at a time: idle ones are ended for others, and attempts wait for their turn;"
        " use several services",
    )
