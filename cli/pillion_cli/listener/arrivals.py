"""The last indications that a listener took, to be read back over HTTP: by a test, or a person.

A bound of their number and not of their size: a request's body is bounded already.
"""

import json
from collections import deque
from itertools import islice

from pillion_cli.listener.arrival import Arrival
from pillion_cli.listener.report import outcome_as_json
from pillion_cli.listener.sequence import Outcome

#: The most in one answer.
MOST_AT_ONCE = 10_000


class Arrivals:
    """Keeps the last ``keep`` outcomes, each under an index that counts from 1."""

    def __init__(self, *, keep: int) -> None:
        self._kept: deque[bytes] = deque(maxlen=keep)
        self._last = 0

    def add(self, outcome: Outcome[Arrival]) -> None:
        """Keep one; the oldest goes where there are too many."""
        self._last += 1
        if not self._kept.maxlen:
            return
        line = {"index": self._last, **outcome_as_json(outcome)}
        self._kept.append(json.dumps(line).encode() + b"\n")

    def after(self, index: int, *, limit: int = MOST_AT_ONCE) -> bytes:
        """A JSON object a line: those after ``index`` that are still kept, at most ``limit``."""
        first = self._last - len(self._kept)
        skipped = max(0, index - first)
        return b"".join(islice(self._kept, skipped, skipped + min(limit, MOST_AT_ONCE)))
