"""What was accepted and reaches no listener: counted by reason, and summarised in the log (S0.11).

The first is logged at once, all others of the minute after it in one line.
"""

import logging
from collections import Counter

from pillion_sidecar.clock import Timers
from pillion_sidecar.indication import Unreached
from pillion_sidecar.intake.minutes import MinuteLog

logger = logging.getLogger("pillion.intake")

#: Classes that a line names for each reason; publishers choose them.
MOST_CLASSES = 3
_MOST_CHARACTERS = 80


class UnreachedIndications:
    """Counts the indications that reach no listener."""

    def __init__(self, *, timers: Timers) -> None:
        #: Since the start, by reason.
        self.total: Counter[Unreached] = Counter(dict.fromkeys(Unreached, 0))
        self._since: Counter[Unreached] = Counter()
        self._classes: dict[Unreached, dict[str, None]] = {}
        self._minutes = MinuteLog(timers=timers, log=self._log)

    def note(self, reason: Unreached, class_name: str) -> None:
        """Count one indication of a class."""
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
        # A repeat that is suppressed is what its subscription asks for.
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
        """Log what no line has told yet."""
        self._minutes.close()
