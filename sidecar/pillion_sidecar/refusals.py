"""Revisions of the configuration that were not taken over: said once, and why nothing is loaded."""

import logging
from collections.abc import Callable

from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.delivery.table import TooManyDestinations
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
