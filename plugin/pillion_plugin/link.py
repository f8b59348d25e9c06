"""One link to a deliverer: commands are taken up, timed from then on, and answered once (S2.3).

The thread of :meth:`Link.serve` reads. Workers call the plug-in's function. A timer thread answers
for a function that does not return in time; what such a function returns later is dropped.
"""

import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any

from pillion_plugin import messages
from pillion_plugin.clock import Clock
from pillion_plugin.delivery import (
    Delivery,
    ParameterError,
    Peer,
    Refused,
    Retry,
    delivery_from,
    peer_from,
)
from pillion_plugin.log import FULL_TEXT, STANDARD_ERROR, say
from pillion_plugin.messages import MessageError, Request

#: The protocol's maximum of commands that are under way on a link.
MOST_IN_FLIGHT = 5

Deliver = Callable[[Delivery], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What a program is run with. Raises ValueError."""

    deliver: Deliver
    name: str
    version: str = ""
    in_flight: int = 1

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name: it is empty; give the name of the plug-in")
        if not 1 <= self.in_flight <= MOST_IN_FLIGHT:
            raise ValueError(f"in_flight: {self.in_flight} is not from 1 to {MOST_IN_FLIGHT}")

    def described(self) -> dict[str, Any]:
        return {
            "protocolVersion": messages.PROTOCOL_VERSION,
            "name": messages.one_line(self.name),
            "version": messages.one_line(self.version),
            "inFlight": self.in_flight,
        }


@dataclass(slots=True, eq=False)
class _Command:
    id: str | int
    delivery: Delivery
    #: By the clock; infinite until a worker takes it up.
    deadline: float = float("inf")


class Link:
    """``write`` writes a whole line, and raises OSError if the deliverer has gone."""

    def __init__(self, plugin: Plugin, *, write: Callable[[bytes], None], clock: Clock) -> None:
        self._plugin = plugin
        self._write = write
        self._clock = clock
        self._peer: Peer | None = None
        # Guards all below. Answers are written under it: each is a whole line, and comes once.
        self._changed = Condition()
        #: Not taken up, and so not timed.
        self._waiting: deque[_Command] = deque()
        #: Taken up and not answered, by id.
        self._under_way: dict[str | int, _Command] = {}
        #: Workers whose command was answered by the timer and whose function has not returned.
        self._stuck = 0
        #: When the last of them was, by the clock.
        self._stuck_at = 0.0
        self._is_broken = False
        self._is_closed = False
        #: Those that run.
        self._workers: list[Thread] = []

    def serve(self, lines: Iterator[bytes]) -> None:
        """Serve until a ``shutdown`` or the end of the lines, and until all that came is answered.
        Threads whose function does not return are left behind. Raises RuntimeError where no thread
        can be started; then it has ended, too."""
        timer = Thread(target=self._time, name="pillion-timer", daemon=True)
        timer.start()
        try:
            self._start_workers()
            for line in lines:
                STANDARD_ERROR.tell()
                if not self._take(line):
                    break
        finally:
            STANDARD_ERROR.tell()
            with self._changed:
                self._changed.wait_for(self._is_done)
                self._is_closed = True
                self._changed.notify_all()
            timer.join()

    def _start_workers(self) -> None:
        for number in range(self._plugin.in_flight):
            worker = Thread(target=self._work, name=f"pillion-worker-{number}", daemon=True)
            worker.start()
            self._workers.append(worker)

    def join(self) -> None:
        """After :meth:`serve`: wait until each function that was called has returned."""
        for worker in self._workers:
            worker.join()

    def _is_done(self) -> bool:
        return self._is_broken or not (self._waiting or self._under_way)

    # ------------------------------------------------------------------ reading

    def _take(self, line: bytes) -> bool:
        """Return whether the link goes on."""
        try:
            request = messages.parse(line)
        except MessageError as failure:
            self._answer(messages.error(failure.id, failure.code, str(failure)))
            return not self._is_broken
        if request is None:
            return True
        if request.id is None:
            return request.method != "shutdown"
        match request.method:
            case "initialize":
                self._initialize(request.id, request)
            case "deliver":
                self._queue(request.id, request)
            case _:
                text = f"{request.method!r} is not a method; use initialize or deliver"
                self._answer(messages.error(request.id, messages.METHOD_NOT_FOUND, text))
        return not self._is_broken

    def _initialize(self, id: str | int, request: Request) -> None:
        offered = request.params.get("protocolVersions")
        if not isinstance(offered, list) or messages.PROTOCOL_VERSION not in offered:
            text = f"protocolVersions: {offered!r} lacks {messages.PROTOCOL_VERSION}"
            self._answer(messages.error(id, messages.INVALID_PARAMS, text))
            return
        try:
            self._peer = peer_from(request.params)
        except ParameterError as failure:
            self._answer(messages.error(id, messages.INVALID_PARAMS, str(failure)))
            return
        self._answer(messages.result(id, self._plugin.described()))

    def _queue(self, id: str | int, request: Request) -> None:
        if self._peer is None:
            text = "initialize has not come yet; it is the first message"
            self._answer(messages.error(id, messages.INVALID_REQUEST, text))
            return
        try:
            command = _Command(id, delivery_from(request.params, self._peer))
        except ParameterError as failure:
            self._answer(messages.error(id, messages.INVALID_PARAMS, str(failure)))
            return
        with self._changed:
            if id in self._under_way or any(one.id == id for one in self._waiting):
                text = f"id: {id!r} is that of a command which is pending"
                self._answer(messages.error(id, messages.INVALID_REQUEST, text))
            elif self._all_are_stuck():
                self._conclude(command, _failed(self._stuck_text()))
                if self._clock.now() >= self._stuck_at + command.delivery.timeout:
                    say(f"{self._stuck_text()}: the link ends, so that the deliverer starts anew")
                    self._is_broken = True
            elif len(self._waiting) + len(self._under_way) >= self._plugin.in_flight:
                most = self._plugin.in_flight
                self._conclude(command, _failed(f"more than {most} pending; inFlight is {most}"))
            else:
                self._waiting.append(command)
                self._changed.notify_all()

    # ------------------------------------------------------------------ working

    def _work(self) -> None:
        while (command := self._next()) is not None:
            value = _outcome(self._plugin.deliver, command.delivery)
            with self._changed:
                if self._under_way.get(command.id) is command:
                    del self._under_way[command.id]
                    self._conclude(command, value)
                else:
                    self._stuck -= 1
                    say(f"a command that timed out ended later, as {value['outcome']}: dropped")
                self._changed.notify_all()

    def _next(self) -> _Command | None:
        """Take up a command; None once the link has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting)
            if self._is_closed:
                return None
            command = self._waiting.popleft()
            # The time of a command runs from here, not from its arrival (S2.3).
            command.deadline = self._clock.now() + command.delivery.timeout
            self._under_way[command.id] = command
            self._changed.notify_all()
            return command

    # ------------------------------------------------------------------ time

    def _time(self) -> None:
        with self._changed:
            while not self._is_closed:
                now = self._clock.now()
                self._expire(now)
                deadlines = [one.deadline for one in self._under_way.values()]
                self._clock.wait(self._changed, min(deadlines) - now if deadlines else None)

    def _expire(self, now: float) -> None:
        for command in [one for one in self._under_way.values() if one.deadline <= now]:
            del self._under_way[command.id]
            self._stuck, self._stuck_at = self._stuck + 1, now
            text = f"timed out: no result within {command.delivery.timeout:g} s"
            # Where it is full, the function is most likely at a write to it.
            cause = f"; {FULL_TEXT}" if STANDARD_ERROR.is_full() else ""
            self._conclude(command, _failed(text + cause))
            self._changed.notify_all()
            if self._all_are_stuck():
                say(f"{self._stuck_text()}: what follows is answered with an error at once")
                self._refuse_waiting()

    def _all_are_stuck(self) -> bool:
        return self._stuck >= self._plugin.in_flight

    def _stuck_text(self) -> str:
        return f"each of {self._stuck} in flight is still at a command that timed out"

    # ------------------------------------------------------------------ answers

    def _refuse_waiting(self) -> None:
        while self._waiting:
            self._conclude(self._waiting.popleft(), _failed(self._stuck_text()))

    def _conclude(self, command: _Command, value: dict[str, Any]) -> None:
        self._answer(messages.result(command.id, value))

    def _answer(self, line: bytes) -> None:
        with self._changed:
            if self._is_broken:
                return
            try:
                self._write(line)
            except OSError as failure:
                self._is_broken = True
                self._changed.notify_all()
                say(f"the deliverer has gone: {failure}")


def _outcome(deliver: Deliver, delivery: Delivery) -> dict[str, Any]:
    """Return the result of the answer."""
    try:
        deliver(delivery)
    except Refused as refused:
        return {"outcome": "fatal", "detail": messages.one_line(_text(refused))}
    except Retry as retry:
        value = _failed(_text(retry))
        if retry.after is not None:
            value["retryAfter"] = retry.after
        if retry.indication_only:
            value["refusesIndication"] = True
        return value
    except BaseException as failure:  # noqa: BLE001 - whatever it is, the command is answered
        STANDARD_ERROR.write(traceback.format_exc().encode("utf-8", "backslashreplace"))
        text = _text(failure)
        return _failed(f"{type(failure).__name__}: {text}" if text else type(failure).__name__)
    return {"outcome": "success"}


def _text(failure: BaseException) -> str:
    try:
        return str(failure)
    except Exception as error:  # noqa: BLE001 - __str__ is the plug-in's code, and a worker must go on
        return f"its text raises {type(error).__name__}"


def _failed(detail: str) -> dict[str, Any]:
    return {"outcome": "error", "detail": messages.one_line(detail)}
