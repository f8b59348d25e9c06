"""The console over an administration API that answers what a test says."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from aiohttp import web

from pillion_sidecar.console.routes import add_console_routes
from pillion_sidecar.wire.queues import (
    QueueDetails,
    QueuePage,
    QueueStatus,
    json_bytes,
    written,
)
from support.resources import JSON
from support.served import served


class ScriptedApi:
    """Its attributes may be set from any thread."""

    def __init__(self) -> None:
        self.url = ""
        self.queues: list[JSON] = []
        self.outcomes: list[JSON] = []
        #: Members of the answer about what waits.
        self.pending: list[JSON] = []
        self.unread = 0
        #: Members of the first page.
        self.page: JSON = {}
        #: What every request of data is refused with; None: it is answered.
        self.refusal: HTTPStatus | None = None
        #: Answers about queues.
        self.answered = 0

    def show(self, *queues: QueueStatus, **members: Any) -> None:
        """Answer with these queues; ``members`` are put into each of them."""
        page = json.loads(json_bytes(QueuePage(queues=list(queues), next=None)))
        self.queues = [{**queue, **members} for queue in page["queues"]]

    def application(self) -> web.Application:
        app = web.Application()
        add_console_routes(app, has_root=True)
        app.router.add_get("/v1/queues", self._list)
        app.router.add_get("/v1/queues/{name}", self._show)
        app.router.add_get("/v1/outcomes", self._outcomes)
        app.router.add_get("/v1/pending", self._pending)
        return app

    def _refused(self) -> web.Response | None:
        if self.refusal is None:
            return None
        return web.json_response({"reason": self.refusal.phrase}, status=self.refusal)

    async def _list(self, request: web.Request) -> web.Response:
        if refused := self._refused():
            return refused
        begin, limit = int(request.query.get("after", "0")), int(request.query["limit"])
        found = self.queues[begin : begin + limit]
        following = str(begin + limit) if begin + limit < len(self.queues) else None
        if following is None:
            self.answered += 1
        page = {"revision": "r1", "queues": found, "next": following, **self.page}
        return web.json_response(page)

    async def _show(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = [queue for queue in self.queues if queue["name"] == name]
        if not found:
            reason = f"no destination queue named {name!r}"
            return web.json_response({"reason": reason}, status=404)
        self.answered += 1
        usual = written(QueueDetails(name="x", depth=0, capacity=1, high_water=0))
        return web.json_response({**usual, **found[0]})

    async def _pending(self, request: web.Request) -> web.Response:
        if refused := self._refused():
            return refused
        identifier = request.query["identifier"]
        found = [one for one in self.pending if one["identifier"] == identifier]
        return web.json_response({"pending": found, "unread": self.unread, "remembered": False})

    async def _outcomes(self, request: web.Request) -> web.Response:
        after = int(request.query["after"])
        wanted = {
            name: value
            for name, value in request.query.items()
            if name in ("identifier", "destination", "result")
        }
        found = [
            {name: value for name, value in one.items() if name != "indication"}
            if "indication" not in request.query
            else one
            for one in self.outcomes
            if one["number"] > after
            and all(one.get(name) == value for name, value in wanted.items())
        ]
        last = max((one["number"] for one in self.outcomes), default=0)
        headers = {
            "Pillion-History": "h1",
            "Pillion-Next-After": str(last),
            "Pillion-More": "false",
        }
        text = "".join(json.dumps(one) + "\n" for one in found)
        return web.Response(text=text, content_type="application/x-ndjson", headers=headers)


@contextmanager
def scripted_api() -> Iterator[ScriptedApi]:
    """Serve it in a thread while the context lasts."""
    api = ScriptedApi()
    with served(api.application) as api.url:
        yield api
