"""Plug-ins at a Unix socket, such as that of another container: one connection has both queues
(S2.1)."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.handlers.plugin.lines import Splitter
from pillion_sidecar.handlers.plugin.messages import MessageError
from pillion_sidecar.handlers.plugin.wire import LinkError, WireOwner
from pillion_sidecar.handlers.plugin_slots import GRACE_SECONDS

_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOpener:
    path: Path
    timers: Timers

    async def open(self, owner: WireOwner, gone: Callable[[], None]) -> None:
        """See ``Opener``."""
        loop = asyncio.get_running_loop()
        wire = SocketWire(owner=owner, gone=gone, timers=self.timers)
        try:
            await loop.create_unix_connection(lambda: wire, str(self.path))
        except OSError as error:
            gone()
            raise LinkError(
                f"no connection to the socket {str(self.path)!r}: {error.strerror or error}",
                spends_attempt=error.errno not in _SHORTAGES,
            ) from None
        except BaseException:
            gone()
            raise


class SocketWire(asyncio.Protocol):
    def __init__(self, *, owner: WireOwner, gone: Callable[[], None], timers: Timers) -> None:
        self._owner: WireOwner | None = owner
        self._gone = gone
        self._timers = timers
        self._timer: Timer | None = None
        self._lines = Splitter()
        self._transport: asyncio.Transport | None = None
        self._ending = False

    # ------------------------------------------------------------------ Wire

    @property
    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, line: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(line)

    def end(self, *, at_once: bool) -> None:
        if self._ending:
            return
        self._ending, self._owner = True, None
        transport = self._transport
        if transport is None:
            return
        if at_once or transport.is_closing():
            transport.abort()
        else:
            transport.write_eof()
            self._timer = self._timers.call_later(GRACE_SECONDS, transport.abort)

    # ------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._owner is not None:
            self._owner.wire_opened(self)

    def data_received(self, data: bytes) -> None:
        self._lines.feed(data)
        while (owner := self._owner) is not None:
            try:
                line = self._lines.next()
            except MessageError as error:
                owner.wire_lost(self, str(error))
                return
            if line is None:
                return
            owner.wire_received(self, line)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._owner is not None:
            half = " in the middle of a line" if self._lines.has_part else ""
            self._owner.wire_lost(self, f"it closed the connection{half}")
        self._gone()
