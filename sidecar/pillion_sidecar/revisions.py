"""Revisions of the configuration, read from the folder with all that takes long done before they
are taken over."""

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
from pillion_sidecar.lastgood import LastGoodFilters
from pillion_sidecar.routing import Router
from pillion_sidecar.settings import Settings
from pillion_sidecar.telemetry.metrics import Metrics

logger = logging.getLogger("pillion.deliverer")


class Refusals:
    """Notes why the folder's last revision was not taken over."""

    def __init__(self, *, metrics: Metrics, configured: Callable[[], bool]) -> None:
        """``configured``: whether a revision is in force."""
        self._metrics = metrics
        self._configured = configured
        #: None where the last revision was taken over.
        self.last: Exception | None = None

    def note(self, error: ConfigurationError | TooManyDestinations) -> None:
        """Log and count a revision that is not taken over."""
        if _says_the_same(error, self.last):
            # The watcher begins with what the start has met already.
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
        """A revision was taken over."""
        self.last = None

    def problem(self) -> str | None:
        """Why nothing is loaded; None where something is."""
        if self._configured():
            return None
        if isinstance(self.last, ConfigurationError) and self._is_awaited(self.last):
            return "no configuration is loaded: no complete one has come yet"
        # What exactly is wrong is for the log: this answer is for whoever asks.
        return "no configuration is loaded: what has come was refused, and the log says why"

    def _is_awaited(self, error: ConfigurationError) -> bool:
        """Whether the rest is only on its way. A folder that was emptied is another matter."""
        return error.incomplete if self._configured() else error.absent


def _says_the_same(error: Exception, other: Exception | None) -> bool:
    return type(error) is type(other) and str(error) == str(other)


class Revisions:
    """Loads revisions, in a thread of its caller's, and keeps the routes of the last one."""

    def __init__(
        self,
        settings: Settings,
        *,
        schema: Schema,
        current: Callable[[], Configuration | None],
        loading: Callable[[], AbstractContextManager[None]],
        connections: Callable[[], DescriptorShares] | None = None,
    ) -> None:
        """``current``: the revision in force. ``loading`` stands around each load, in the thread
        that loads."""
        self._settings = settings
        self._connections = connections
        # Read once: a folder is loaded whatever descriptors there are.
        self._schema = schema
        self._current = current
        self._loading = loading
        self._routed: tuple[Configuration, Router] | None = None
        self._last_good = LastGoodFilters(settings.journal)

    def load(self) -> Configuration:
        """Read the folder.

        Raises:
            ConfigurationError: what is wrong with it; a defect of this program, too, so that no
                content of the folder ends a deliverer that runs.
            OSError: the machine has run out of something.
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
        # What is done here, in the thread, does not hold delivery up when it is applied.
        configuration = replace(reuse(loaded, self._current()), kept_filters=self._last_good.kept)
        self._routed = configuration, Router(configuration, schema=self._schema)
        return configuration

    def _read(self, in_place_of: Mapping[str, Any] | None = None) -> Configuration:
        current = self._current()
        return load_folder(
            self._settings.resources,
            service=self._settings.service,
            addresses=self._settings.addresses,
            schema=self._schema,
            # Without a good revision to go on with, no destination stops the others; and none that
            # is held since then stops the changes of others.
            may_be_held=None if current is None else current.held,
            in_place_of=in_place_of,
        )

    def keep(self, configuration: Configuration, *, on_disk: bool) -> None:
        """Remember what is good in a revision that is in force. Blocks."""
        self._last_good.keep(configuration, on_disk=on_disk)

    def router(self, configuration: Configuration) -> Router:
        """Return the routes of a revision."""
        routed, self._routed = self._routed, None
        if routed is not None and routed[0] is configuration:
            return routed[1]
        return Router(configuration, schema=self._schema)

    def announce(self, configuration: Configuration) -> None:
        """Write to the log that a revision is in force, and what is to be said of it."""
        unreachable = () if self._settings.gateway else missing_gateway(configuration)
        few = self._few_connections(configuration)
        for warning in (*configuration.warnings, *unreachable, *few):
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
        """Say that not every destination can have its connections at the same time."""
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
