"""arq with Redis: one worker with the default of ten jobs at a time, one job for each event."""

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import programs, redis_server
from benchmarks.peers.events import Event
from benchmarks.peers.peer import WORKERS, WithLibraries


class ArqWorker(WithLibraries):
    name = "arq, Redis"

    def missing(self) -> str | None:
        return redis_server.missing()

    def start(self) -> None:
        redis_server.start(self.port, self.processes)
        settings = "arq_worker.WorkerSettings"
        environment = {"PYTHONPATH": str(WORKERS), "REDIS_PORT": self.address}
        self.processes.start([str(programs.PYTHON), "-m", "arq", settings], environment)


class Sender:
    """Enqueues jobs, some at a time."""

    batch = 32

    def __init__(self, address: str) -> None:
        self._port = int(address)
        self._pool: Any = None

    async def send(self, events: Sequence[Event]) -> None:
        from arq import create_pool
        from arq.connections import RedisSettings

        if self._pool is None:
            self._pool = await create_pool(RedisSettings(port=self._port, conn_retries=0))
        jobs = (
            self._pool.enqueue_job("deliver", one.listener, one.body.decode()) for one in events
        )
        await asyncio.gather(*jobs)

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.aclose()
