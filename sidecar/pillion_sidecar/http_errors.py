"""HTTP answers that refuse a request: JSON with a ``reason``."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web

from pillion_sidecar.query_parameters import MOST_SHOWN, suggest

_ANY = "*"


def refuse(status: int, reason: str, **more: Any) -> web.Response:
    """Answer a request that was not taken up at all."""
    return web.json_response({"reason": reason, **more}, status=status)


def unavailable(reason: str, *, retry_after: float) -> web.Response:
    """Answer 503: the request is valid, but cannot be served now."""
    response = refuse(503, reason)
    set_retry_after(response, retry_after)
    return response


def set_retry_after(response: web.StreamResponse, seconds: float) -> None:
    """Ask the client to wait, in whole seconds, at least one."""
    response.headers["Retry-After"] = str(max(1, math.ceil(seconds)))


def answer_the_rest(listeners: Mapping[str, web.Application]) -> None:
    """Have each listener's application, by the listener's name, answer 404 and 405 with a reason.

    A last route, and no middleware: a request that is served costs nothing more. Call it once all
    other routes are added.
    """
    served = {name: _Served(app) for name, app in listeners.items()}
    for name, app in listeners.items():
        app.router.add_route(_ANY, "/{rest:(?s:.*)}", _Rest(name, served).answer)


class _Served:
    """The paths of an application, with their methods."""

    def __init__(self, app: web.Application) -> None:
        self._methods = {
            resource: sorted({route.method for route in resource})
            for resource in app.router.resources()
        }
        self.paths = sorted({resource.canonical for resource in self._methods})

    def methods(self, path: str) -> list[str]:
        """The methods by which a path is served; empty: it is not served."""
        found: set[str] = set()
        for resource, methods in self._methods.items():
            info = resource.get_info()
            pattern = info.get("pattern")
            if info.get("path") == path or (pattern is not None and pattern.fullmatch(path)):
                found.update(methods)
        return sorted(found)


class _Rest:
    def __init__(self, name: str, served: Mapping[str, _Served]) -> None:
        self._name = name
        self._served = served

    async def answer(self, request: web.Request) -> web.Response:
        methods = self._served[self._name].methods(request.path)
        if methods:
            allowed = ", ".join(methods)
            reason = f"{_shown(request)} is not served by {request.method:.20}; use {allowed}"
            answer = refuse(HTTPStatus.METHOD_NOT_ALLOWED, reason)
            answer.headers["Allow"] = allowed
            return answer
        return refuse(HTTPStatus.NOT_FOUND, self._reason(request))

    def _reason(self, request: web.Request) -> str:
        here = f"the {self._name} listener serves no {_shown(request)}"
        others = [name for name, served in self._served.items() if served.methods(request.path)]
        if others:
            return f"{here}; ask the {others[0]} listener (--{others[0]})"
        return f"{here}; {suggest(request.path, self._served[self._name].paths)}"


def _shown(request: web.Request) -> str:
    return repr(request.path[:MOST_SHOWN])
