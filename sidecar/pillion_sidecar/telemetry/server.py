"""The telemetry listener: scrape and probes. It depends on nothing remote."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from aiohttp import web

from pillion_sidecar.telemetry.exposition import CONTENT_TYPE
from pillion_sidecar.telemetry.process import process_metrics

#: Bytes of a write: under a millisecond of work.
WRITE_SIZE = 65_536
#: Concurrent scrapes, and seconds for one.
MOST_SCRAPES = 4
SCRAPE_SECONDS = 30.0

#: Returns the problem, or None.
Check: TypeAlias = Callable[[], str | None]


def telemetry_app(
    *,
    exposition: Callable[[], Iterator[str]],
    startup: Mapping[str, Check],
    readiness: Mapping[str, Check],
) -> web.Application:
    """Return the application for ``/metrics``, ``/livez``, ``/readyz`` and ``/startupz``.

    ``startup``: intake listens. A missing configuration does not fail it: it may arrive late, and a
    restart would not help. ``readiness``: a configuration is loaded and intake is open.
    """
    scrape = Scrape(exposition=exposition, process=process_metrics)
    app = web.Application()
    app.router.add_get("/metrics", scrape.answer)
    app.router.add_get("/livez", Probe({}).answer)
    app.router.add_get("/startupz", Probe(startup).answer)
    app.router.add_get("/readyz", Probe(readiness).answer)
    return app


class Scrape:
    """``GET /metrics``, streamed; the event loop runs between pieces."""

    def __init__(
        self, *, exposition: Callable[[], Iterator[str]], process: Callable[[], bytes]
    ) -> None:
        """``process`` reads ``/proc``, in a thread."""
        self._exposition = exposition
        self._process = process
        self._under_way = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self._under_way >= MOST_SCRAPES:
            return web.Response(status=503, text="too many scrapes at a time\n")
        self._under_way += 1
        try:
            # A client that does not read would keep one of few connections.
            async with asyncio.timeout(SCRAPE_SECONDS):
                return await self._write(request)
        finally:
            self._under_way -= 1

    async def _write(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        process = await asyncio.to_thread(self._process)
        await response.prepare(request)
        await response.write(process)
        for piece in _gathered(self._exposition()):
            await response.write(piece)
            await asyncio.sleep(0)
        await response.write_eof()
        return response


def _gathered(pieces: Iterable[str]) -> Iterator[bytes]:
    """Join small pieces: a write costs as much as a few kilobytes of samples."""
    held: list[str] = []
    weight = 0
    for piece in pieces:
        held.append(piece)
        weight += len(piece)
        if weight >= WRITE_SIZE:
            yield "".join(held).encode()
            held, weight = [], 0
    yield "".join(held).encode()


class Probe:
    """One health endpoint: 200 if all checks pass, else 503. ``?verbose`` answers JSON with every
    check."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks

    async def answer(self, request: web.Request) -> web.Response:
        problems = {name: check() for name, check in self._checks.items()}
        healthy = not any(problems.values())
        status = 200 if healthy else 503
        if "verbose" in request.query:
            checks = {
                name: {"healthy": problem is None, "detail": problem or "ok"}
                for name, problem in problems.items()
            }
            return web.json_response({"healthy": healthy, "checks": checks}, status=status)
        failed = "; ".join(f"{name}: {text}" for name, text in problems.items() if text)
        return web.Response(text=f"{failed or 'ok'}\n", status=status)
