"""Lines that are refused for now: summarised in the log, for those who operate the deliverer.

The first is logged at once, all others of the minute after it in one line.
"""

import logging
from collections import Counter

from pillion_sidecar.clock import Timers
from pillion_sidecar.intake.minutes import MinuteLog

logger = logging.getLogger("pillion.intake")

#: Reasons that a line of the log names; all that are more are counted alone.
MOST_REASONS = 5


class HeldBack:
    """Counts the lines that publishers are to send again."""

    def __init__(self, *, timers: Timers) -> None:
        self._since: Counter[str] = Counter()
        self._others = 0
        self._minutes = MinuteLog(timers=timers, log=self._log)

    def note(self, reason: str) -> None:
        """Count one line that was refused for a reason."""
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
        """Log what no line has told yet."""
        self._minutes.close()
