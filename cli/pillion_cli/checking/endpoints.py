"""The two ends of a check: the gateway over HTTPS, and a listener in the same process."""

import asyncio
import json
import ssl
from collections import defaultdict
from typing import Any

import aiohttp

from pillion_cli.checking.check import Reply
from pillion_cli.listener.arrival import Arrival
from pillion_cli.listener.report import Summary
from pillion_cli.listener.sequence import Outcome
from pillion_operator.cluster.types import Object

#: Seconds beyond the timeout of the request.
NETWORK = 10.0
#: Characters of an answer that are shown.
SHOWN = 500


class HTTPSGateway:
    def __init__(self, url: str) -> None:
        self._url = url

    async def publish(
        self, indication: Object, *, ca: str, token: str | None, wait: float
    ) -> Reply:
        """Publish, and wait at most ``wait`` seconds until it is delivered."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        limit = aiohttp.ClientTimeout(total=wait + NETWORK)
        try:
            context = ssl.create_default_context(cadata=ca)
            # RFC 9525 6.3: a name counts in subjectAltName only.
            context.hostname_checks_common_name = False
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.post(
                    f"{self._url}/v1/indications",
                    params={"ack": "delivered", "timeout": f"{wait:g}"},
                    json=dict(indication),
                    headers=headers,
                    ssl=context,
                    allow_redirects=False,
                ) as answer,
            ):
                text = await answer.text(errors="replace")
                return Reply(status=answer.status, text=text[:SHOWN], document=_document(text))
        except aiohttp.ClientConnectorError as error:
            # The outer error shows only the connection's key.
            raise OSError(str(error.os_error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OSError(str(error) or type(error).__name__) from error


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Arrived:
    """A listener's reporter that a check can wait on."""

    def __init__(self) -> None:
        # A check publishes only a few indications.
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def arrived(self, identifier: str) -> None:
        await self._events[identifier].wait()

    def started(self, url: str) -> None:
        pass

    def happened(self, outcome: Outcome[Arrival]) -> None:
        identifier = outcome.item.text("IndicationIdentifier")
        if identifier is not None:
            self._events[identifier].set()

    def answered(self, what: str, *, path: str) -> None:
        pass

    def ended(self, summary: Summary) -> None:
        pass
