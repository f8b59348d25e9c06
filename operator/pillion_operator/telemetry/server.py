import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)

from pillion_operator.watching import SERVER_TIMEOUT

#: Returns a problem, or None.
Check: TypeAlias = Callable[[], str | None]
#: Seconds without an attempt to watch a kind after which its watch has stalled: longer than the API
#: server keeps one (SERVER_TIMEOUT).
STALLED_AFTER = 2.0 * SERVER_TIMEOUT


class WatchHealth:
    """Liveness: when each watch last began. An unreachable API server is no reason for a restart,
    because watches are retried."""

    def __init__(self, kinds: Iterable[str], *, monotonic: Callable[[], float]) -> None:
        """``kinds`` are plural names; each has ``STALLED_AFTER`` from now to begin."""
        self._monotonic = monotonic
        self._began = dict.fromkeys(kinds, monotonic())

    def began(self, kind: str) -> None:
        self._began[kind] = self._monotonic()

    def stalled(self, kind: str) -> bool:
        return self._monotonic() - self._began[kind] > STALLED_AFTER

    def problem(self) -> str | None:
        stalled = sorted(filter(self.stalled, self._began))
        if not stalled:
            return None
        return f"no watch of {', '.join(stalled)} has begun for {STALLED_AFTER:.0f} s"


def telemetry_app(
    registry: CollectorRegistry, *, alive: Mapping[str, Check], ready: Mapping[str, Check]
) -> web.Application:
    """``/metrics``, ``/livez``, ``/readyz`` and ``/startupz``."""

    process = CollectorRegistry()
    ProcessCollector(registry=process)

    async def metrics(_request: web.Request) -> web.Response:
        # This one reads /proc; the other reads state of the event loop, so it stays there.
        text = await asyncio.to_thread(generate_latest, process)
        text += generate_latest(registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/livez", _probe(alive))
    app.router.add_get("/readyz", _probe(ready))
    app.router.add_get("/startupz", _probe({}))
    return app


def _probe(checks: Mapping[str, Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        problems = {name: problem for name, check in checks.items() if (problem := check())}
        told = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        return web.Response(text=f"{told or 'ok'}\n", status=503 if problems else 200)

    return answer
