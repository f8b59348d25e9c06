"""The listener over HTTP: any path accepts indications; ``/-/`` controls the listener.

A request is answered after the seven rules (D.5) have judged its indication, and with success for
every verdict, as by a real listener: a duplicate must not be sent again.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace

from aiohttp import web

from pillion_cim.schema import Schema
from pillion_cli.exits import CLIError
from pillion_cli.listener.arrivals import (
    MOST_AT_ONCE,
    Arrival,
    ArrivalError,
    Arrivals,
    Export,
    ExportRefusedError,
    Reporter,
    Summary,
    read_cloud_events,
    read_export,
)
from pillion_cli.listener.sequence import Outcome, Sequencer
from pillion_sidecar.clock import Clock, Timer, Timers

#: Seconds: longer than any deliverer waits.
LONGEST_WAIT = 86_400.0


class BehaviourError(CLIError, ValueError):
    """The message names field, value and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The injected faults. The first that is set of ``hang``, ``close``, ``garbage``, ``redirect``,
    ``cim_error`` and ``status`` decides; ``fail`` alone means status 503."""

    #: Number of requests with a fault; None: all.
    fail: int | None = None
    #: HTTP status of the answer. Below 300 the indication is accepted.
    status: int | None = None
    #: Retry-After of an answer with ``status`` (seconds).
    retry_after: int | None = None
    #: Read the request and never answer.
    hang: bool = False
    #: Accept the indication and close the connection without an answer.
    close: bool = False
    #: Answer with bytes that are not HTTP.
    garbage: bool = False
    #: CIM status code of an export response.
    cim_error: int | None = None
    #: Answer with 307 to this URL.
    redirect: str | None = None
    #: Seconds before any answer, a successful one too.
    delay: float = 0.0

    def __post_init__(self) -> None:
        _check_range("fail", self.fail, 0, 10**9, "a number of requests")
        _check_range("status", self.status, 200, 599, "a status of HTTP")
        _check_range("retry_after", self.retry_after, 0, int(LONGEST_WAIT), "seconds")
        _check_range("cim_error", self.cim_error, 1, 65535, "a CIM status code")
        for field in ("hang", "close", "garbage"):
            if not isinstance(getattr(self, field), bool):
                raise BehaviourError(f"{field}: {getattr(self, field)!r} is neither true nor false")
        if self.redirect is not None and not _is_url(self.redirect):
            raise BehaviourError(f"redirect: {self.redirect!r} is no URL; give http://HOST/PATH")
        if type(self.delay) not in (int, float) or not 0 <= self.delay <= LONGEST_WAIT:
            raise BehaviourError(f"delay: {self.delay!r} is not seconds from 0 to 86400")

    @property
    def is_bad(self) -> bool:
        special = self.hang or self.close or self.garbage or self.redirect is not None
        told = self.cim_error is not None or self.status is not None
        return self.fail != 0 and (special or told or self.fail is not None)

    def after_one(self) -> "Behaviour":
        return self if self.fail is None else replace(self, fail=max(0, self.fail - 1))

    def changed(self, changes: object) -> "Behaviour":
        """Raises BehaviourError."""
        if not isinstance(changes, Mapping):
            raise BehaviourError('give an object, such as {"status": 503, "fail": 3}')
        known = asdict(self)
        for field in changes:
            if field not in known:
                raise BehaviourError(f"there is no field {field!r}; there are {', '.join(known)}")
        return Behaviour(**changes)


def _check_range(field: str, value: object, low: int, high: int, what: str) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BehaviourError(f"{field}: {value!r} is not {what} from {low} to {high}")


def _is_url(value: object) -> bool:
    return (
        isinstance(value, str)
        and value.startswith(("http://", "https://"))
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )


MAX_BODY = 4 * 1024 * 1024

#: Seconds for requests in progress at the end.
GRACE = 2.0

_CLOUD_EVENT = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"
_EVENTS = (_CLOUD_EVENT, _BATCH)
_GARBAGE = b"\x16\x03\x01 this is no HTTP\r\n\r\n"


class Listener:
    """``finished`` is set after ``count`` delivered indications; ``/-/arrivals`` returns the last
    ``keep``."""

    def __init__(
        self,
        *,
        schema: Schema,
        clock: Clock,
        timers: Timers,
        reporter: Reporter,
        sequencer: Sequencer[Arrival],
        behaviour: Behaviour,
        count: int | None = None,
        keep: int = 0,
    ) -> None:
        self._schema = schema
        self._clock = clock
        self._timers = timers
        self._reporter = reporter
        self._sequencer = sequencer
        self._count = count
        self._arrivals = Arrivals(keep=keep)
        self._armed: Timer | None = None
        self._closing = asyncio.Event()
        self.behaviour = behaviour
        self.summary = Summary()
        self.finished = asyncio.Event()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MAX_BODY)
        application.router.add_get("/-/behaviour", self._show_behaviour)
        application.router.add_post("/-/behaviour", self._change_behaviour)
        application.router.add_get("/-/summary", self._show_summary)
        application.router.add_get("/-/arrivals", self._show_arrivals)
        application.router.add_post("/{path:.*}", self._receive)
        application.on_shutdown.append(self._shut_down)
        return application

    def end(self) -> None:
        self._report(self._sequencer.flush())
        if self._armed is not None:
            self._armed.cancel()
        self._reporter.ended(self.summary)

    # --- indications

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        encoding = request.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            answer = web.Response(status=415, text="send the body as it is, without compression\n")
            return self._wrong(request, answer, f"415: Content-Encoding {encoding:.40}")
        body = await request.read()
        behaviour = self.behaviour
        if behaviour.is_bad:
            self.behaviour = behaviour.after_one()
        if behaviour.delay and not await self._wait(behaviour.delay):
            return web.Response(status=503, text="the listener ends\n")
        try:
            if behaviour.is_bad:
                return await self._misbehave(behaviour, request, body)
            return self._take(request, body)
        except ArrivalError as error:
            answer = web.Response(status=400, text=f"{error}\n")
            return self._wrong(request, answer, f"400: {error}")
        except ExportRefusedError as error:
            return self._wrong(request, error.answer, str(error))

    def _take(self, request: web.Request, body: bytes) -> web.StreamResponse:
        if request.content_type in _EVENTS:
            is_batch = request.content_type == _BATCH
            for arrival in read_cloud_events(body, is_batch=is_batch, path=request.path):
                self._accept(request, arrival)
            return web.Response(status=204)
        if request.content_type == "application/json":
            text = f"this listener takes CIM-XML and CloudEvents ({', '.join(_EVENTS)})\n"
            answer = web.Response(status=415, text=text)
            return self._wrong(request, answer, "415: neither CIM-XML nor CloudEvents")
        export = self._read_export(request, body)
        self._accept(request, export.arrival)
        return export.success()

    def _read_export(self, request: web.Request, body: bytes) -> Export:
        return read_export(request.headers, body, schema=self._schema, path=request.path)

    def _accept(self, request: web.Request, arrival: Arrival) -> None:
        identifier = arrival.sequence()
        now = self._clock.monotonic()
        self.summary.received += 1
        sender = (request.remote, request.path)
        self._report(self._sequencer.receive(sender, arrival, identifier, now=now))
        self._arm()

    def _report(self, outcomes: list[Outcome[Arrival]]) -> None:
        for outcome in outcomes:
            self.summary.add(outcome)
            self._arrivals.add(outcome)
            self._reporter.happened(outcome)
        self.summary.held = self._sequencer.held
        if self._count is not None and self.summary.delivered >= self._count:
            self.finished.set()

    def _wrong(self, request: web.Request, answer: web.Response, what: str) -> web.Response:
        self.summary.wrong += 1
        self._reporter.answered(what, path=request.path)
        return answer

    # --- the ends of lifetimes

    def _arm(self) -> None:
        due = self._sequencer.next_due()
        if self._armed is not None:
            if self._armed.due == due and not self._armed.cancelled:
                return
            self._armed.cancel()
        self._armed = None if due is None else self._timers.call_at(due, self._expire)

    def _expire(self) -> None:
        self._report(self._sequencer.expire(self._clock.monotonic()))
        self._arm()

    # --- bad behaviour

    async def _misbehave(
        self, behaviour: Behaviour, request: web.Request, body: bytes
    ) -> web.StreamResponse:
        self.summary.refused += 1
        if behaviour.hang:
            self._reporter.answered("nothing, as told", path=request.path)
            await self._closing.wait()
            return self._hung_up(request)
        if behaviour.close:
            self._reporter.answered("nothing, and closed, as told", path=request.path)
            self._take(request, body)
            return self._hung_up(request)
        if behaviour.garbage:
            self._reporter.answered("garbage, as told", path=request.path)
            return self._hung_up(request, _GARBAGE)
        return self._answer_badly(behaviour, request, body)

    def _answer_badly(
        self, behaviour: Behaviour, request: web.Request, body: bytes
    ) -> web.StreamResponse:
        answer: web.StreamResponse
        if behaviour.redirect is not None:
            headers = {"Location": behaviour.redirect}
            answer = web.Response(status=307, headers=headers)
        elif behaviour.cim_error is not None and request.content_type not in _EVENTS:
            export = self._read_export(request, body)
            answer = export.failure(behaviour.cim_error, "as the listener was told")
            self._reporter.answered(f"CIM error {behaviour.cim_error}, as told", path=request.path)
            return answer
        else:
            status = behaviour.status or (503 if behaviour.cim_error is None else 500)
            if status < 300:
                self._take(request, body)
            answer = web.Response(status=status)
            if behaviour.retry_after is not None:
                answer.headers["Retry-After"] = str(behaviour.retry_after)
        self._reporter.answered(f"{answer.status}, as told", path=request.path)
        return answer

    def _hung_up(self, request: web.Request, last: bytes = b"") -> web.StreamResponse:
        """The returned response is not sent."""
        if request.transport is not None:
            request.transport.write(last)
            request.transport.close()
        return web.Response()

    async def _wait(self, seconds: float) -> bool:
        """False if the listener ended before."""
        over = asyncio.Event()
        timer = self._timers.call_later(seconds, over.set)
        waits = [asyncio.ensure_future(event.wait()) for event in (over, self._closing)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            for wait in waits:
                wait.cancel()
        return over.is_set()

    async def _shut_down(self, _application: web.Application) -> None:
        self._closing.set()

    # --- control

    async def _show_behaviour(self, _request: web.Request) -> web.Response:
        return web.json_response(asdict(self.behaviour))

    async def _change_behaviour(self, request: web.Request) -> web.Response:
        try:
            self.behaviour = self.behaviour.changed(json.loads(await request.read() or b"{}"))
        except (BehaviourError, ValueError, RecursionError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(asdict(self.behaviour))

    async def _show_summary(self, _request: web.Request) -> web.Response:
        return web.json_response(asdict(self.summary))

    async def _show_arrivals(self, request: web.Request) -> web.Response:
        asked = {"after": 0, "limit": MOST_AT_ONCE}
        for name in asked:
            text = request.query.get(name, str(asked[name]))
            # int() takes more than digits, and is slow for long ones.
            if not (text.isascii() and text.isdigit() and len(text) < 16):
                return web.json_response({"error": f"{name}: {text!r} is no count"}, status=400)
            asked[name] = int(text)
        body = self._arrivals.after(asked["after"], limit=asked["limit"])
        return web.Response(body=body, content_type="application/x-ndjson")


class ListenError(CLIError): ...


@asynccontextmanager
async def serve(
    listener: Listener, *, address: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """The context yields the URL. Port 0 takes a free port. Raises ListenError."""
    runner = web.AppRunner(
        listener.application(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=GRACE,
        auto_decompress=False,
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address, port, ssl_context=tls).start()
        except OSError as error:
            raise ListenError(error.strerror or str(error)) from error
        host, bound = runner.addresses[0][:2]
        shown = f"[{host}]" if ":" in host else host
        yield f"{'http' if tls is None else 'https'}://{shown}:{bound}"
    finally:
        await runner.cleanup()
