"""The listener for Prometheus and for the kubelet's probes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)

#: Says what is wrong, or None where nothing is.
Check: TypeAlias = Callable[[], str | None]


def telemetry_app(
    registry: CollectorRegistry, *, alive: Mapping[str, Check], ready: Mapping[str, Check]
) -> web.Application:
    """The application for ``/metrics``, ``/livez``, ``/readyz`` and ``/startupz``."""

    process = CollectorRegistry()
    ProcessCollector(registry=process)

    async def metrics(_request: web.Request) -> web.Response:
        # That reads /proc. The other reads what the event loop changes, so it stays there.
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
