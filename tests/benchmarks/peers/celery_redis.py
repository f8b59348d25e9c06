"""Celery with Redis: a worker with its default pool, a process for each core; a task an event."""

from collections.abc import Sequence
from typing import Any

from benchmarks.peers import programs, redis_server
from benchmarks.peers.events import Event
from benchmarks.peers.peer import WORKERS, WithLibraries


class CeleryWorker(WithLibraries):
    name = "Celery, Redis"

    def missing(self) -> str | None:
        return redis_server.missing()

    def start(self) -> None:
        redis_server.start(self.port, self.processes)
        command = [str(programs.PYTHON), "-m", "celery", "--app", "celery_worker", "worker"]
        environment = {"PYTHONPATH": str(WORKERS), "REDIS_PORT": self.address}
        self.processes.start([*command, "--loglevel", "WARNING"], environment)


class Sender:
    """Sends tasks, one after the other."""

    batch = 16

    def __init__(self, address: str) -> None:
        self._url = f"redis://127.0.0.1:{address}/0"
        self._app: Any = None

    async def send(self, events: Sequence[Event]) -> None:
        from celery import Celery

        if self._app is None:
            self._app = Celery(broker=self._url)
        for one in events:
            arguments = (one.listener, one.body.decode())
            self._app.send_task("deliver", arguments, retry=False, ignore_result=True)

    async def close(self) -> None:
        if self._app is not None:
            app, self._app = self._app, None
            app.close()
