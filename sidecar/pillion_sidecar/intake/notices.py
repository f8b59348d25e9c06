"""Frequent events in the log: the first at once, the rest once a minute (S0.11)."""

import logging
from collections import Counter
from collections.abc import Callable

from pillion_cim.schema import Schema, nearest
from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.indication import Unreached

logger = logging.getLogger("pillion.intake")

#: Seconds between two lines.
SECONDS = 60.0
#: Reasons named in a line; further ones are only counted.
MOST_REASONS = 5
#: Classes named in a line; publishers choose them.
MOST_CLASSES = 3
_MOST_CHARACTERS = 80


class MinuteLog:
    """Calls ``log`` at most once a minute, when there is something to log."""

    def __init__(self, *, timers: Timers, log: Callable[[], None]) -> None:
        self._timers = timers
        self._log = log
        self._timer: Timer | None = None
        self._has_news = False

    def news(self) -> None:
        """There is something to log."""
        self._has_news = True
        if self._timer is None:
            self._tell()

    def _tell(self) -> None:
        self._timer = None
        if self._has_news:
            self._has_news = False
            self._log()
            self._timer = self._timers.call_later(SECONDS, self._tell)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._has_news:
            self._has_news = False
            self._log()


class HeldBack:
    """Counts lines that publishers are to send again."""

    def __init__(self, *, timers: Timers) -> None:
        self._since: Counter[str] = Counter()
        self._others = 0
        self._minutes = MinuteLog(timers=timers, log=self._log)

    def note(self, reason: str) -> None:
        if reason in self._since or len(self._since) < MOST_REASONS:
            self._since[reason] += 1
        else:
            self._others += 1
        self._minutes.news()

    def _log(self) -> None:
        counted = [f"{count} ({reason})" for reason, count in self._since.most_common()]
        if self._others:
            counted.append(f"{self._others} for other reasons")
        logger.warning(
            "lines were refused for now: %s",
            "; ".join(counted),
            extra={
                "event": "lines-held-back",
                "lines": self._since.total() + self._others,
            },
        )
        self._since.clear()
        self._others = 0

    def close(self) -> None:
        self._minutes.close()


class UnreachedIndications:
    def __init__(self, *, timers: Timers) -> None:
        self.total: Counter[Unreached] = Counter(dict.fromkeys(Unreached, 0))
        self._since: Counter[Unreached] = Counter()
        self._classes: dict[Unreached, dict[str, None]] = {}
        self._minutes = MinuteLog(timers=timers, log=self._log)

    def note(self, reason: Unreached, class_name: str) -> None:
        self.total[reason] += 1
        self._since[reason] += 1
        classes = self._classes.setdefault(reason, {})
        if len(classes) < MOST_CLASSES:
            classes[class_name[:_MOST_CHARACTERS]] = None
        self._minutes.news()

    def _log(self) -> None:
        counted = {reason: self._since[reason] for reason in Unreached if self._since[reason]}
        named = "; ".join(
            f"{count} {reason.value} ({', '.join(self._classes[reason])})"
            for reason, count in counted.items()
        )
        # A suppressed repeat is what its subscription asks for.
        is_wanted = counted.keys() == {Unreached.SUPPRESSED}
        logger.log(
            logging.INFO if is_wanted else logging.WARNING,
            "indications reached no listener: %s",
            named,
            extra={
                "event": "indications-unreached",
                "unrouted": self._since[Unreached.UNROUTED],
                "ended": self._since[Unreached.ENDED],
                "suppressed": self._since[Unreached.SUPPRESSED],
            },
        )
        self._since.clear()
        self._classes.clear()

    def close(self) -> None:
        self._minutes.close()


class UndeclaredClasses:
    """Counts indications of classes that neither the CIM schema nor the service has. They are
    accepted; only a filter on CIM_Indication or that class selects them."""

    def __init__(self, *, timers: Timers, schema: Callable[[], Schema]) -> None:
        """``schema`` returns the classes in force."""
        self.total = 0
        self._schema = schema
        self._since = 0
        self._classes: dict[str, None] = {}
        self._minutes = MinuteLog(timers=timers, log=self._log)

    def note(self, class_name: str) -> None:
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
        self._minutes.close()
