"""The gateway's door over HTTPS."""

import json
import ssl
from typing import Any

import aiohttp

from pillion_cli.checking.ports import Reply
from pillion_operator.cluster.types import Object

#: Seconds beyond what the gateway was told to wait.
NETWORK = 10.0
#: Characters of an answer that are told.
SHOWN = 500


class HTTPSDoor:
    """The door at ``url``."""

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
            # The outer one shows what it was connected with, which tells nobody anything.
            raise OSError(str(error.os_error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OSError(str(error) or type(error).__name__) from error


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
