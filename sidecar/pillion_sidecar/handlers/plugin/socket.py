"""Plug-ins at a Unix socket, such as that of another container: one connection has both queues
(S2.1)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.filewatch import SHORTAGES
from pillion_sidecar.handlers.plugin.lines import LineReader
from pillion_sidecar.handlers.plugin.wire import LinkError, WireOwner
from pillion_sidecar.handlers.plugin_slots import GRACE_SECONDS


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
            wire.report_gone()
            raise LinkError(
                f"no connection to the socket {str(self.path)!r}: {error.strerror or error}",
                hidden=f"no connection to its socket: {error.strerror or type(error).__name__}",
                spends_attempt=error.errno not in SHORTAGES,
            ) from None
        except BaseException:  # Whatever ended it: its slot must not stay taken.
            wire.report_gone()
            raise


class SocketWire(asyncio.Protocol):
    def __init__(self, *, owner: WireOwner, gone: Callable[[], None], timers: Timers) -> None:
        self._gone: Callable[[], None] | None = gone
        self._timers = timers
        self._timer: Timer | None = None
        self._lines = LineReader(self, owner)
        self._transport: asyncio.Transport | None = None
        self._has_unsent = False
        self._ending = False

    # ------------------------------------------------------------------ Wire

    @property
    def unsent(self) -> int:
        if self._transport is None:
            return 0
        # A transport that breaks forgets what it had not sent.
        return max(self._transport.get_write_buffer_size(), int(self._has_unsent))

    def write(self, line: bytes) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.write(line)
        # It may have found the connection broken.
        return not transport.is_closing()

    def end(self, *, at_once: bool) -> None:
        if self._ending:
            return
        self._ending, self._lines.owner = True, None
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
        # Then writing is paused whenever bytes are unsent.
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        if self._lines.owner is not None:
            self._lines.owner.wire_opened(self)

    def data_received(self, data: bytes) -> None:
        self._lines.feed(data)
        self._lines.read()

    def pause_writing(self) -> None:
        self._has_unsent = True

    def resume_writing(self) -> None:
        self._has_unsent = False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._lines.owner is not None:
            self._lines.owner.wire_lost(self, f"it closed the connection{self._lines.ending}")
        self.report_gone()

    def report_gone(self) -> None:
        """Idempotent: where an opening is given up, its connection may be made and lost later."""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()
