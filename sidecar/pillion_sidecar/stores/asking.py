"""Asks a store, and waits, in a coroutine."""

import asyncio

from pillion_sidecar.clock import Timers
from pillion_sidecar.stores.messages import Request
from pillion_sidecar.stores.ports import Answer, Transport


async def ask(transport: Transport, store: str, request: Request) -> Answer:
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def take(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    transport.send(store, request, take)
    return await answered


async def sleep(timers: Timers, seconds: float) -> None:
    due = asyncio.Event()
    timer = timers.call_later(seconds, due.set)
    try:
        await due.wait()
    finally:
        timer.cancel()
