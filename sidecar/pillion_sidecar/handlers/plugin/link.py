"""The link of one destination to its plug-in: commands out, replies in, time-out, restart (S2).

It is started by its first delivery. Whatever ends it unasked is a link error: each pending command
gets an error (S2.6), and the next start waits. Deliveries in this wait fail at once.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
    HoldCause,
)
from pillion_sidecar.handlers.batches import unsent
from pillion_sidecar.handlers.plugin import messages
from pillion_sidecar.handlers.plugin.lines import LinkNames, PluginLog
from pillion_sidecar.handlers.plugin.messages import (
    MESSAGE_LIMIT,
    MOST_IN_FLIGHT,
    Answer,
    MessageError,
    Notification,
    Request,
)
from pillion_sidecar.handlers.plugin.replies import MOST_TIMEOUTS, Command, ReplyQueue
from pillion_sidecar.handlers.plugin.wire import LinkError, Opener, Wire
from pillion_sidecar.handlers.plugin_slots import LinkSlots, Slot
from pillion_sidecar.handlers.transport.outgoing import AnswerTimes

logger = logging.getLogger("pillion.plugin")

#: Seconds beyond the plug-in's own time-out after which the deliverer ends a silent link (S2.4).
MARGIN_SECONDS = 5.0
#: Times the seconds of a silent link that one with progress has while others wait for a link.
OVERDUE_WITH_PROGRESS = 4
#: Seconds without a delivery after which a link is ended.
IDLE_SECONDS = 300.0
#: Seconds that a link keeps its slot while others wait for one.
TURN_SECONDS = 1.0
#: Seconds before the first restart; each further failure doubles them.
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
#: Messages that answer nothing, within so many seconds: reading more would cost other destinations
#: time.
MOST_UNASKED = 1000
UNASKED_SECONDS = 10.0
#: Bytes to a plug-in that does not read.
MOST_UNSENT = (MOST_IN_FLIGHT + 1) * MESSAGE_LIMIT
_INITIALIZE = 0
_MAY_QUOTE = "the plug-in's text may quote the URL, which is in a Secret, so it is not shown"


class Link:
    def __init__(
        self,
        *,
        opener: Opener,
        slots: LinkSlots,
        clock: Clock,
        timers: Timers,
        timeout: float,
        initialize: bytes,
        names: LinkNames,
        log: PluginLog,
    ) -> None:
        """``timeout``: the destination's. ``initialize``: the params of the first message."""
        self._opener = opener
        self._slots = slots
        self._clock = clock
        self._timers = timers
        self._initialize = initialize
        self._names = names
        self._log = log
        self._replies = ReplyQueue(
            clock=clock,
            timers=timers,
            timeout=timeout + MARGIN_SECONDS,
            idle_seconds=IDLE_SECONDS,
            expired=self._expire,
            idle=self.end_idle,
        )
        #: Not written yet, and not timed (S2.5).
        self._waiting: deque[Command] = deque()
        #: Maximum number of pending commands; 0 until ``initialize`` is answered (S2.7).
        self._in_flight = 0
        self._ids = itertools.count(_INITIALIZE + 1)
        #: None until a delivery starts the link.
        self._slot: Slot | None = None
        #: Runs for as long as the link may keep its slot while others wait.
        self._turn: Timer | None = None
        self._times = AnswerTimes()
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._written = 0
        self._closed = False
        #: Seconds of the last wait before a start; 0 after an answer.
        self._wait = 0.0
        self._starts_at = 0.0
        #: Why it waits.
        self._failure = ""
        self._unasked = 0
        self._unasked_since = 0.0

    @property
    def is_idle(self) -> bool:
        return self._wire is not None and not self._replies and not self._waiting

    @property
    def failures(self) -> int:
        return self._times.failures

    @property
    def is_overdue(self) -> bool:
        """One that sends other messages has more time than a silent one, but an end, too."""
        replies, overdue = self._replies, self._times.overdue
        return (
            replies.silent_seconds >= overdue
            or replies.unanswered_seconds >= OVERDUE_WITH_PROGRESS * overdue
        )

    def send(self, command: Command) -> None:
        """``command.done`` is called exactly once, later, unless the link is closed."""
        wait = self._starts_at - self._clock.monotonic()
        if wait > 0:
            detail = f"{self._failure}; it starts again in {wait:.0f} s"
            outcome = DeliveryOutcome(
                DeliveryResult.ERROR,
                detail,
                retry_after=wait,
                spends_attempt=False,
                cause=FailureCause.RESET,
            )
            self.refuse(command, outcome)
        else:
            self._waiting.append(command)
            if self._slot is None:
                self._start()
            else:
                self._write_waiting()

    def refuse(self, command: Command, outcome: DeliveryOutcome) -> None:
        """Report an outcome from the event loop: the caller is in the middle of its own turn."""
        asyncio.get_running_loop().call_soon(self._report, command, outcome)

    def end_idle(self) -> None:
        """End it until the next delivery."""
        self._drop(at_once=False)

    def give_way(self) -> None:
        seconds = self._replies.unanswered_seconds
        reason = f"it answered nothing for {seconds:.0f} s, and other plug-ins wait for a link"
        self._fail(reason, spends_attempt=False, preempted=True)

    def close(self) -> None:
        """Commands under way are abandoned without ``done``."""
        self._closed = True
        self._waiting.clear()
        self._drop(at_once=False)

    # ------------------------------------------------------------------ begin

    def _start(self) -> None:
        self._slot = self._slots.take(self)
        if self._slot.is_held:
            self.begin()

    def begin(self) -> None:
        """See :class:`pillion_sidecar.handlers.plugin_slots.Holder`."""
        assert self._slot is not None
        self._written = 0
        self._log.forget()
        # The time-out of the link covers its start (S2.7).
        self._replies.expect(_INITIALIZE, Command(self._initialize))
        self._opening = asyncio.get_running_loop().create_task(self._open(self._slot.give))

    async def _open(self, gone: Callable[[], None]) -> None:
        failure = None
        try:
            await self._opener.open(self, gone)
        except LinkError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a task ends here, and its commands must not hang
            failure = LinkError(
                f"it could not be started: {error!r}",
                hidden=f"it could not be started: {type(error).__name__}",
            )
        if self._opening is not asyncio.current_task():
            # Given up meanwhile.
            return
        self._opening = None
        if failure is not None:
            reason = failure.hidden if self._names.is_hidden else str(failure)
            self._fail(reason, hold=failure.hold, spends_attempt=failure.spends_attempt)

    def wire_opened(self, wire: Wire) -> None:
        if self._opening is None:
            # Given up in the turn in which it was opened.
            wire.end(at_once=True)
            return
        self._wire = wire
        self._write(messages.request(_INITIALIZE, "initialize", self._initialize))

    # ------------------------------------------------------------------ commands

    def _write_waiting(self) -> None:
        """Write as many commands as the plug-in takes up beside each other (S2.5)."""
        if self._in_flight and self._is_turn_over():
            self._end_turn()
            return
        while self._waiting and len(self._replies) < self._in_flight:
            command = self._waiting.popleft()
            number = next(self._ids)
            self._replies.expect(number, command)
            line = messages.request(number, "deliver", command.params)
            command.end_offset = self._written + len(line)
            self._write(line)

    def _write(self, line: bytes) -> None:
        assert self._wire is not None
        if self._wire.write(line):
            self._written += len(line)

    # ------------------------------------------------------------------ replies

    def wire_received(self, wire: Wire, line: bytes) -> None:
        if wire is not self._wire:
            return
        try:
            self._take_message(messages.read(line))
        except MessageError as error:
            self._fail(_MAY_QUOTE if self._names.is_hidden else str(error))
        except Exception as error:  # Else its commands would wait without an end.
            self._fail(f"a fault of the deliverer: {type(error).__name__}")
            logger.exception(
                "%s: its message could not be handled",
                self._names.shown_plugin,
                exc_info=None if self._names.is_hidden else error,
                extra={"event": "plugin-message-fault", "destination": self._names.destination},
            )

    def wire_lost(self, wire: Wire, reason: str) -> None:
        if wire is self._wire:
            self._fail(reason)

    def _take_message(self, message: messages.Message) -> None:
        """Raises MessageError."""
        self._replies.heard()
        if isinstance(message, Answer):
            self._take_answer(message)
            return
        self._count_unasked()
        if isinstance(message, Request):
            self._write(messages.not_found(message))
            if self._wire is not None and self._wire.unsent > MOST_UNSENT:
                raise MessageError("it sends requests and does not read the answers")
        elif message.method == "log":
            self._take_log(message)

    def _take_answer(self, answer: Answer) -> None:
        is_first = not self._in_flight
        # Before its command is taken: from then on only this outcome ends it.
        outcome = None if is_first else self._outcome(answer)
        command = self._replies.take(answer.id)
        if command is None:
            detail = "" if answer.error is None else f" ({answer.error})"
            raise MessageError(f"it answered the unknown id {messages.shown(answer.id)}{detail}")
        if outcome is None:
            # The link is complete (S2.7).
            self._in_flight = messages.in_flight(answer)
            self._begin_turn()
            self._write_waiting()
            return
        self._wait = 0.0
        self._times.answered(self._clock.monotonic() - command.written_at)
        # The next command is under way while this outcome is recorded.
        self._write_waiting()
        self._report(command, outcome)

    def _outcome(self, answer: Answer) -> DeliveryOutcome:
        outcome = messages.outcome_of(answer)
        if self._names.is_hidden and outcome.detail:
            return replace(outcome, detail=_MAY_QUOTE)
        return outcome

    def _take_log(self, message: Notification) -> None:
        if isinstance(message.params, dict):
            self._log.note(message.params.get("level"), message.params.get("message"))

    def _count_unasked(self) -> None:
        now = self._clock.monotonic()
        if now - self._unasked_since >= UNASKED_SECONDS:
            self._unasked, self._unasked_since = 0, now
        self._unasked += 1
        if self._unasked > MOST_UNASKED:
            raise MessageError(
                f"it sent more than {MOST_UNASKED} messages in {UNASKED_SECONDS:.0f} s that answer"
                " nothing"
            )

    # ------------------------------------------------------------------ its turn

    def _begin_turn(self) -> None:
        self._turn = self._timers.call_later(TURN_SECONDS, self._turn_ended)

    def _turn_ended(self) -> None:
        self._turn = None
        # Others may wait since it became idle.
        self._write_waiting()

    def _is_turn_over(self) -> bool:
        return self._turn is None and self._slots.is_crowded

    def _end_turn(self) -> None:
        """Give the slot to another link after the last answer; what is not written waits again."""
        if self._replies:
            return
        self._drop(at_once=False)
        if self._waiting:
            self._start()

    # ------------------------------------------------------------------ the end

    def _expire(self) -> None:
        seconds = f"within {self._replies.timeout:g} s"
        if self._wire is None:
            reason = f"it could not be started {seconds}"
        elif not self._in_flight:
            reason = f"it did not answer initialize {seconds}. {messages.FLUSHES_HINT}"
        elif not self._replies.is_silent:
            reason = f"it did not answer within {MOST_TIMEOUTS * self._replies.timeout:g} s"
        else:
            reason = f"it sent nothing {seconds}. {messages.FLUSHES_HINT}"
        self._fail(reason, cause=FailureCause.TIMEOUT)

    def _fail(
        self,
        reason: str,
        *,
        hold: HoldCause | None = None,
        cause: FailureCause = FailureCause.RESET,
        spends_attempt: bool = True,
        preempted: bool = False,
    ) -> None:
        """End the link by an error, and tell each command (S2.6)."""
        if self._closed:
            return
        sent = self._written - (0 if self._wire is None else self._wire.unsent)
        commands = [*self._drop(at_once=True), *self._waiting]
        self._waiting.clear()
        self._failure = f"{self._names.shown_plugin}: {reason}"
        now = self._clock.monotonic()
        self._times.failed(began_at=now, now=now)
        if hold is None and not preempted:
            self._wait = min(max(FIRST_WAIT, 2 * self._wait), LONGEST_WAIT)
            self._starts_at = now + self._wait
        self._log_failure(reason)
        for number, command in enumerate(commands):
            result = DeliveryResult.ERROR
            if hold is not None:
                result = DeliveryResult.FATAL_ERROR
            elif 0 < command.end_offset <= sent:
                # The plug-in may have handled it.
                result = DeliveryResult.POST_DELIVERY_ERROR
            outcome = DeliveryOutcome(
                result,
                self._failure,
                hold=hold,
                spends_attempt=spends_attempt,
                preempted=preempted,
                cause=cause,
            )
            is_waiting = number > 0 and not command.end_offset
            # Without one that was written, the first has made the attempt at a start.
            self._report(command, unsent(outcome) if is_waiting and hold is None else outcome)

    def _log_failure(self, reason: str) -> None:
        logger.warning(
            "%s of destination %s: the link has ended: %s",
            self._names.shown_plugin,
            self._names.destination,
            reason,
            extra={
                "event": "plugin-link-failed",
                "destination": self._names.destination,
                "reason": reason,
            },
        )

    def _drop(self, *, at_once: bool) -> list[Command]:
        """End wire and opening, give the slot back; return what was pending."""
        opening, self._opening = self._opening, None
        if opening is not None:
            # Later: a task that is cancelled before its first step would never begin.
            asyncio.get_running_loop().call_soon(opening.cancel)
        wire, self._wire = self._wire, None
        self._in_flight = 0
        self._log.log_left_out()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.leave()
        if wire is not None:
            if not at_once:
                wire.write(messages.SHUTDOWN)
            wire.end(at_once=at_once)
        return [command for command in self._replies.clear() if command.done is not None]

    def _report(self, command: Command, outcome: DeliveryOutcome) -> None:
        if not self._closed and command.done is not None:
            command.done(outcome)
