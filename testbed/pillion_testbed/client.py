"""The API server for helpers that run on an event loop: requests, and a watch that mends itself."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from pillion_testbed.rest import Refused

#: Seconds until a broken watch is begun anew.
PAUSE = 0.1
#: Bytes of one object at most, as JSON.
LARGEST = 8 * 2**20

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
#: Follows, with the whole list, the objects that are there when a watch begins.
SYNCED = "SYNCED"


class Client:
    """The API server as one user."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = JSON
    ) -> Any:
        """Return the JSON that the server answers; Refused for an error status."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        async with self._session.request(
            method, self._server + path, data=data, headers=headers
        ) as answer:
            if answer.status >= 400:
                raise Refused(answer.status, await answer.text())
            return await answer.json()

    async def events(self, path: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield ADDED, MODIFIED and DELETED with objects of the list at ``path``, for ever.

        After a break all that is there is ADDED again, and then SYNCED.
        """
        while True:
            try:
                async for event in self._watch(path):
                    yield event
            except (aiohttp.ClientError, TimeoutError, OSError):
                await asyncio.sleep(PAUSE)

    async def _watch(self, path: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        url = self._server + path
        async with self._session.get(url) as answer:
            answer.raise_for_status()
            page = await answer.json()
        for item in page["items"]:
            yield "ADDED", item
        yield SYNCED, page
        parameters = {"watch": "1", "resourceVersion": page["metadata"]["resourceVersion"]}
        async with self._session.get(url, params=parameters) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":  # its history is gone: list again
                    return
                yield event["type"], event["object"]


@asynccontextmanager
async def client_of(server: str, *, ca: Path, token: str) -> AsyncIterator[Client]:
    """Return a client of the API server at a URL."""
    context = await asyncio.to_thread(ssl.create_default_context, cafile=ca)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context),
        headers={"Authorization": f"Bearer {token}"},
        timeout=aiohttp.ClientTimeout(total=None, connect=10),
        read_bufsize=LARGEST,
    ) as session:
        yield Client(server, session)
