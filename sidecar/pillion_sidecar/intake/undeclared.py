"""Indications of classes that are neither in the CIM schema nor declared: accepted, counted, and
warned of in the log, since only a filter on CIM_Indication or on that very class selects them."""

import logging
from collections.abc import Callable

from pillion_cim.declarations import nearest
from pillion_cim.schema import Schema
from pillion_sidecar.clock import Timers
from pillion_sidecar.intake.minutes import MinuteLog

logger = logging.getLogger("pillion.intake")

#: Classes that a line names; publishers choose them.
MOST_CLASSES = 3
_MOST_CHARACTERS = 80


class UndeclaredClasses:
    """Counts the indications of undeclared classes."""

    def __init__(self, *, timers: Timers, schema: Callable[[], Schema]) -> None:
        """``schema`` gives the classes in force."""
        #: Since the start.
        self.total = 0
        self._schema = schema
        self._since = 0
        self._classes: dict[str, None] = {}
        self._minutes = MinuteLog(timers=timers, log=self._log)

    def note(self, class_name: str) -> None:
        """Count one indication of a class."""
        self.total += 1
        self._since += 1
        if len(self._classes) < MOST_CLASSES:
            self._classes[class_name[:_MOST_CHARACTERS]] = None
        self._minutes.news()

    def _log(self) -> None:
        names = self._schema().names()
        guesses = {name: nearest(name, names) for name in self._classes}
        logger.warning(
            "%d indications have classes that are not declared: %s; declare them in"
            " IndicationService.spec.classes, by MOF, or by superclass in the line",
            self._since,
            ", ".join(
                f"{name} (nearest known: {guess})" if guess else name
                for name, guess in guesses.items()
            ),
            extra={
                "event": "classes-undeclared",
                "count": self._since,
                "classes": list(guesses),
            },
        )
        self._since = 0
        self._classes.clear()

    def close(self) -> None:
        """Log what no line has told yet."""
        self._minutes.close()
