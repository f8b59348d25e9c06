"""Celery's worker: each task posts one event, and is tried again a second after a failure."""

import json
import os
from pathlib import Path
from typing import Any

import requests
from celery import Celery

TIMEOUT, RETRY = 5, 1
URLS: dict[str, str] = json.loads(Path("urls.json").read_text(encoding="utf-8"))
app = Celery(broker=f"redis://127.0.0.1:{os.environ['REDIS_PORT']}/0")
app.conf.update(
    # Without it a task is gone when its worker is killed.
    task_acks_late=True,
    task_ignore_result=True,
    # How long the tasks of a killed worker are waited for; default: an hour.
    broker_transport_options={"visibility_timeout": 10},
)
session = requests.Session()


@app.task(name="deliver", bind=True, max_retries=None)  # type: ignore[untyped-decorator]
def deliver(self: Any, listener: str, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    try:
        answer = session.post(URLS[listener], body.encode(), headers=headers, timeout=TIMEOUT)
        answer.raise_for_status()
    except requests.RequestException as error:
        raise self.retry(exc=error, countdown=RETRY) from error
