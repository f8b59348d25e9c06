"""Lines of the log whose number others decide: whoever sends what is no HTTP, or goes before the
answer, over and over, gets a few of them a minute, and a count of the rest. Pure.

All other lines are written, however many they are: each says what became of something (S0.11).
"""

import logging
from typing import NamedTuple

#: Lines of one kind that are written within so many seconds.
MOST_LINES = 5
SECONDS = 60.0
#: Kinds that are told apart at a time; all that are more are one.
MOST_KINDS = 50
#: Who logs requests that the library, or the operator's webhook, could not make anything of, and
#: connections that the other side has ended. What asyncio says of a task or a transport names it,
#: and so is a kind of its own.
FROM_OUTSIDE = frozenset(("aiohttp.server", "asyncio", "pillion.http", "pillion.operator.webhook"))


class Kind(NamedTuple):
    """What lines have in common that are counted together."""

    logger: str
    #: Before its arguments are put in: they differ from one request to the next.
    message: str
    #: The name of an exception's class.
    error: str | None


class LeftOut(NamedTuple):
    """Lines that were not written."""

    kind: Kind
    lines: int


#: Of those for which there is no place.
OTHERS = Kind("", "lines of other kinds", None)


def kind_of(record: logging.LogRecord) -> Kind | None:
    """Return the kind of a line whose number others decide; None for every other line."""
    if record.name not in FROM_OUTSIDE or record.levelno < logging.WARNING:
        return None
    error = record.exc_info[0] if record.exc_info else None
    return Kind(record.name, str(record.msg), None if error is None else error.__name__)


class _Written:
    """The lines of one kind since its time began."""

    __slots__ = ("began", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0


class LineBound:
    """Says which lines are written. Times are those of ``Clock.monotonic()``."""

    def __init__(self) -> None:
        # In the order in which their times began, so that they end in it too.
        self._kinds: dict[Kind, _Written] = {}

    def admits(self, kind: Kind, *, now: float) -> bool:
        """Whether a line is written, all that was over being taken out (``over``)."""
        written = self._kinds.get(kind)
        if written is None:
            if len(self._kinds) >= MOST_KINDS:
                kind = OTHERS
            written = self._kinds.setdefault(kind, _Written(now))
        written.lines += 1
        return written.lines <= MOST_LINES

    def over(self, *, now: float) -> list[LeftOut]:
        """Take out what was left out of the kinds whose time is over."""
        ended = []
        for kind, written in self._kinds.items():
            if now - written.began < SECONDS:
                break
            ended.append(kind)
        return self._take_out(ended)

    def finish(self) -> list[LeftOut]:
        """Take out what was left out of all kinds."""
        return self._take_out(list(self._kinds))

    def _take_out(self, kinds: list[Kind]) -> list[LeftOut]:
        counts = [(kind, self._kinds.pop(kind).lines - MOST_LINES) for kind in kinds]
        return [LeftOut(kind, count) for kind, count in counts if count > 0]
