"""Room on the disk, reserved before it is needed: so a full disk is met here, and intake can refuse
before it acknowledges anything."""

import logging
from collections.abc import Callable
from functools import partial

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.journal.bounds import MARGIN, MINIMUM_STEP, JournalSettings
from pillion_sidecar.journal.files import is_full
from pillion_sidecar.journal.tail import Tail
from pillion_sidecar.journal.workers import Worker

logger = logging.getLogger("pillion.journal")

#: Seconds after which a full disk is tried again.
RETRY_SECONDS = 1.0


class Reserving:
    """What is reserved in the current segment, and for the next."""

    def __init__(
        self,
        *,
        tail: Tail,
        worker: Worker,
        timers: Timers,
        settings: JournalSettings,
        spare: int,
        freed: Callable[[], None],
        prepared: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """``freed`` is called when it is worth trying again; ``prepared`` when the next segment has
        its room."""
        self._tail = tail
        self._worker = worker
        self._timers = timers
        self._step = self._full_step = settings.step
        self._freed = freed
        self._prepared = prepared
        self._failed = failed
        #: Where what is reserved in the current segment ends, and bytes reserved for the next.
        self.end = spare
        self.spare = spare
        self.is_full = not spare
        self._is_told = False
        self._is_reserving = False
        self._retry: Timer | None = None
        self._wanted = 0

    def begin(self) -> None:
        """The spare becomes the current segment."""
        self.end, self.spare = self.spare, 0

    def reserve(self, end: int, *, spare: bool) -> None:
        """See to it that a step is reserved behind ``end``, and, with ``spare``, for the next
        segment."""
        self._wanted = end
        if self._is_reserving or self._retry is not None:
            return
        # After a full disk intake opens again with this much, which may be several steps.
        least = max(self._full_step, 2 * MARGIN) if self.is_full else self._full_step
        if self.end - end < least:
            self._is_reserving = True
            target = max(end, self.end) + self._step
            work = partial(self._tail.reserve, target)
            self._worker.submit(work, self._reserved, self._not_reserved)
        elif spare and not self.spare:
            self._is_reserving = True
            self._worker.submit(
                partial(self._tail.prepare, self._step), self._ready, self._not_reserved
            )

    def _reserved(self, end: int) -> None:
        self._is_reserving = False
        self.end = end
        if self.is_full and end - self._wanted >= 2 * MARGIN:
            self._writable()
        self._freed()

    def _ready(self, size: int) -> None:
        self._is_reserving = False
        self.spare = size
        self._prepared()

    def _not_reserved(self, error: OSError) -> None:
        self._is_reserving = False
        if not is_full(error):
            self._failed(error)
        elif self._step > MINIMUM_STEP:
            self._step = max(MINIMUM_STEP, self._step // 2)
            self._freed()
        else:
            self.met_full(error)

    def met_full(self, error: OSError) -> None:
        """The disk is full: try again each second."""
        self.is_full = True
        if not self._is_told:
            self._is_told = True
            logger.error(
                "the journal's disk is full: %s; what is pending is delivered, new indications are"
                " refused once they would need the last of %d reserved bytes",
                error.strerror or error,
                max(0, self.end - self._wanted),
                extra={"event": "journal-full", "reserved": max(0, self.end - self._wanted)},
            )
        if self._retry is None:
            self._retry = self._timers.call_later(RETRY_SECONDS, self.retry)

    def _writable(self) -> None:
        self.is_full = self._is_told = False
        logger.info(
            "the journal's disk has room again",
            extra={"event": "journal-writable", "reserved": self.end - self._wanted},
        )

    def retry(self) -> None:
        """Room may have come back: try now what failed."""
        self._step = self._full_step
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._freed()

    def close(self) -> None:
        """Try nothing any more."""
        if self._retry is not None:
            self._retry.cancel()
