"""Lines of a plug-in's output: those of the protocol, and those for the log."""

import logging
from dataclasses import dataclass

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.handlers.plugin.messages import ANSWER_LIMIT, MessageError
from pillion_sidecar.handlers.plugin.wire import Wire, WireOwner

logger = logging.getLogger("pillion.plugin")

#: Characters of a line in the log.
LINE_LIMIT = 1000
#: Lines of one link in the log within so many seconds; further ones are counted.
MOST_LINES = 20
SECONDS = 10.0
#: After so many bytes of standard error, reading stops until the second is over: a plug-in that
#: writes more waits, so it cannot occupy the deliverer.
BYTES_PER_SECOND = 64 << 10
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Splitter:
    """Splits a stream of bytes into lines of at most ``limit`` bytes."""

    def __init__(self, limit: int = ANSWER_LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        self._rest += data

    def next(self) -> bytes | None:
        """Return the next complete line, or None. Raises MessageError for one that is too long."""
        end = self._rest.find(b"\n")
        if (len(self._rest) if end < 0 else end) > self._limit:
            raise MessageError(f"it sent a line of more than {self._limit} bytes")
        if end < 0:
            return None
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line

    @property
    def has_part(self) -> bool:
        """Whether a line has begun that is not complete."""
        return bool(self._rest)


class LineReader:
    """Gives the lines of a wire to its owner."""

    def __init__(self, wire: Wire, owner: WireOwner | None) -> None:
        self._wire = wire
        #: None once the wire has ended. What comes after that is not kept.
        self.owner = owner
        self._lines = Splitter()

    def feed(self, data: bytes) -> None:
        if self.owner is not None:
            self._lines.feed(data)

    def read(self) -> None:
        """Give all complete lines to the owner, which may end the wire at any of them."""
        while (owner := self.owner) is not None:
            try:
                line = self._lines.next()
            except MessageError as error:
                owner.wire_lost(self._wire, str(error))
                return
            if line is None:
                return
            owner.wire_received(self._wire, line)

    @property
    def ending(self) -> str:
        """What to add to the reason of an end that nobody asked for."""
        return " in the middle of a line" if self._lines.has_part else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkNames:
    """The names of a link in texts and in the log."""

    plugin: str
    destination: str
    #: The URL is a secret: its plug-in is not named, and no text of the plug-in is shown, since it
    #: may quote the URL.
    is_hidden: bool = False

    @property
    def shown_plugin(self) -> str:
        return "the plug-in" if self.is_hidden else f"plug-in {self.plugin}"


class PluginLog:
    """Lines of a plug-in's standard error, and its ``log`` messages, in the deliverer's log:
    bounded."""

    def __init__(self, names: LinkNames, *, clock: Clock) -> None:
        self._names = names
        self._clock = clock
        self._began = clock.monotonic()
        self._lines = 0
        #: The last line of standard error of this process.
        self.last = ""
        self._part = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes of standard error."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._extend(line)
            self._end_line()
        self._extend(rest)

    def flush(self) -> None:
        """The stream has ended: what is left is a line."""
        if self._part:
            self._end_line()

    def forget(self) -> None:
        """Another process begins."""
        self._part.clear()
        self.last = ""

    def note(self, level: object, message: object) -> None:
        """Take a ``log`` notification."""
        if isinstance(message, str):
            known = _LEVELS.get(level, logging.INFO) if isinstance(level, str) else logging.INFO
            self._write(known, one_line(message, LINE_LIMIT))

    def _extend(self, piece: bytes) -> None:
        # Four bytes a character at most.
        self._part += piece[: 4 * LINE_LIMIT - len(self._part)]

    def _end_line(self) -> None:
        text = one_line(self._part.decode("utf-8", "replace"), LINE_LIMIT).strip()
        self._part.clear()
        if text:
            if not self._names.is_hidden:
                self.last = text
            self._write(logging.INFO, text)

    def _write(self, level: int, text: str) -> None:
        if self._names.is_hidden:
            return
        now = self._clock.monotonic()
        if now - self._began >= SECONDS:
            self.log_left_out()
            self._began = now
        self._lines += 1
        if self._lines <= MOST_LINES:
            logger.log(
                level,
                "%s: %s",
                self._names.shown_plugin,
                text,
                extra={
                    "event": "plugin-output",
                    "plugin": self._names.plugin,
                    "destination": self._names.destination,
                },
            )

    def log_left_out(self) -> None:
        """Log how many lines were left out, if any."""
        left_out, self._lines = self._lines - MOST_LINES, 0
        if left_out > 0:
            logger.warning(
                "%s: %d more lines are not shown",
                self._names.shown_plugin,
                left_out,
                extra={
                    "event": "plugin-output-left-out",
                    "plugin": self._names.plugin,
                    "destination": self._names.destination,
                    "count": left_out,
                },
            )
