"""arq's worker: each job posts one event, and is tried again a second after a failure."""

import json
import os
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout
from arq import Retry
from arq.connections import RedisSettings

TIMEOUT, RETRY = 5, 1
URLS: dict[str, str] = json.loads(Path("urls.json").read_text(encoding="utf-8"))


async def start(context: dict[str, Any]) -> None:
    context["session"] = ClientSession(timeout=ClientTimeout(total=TIMEOUT))


async def end(context: dict[str, Any]) -> None:
    await context["session"].close()


async def deliver(context: dict[str, Any], listener: str, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    try:
        async with context["session"].post(
            URLS[listener], data=body.encode(), headers=headers
        ) as response:
            response.raise_for_status()
    except (TimeoutError, ClientError) as error:
        raise Retry(defer=RETRY) from error


class WorkerSettings:
    functions = (deliver,)
    on_startup = start
    on_shutdown = end
    redis_settings = RedisSettings(port=int(os.environ["REDIS_PORT"]))
    max_tries = 10_000
    keep_result = 0
    #: How long a job whose worker was killed is waited for, with ten seconds more; default: 300.
    job_timeout = TIMEOUT + 1
