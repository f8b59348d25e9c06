"""A worker of JetStream: for each listener a durable consumer, and a task that posts its events one
after the other. ``nats_worker.py PORT``
"""

import asyncio
import json
import sys
from pathlib import Path

import nats
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig

TIMEOUT, RETRY = 5, 1
URLS: dict[str, str] = json.loads(Path("urls.json").read_text(encoding="utf-8"))
#: Events that are asked for at a time.
FETCH = 64


async def main(port: int) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = client.jetstream()
    await stream.add_stream(name="events", subjects=["events.>"])
    async with ClientSession(
        timeout=ClientTimeout(total=TIMEOUT), connector=TCPConnector(limit=0)
    ) as session:
        await asyncio.gather(*(push(stream, session, *one) for one in URLS.items()))


async def push(stream: JetStreamContext, session: ClientSession, name: str, url: str) -> None:
    """Post what comes for one listener."""
    # How long an event whose worker was killed is waited for; default: 30 s.
    config = ConsumerConfig(ack_wait=2 * TIMEOUT)
    consumer = await stream.pull_subscribe(f"events.{name}", durable=name, config=config)
    while True:
        try:
            fetched = await consumer.fetch(FETCH, timeout=30)
        except nats.errors.TimeoutError:
            continue
        for message in fetched:
            await post(session, url, message)


async def post(session: ClientSession, url: str, message: Msg) -> None:
    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(url, data=message.data, headers=headers) as response:
            response.raise_for_status()
    except (TimeoutError, ClientError):
        await message.nak(delay=RETRY)
    else:
        await message.ack()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
