"""The deliverer inside another program (S3.13): in a thread, with an event loop of its own.

    with EmbeddedDeliverer(Settings(resources=folder, journal=journal)) as deliverer:
        publish(deliverer.intake_url)

No signal is touched: the program ends the deliverer, and may end itself once that is done.
"""

import asyncio
import contextlib
import threading
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    InvalidStateError,
    ThreadPoolExecutor,
    wait,
)
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from pillion_sidecar.app import Deliverer, StartFailed
from pillion_sidecar.clock import SystemClock
from pillion_sidecar.settings import Settings
from pillion_sidecar.supervision import PartFailed, first
from pillion_sidecar.telemetry.tracing import create_spans

if TYPE_CHECKING:
    from pillion_sidecar.telemetry.spans import Spans


class DelivererRunning(Exception):
    """A deliverer is running already: one at a time in a process."""


class DelivererFailed(Exception):
    """The deliverer has ended because a part of it failed, which is the cause."""


class EmbeddedDeliverer:
    """One deliverer in this process, from :meth:`start` until :meth:`stop` has returned.

    Its methods block, so a program with an event loop calls them with ``asyncio.to_thread``. The
    process does not end before the deliverer has been stopped, so that nobody forgets what is in
    its queues.
    """

    #: One per process: two would mix their metrics and logs, and compete for one interpreter.
    _only: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: Done when it listens.
        self._listens: Future[None] = Future()
        #: Done when it is to stop.
        self._told: Future[None] = Future()
        #: Done when it has ended.
        self._ended: Future[None] | None = None
        #: Addresses for publishers, and of metrics and queues, once started.
        self.intake_url = ""
        self.telemetry_url = ""
        self.administration_url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; returns when it listens.

        Raises:
            DelivererRunning: there is one already, or this one was started before.
            StartFailed: its configuration is wrong, or an address or its journal cannot be had.
            DelivererFailed: it failed otherwise before it listened.
        """
        if self._ended is not None:
            raise DelivererRunning("this deliverer was started before; make another one")
        if not self._only.acquire(blocking=False):
            raise DelivererRunning(
                "a deliverer runs in this process already; stop it first, or start this one in "
                "another process"
            )
        with contextlib.ExitStack() as undo:
            undo.callback(self._only.release)
            threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pillion-deliverer")
            self._ended = threads.submit(self._work)
            # Now the thread releases it.
            undo.pop_all()
            # A caller interrupted here, as by Ctrl-C, could not stop it.
            undo.callback(self._tell)
            threads.shutdown(wait=False)
            wait((self._listens, self._ended), return_when=FIRST_COMPLETED)
            if not self._listens.done():
                self._raise(self._ended)
            undo.pop_all()

    def stop(self) -> None:
        """Have it close intake, deliver for ``shutdownGracePeriodSeconds``, keep what is left in
        its journal, and end; returns when it has. Nothing happens where it does not run.

        Raises:
            DelivererFailed: it has failed, now or before; what the journal took is in it.
            StartFailed: it was never started with success.
        """
        if self._ended is not None:
            self._tell()
            wait((self._ended,))
            self._raise(self._ended)

    @property
    def failed(self) -> BaseException | None:
        """Why it has ended by itself; None while it runs, and after a stop."""
        return self._ended.exception() if self._ended is not None and self._ended.done() else None

    def _tell(self) -> None:
        with contextlib.suppress(InvalidStateError):
            self._told.set_result(None)

    @staticmethod
    def _raise(ended: "Future[None]") -> None:
        error = ended.exception()
        if isinstance(error, StartFailed):
            raise error
        if error is not None:
            told = first(error, PartFailed) or error
            raise DelivererFailed(f"the deliverer of this process has failed: {told}") from error

    # ------------------------------------------------------------------ in the thread

    def _work(self) -> None:
        try:
            asyncio.run(self._run(create_spans(SystemClock())))
        finally:
            self._only.release()

    async def _run(self, spans: "Spans | None") -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def tell(_told: "Future[None]") -> None:
            # The loop is closed if the deliverer has ended by itself.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)

        self._told.add_done_callback(tell)
        deliverer = Deliverer(self._settings, spans=spans)
        announcing = asyncio.create_task(self._announce(deliverer))
        try:
            await deliverer.run(stop)
        finally:
            announcing.cancel()

    async def _announce(self, deliverer: Deliverer) -> None:
        await deliverer.started.wait()
        self.intake_url = deliverer.intake_url
        self.telemetry_url = deliverer.telemetry_url
        self.administration_url = deliverer.administration_url
        self._listens.set_result(None)
