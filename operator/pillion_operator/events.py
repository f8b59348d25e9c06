"""Kubernetes Events, as in ``kubectl describe``. Best effort: publishing never waits, and an Event
that the API server refuses is counted and dropped."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

from pillion_operator.clock import Clock, within
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.cluster.types import EVENT, Object
from pillion_operator.names import EVENT_CONTROLLER

logger = logging.getLogger("pillion.events")

MOST_WAITING = 1_000
#: Seconds before an Event repeats for an object, and maximum remembered Events.
REPEATED_AFTER = 3600.0
MOST_REMEMBERED = 10_000
#: Timeout of one write in seconds.
TIMEOUT = 10.0
#: The API server's limits: bytes of a note, characters of a reason, an action and an instance.
MOST_NOTE_BYTES = 1024
MOST_WORD = 128
CLUSTER_NAMESPACE = "default"

_Said = tuple[str, str, str, str, str, str]


class EventRecorder:
    """Publishes Events one by one in a coroutine of its own."""

    def __init__(
        self, api: Api, *, instance: str, clock: Clock, dropped: Callable[[], None]
    ) -> None:
        """``instance`` identifies this replica. ``dropped`` is called for each unpublished Event:
        too many wait, or the API server refuses it."""
        self._api = api
        self._instance = instance
        self._clock = clock
        self._dropped = dropped
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(MOST_WAITING)
        #: When each was last published; the oldest first.
        self._said: OrderedDict[_Said, float] = OrderedDict()

    def publish(self, regarding: Object, *, type: str, reason: str, note: str, action: str) -> None:
        """Queue an Event about an object or a reference to it (``apiVersion``, ``kind``,
        ``metadata``); the same one at most once an hour.

        ``type`` is ``Normal`` or ``Warning``; ``reason`` and ``action`` are CamelCase; ``note`` is
        cut at 1024 bytes.
        """
        event = self._event(regarding, type=type, reason=reason, note=note, action=action)
        about = event["regarding"]
        said = (about["kind"], about["namespace"], about["name"], about["uid"], reason, note)
        if not self._news(said):
            return
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            # It was not published, so it may be later.
            del self._said[said]
            self._dropped()

    async def run(self) -> NoReturn:
        while True:
            event = await self._waiting.get()
            try:
                await within(self._clock, TIMEOUT, self._api.create(event))
            except FAILURES as error:
                self._dropped()
                logger.info(
                    "an Event (%s) about %s %s was not published: %s",
                    event["reason"],
                    event["regarding"]["kind"],
                    event["regarding"]["name"],
                    str(error) or type(error).__name__,
                    extra={"event": "event-dropped"},
                )
            finally:
                self._waiting.task_done()

    async def drained(self) -> None:
        """Return once all queued Events are written or lost; ``run`` must run."""
        await self._waiting.join()

    def _news(self, said: _Said) -> bool:
        now = self._clock.monotonic()
        while self._said and next(iter(self._said.values())) + REPEATED_AFTER <= now:
            self._said.popitem(last=False)
        if said in self._said:
            return False
        if len(self._said) >= MOST_REMEMBERED:
            self._said.popitem(last=False)
        self._said[said] = now
        return True

    def _event(
        self, regarding: Object, *, type: str, reason: str, note: str, action: str
    ) -> dict[str, Any]:
        metadata = regarding["metadata"]
        moment = datetime.fromtimestamp(self._clock.time(), UTC).isoformat(timespec="microseconds")
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        text = "\n".join((self._instance, moment, namespace, name, reason, note))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            # Like client-go: the object's name and a unique suffix. The object's name may be as
            # long as an Event's.
            "metadata": {
                "name": f"{name[:230].rstrip('.-')}.{digest}",
                "namespace": namespace or CLUSTER_NAMESPACE,
            },
            "eventTime": moment.replace("+00:00", "Z"),
            "reportingController": EVENT_CONTROLLER,
            "reportingInstance": self._instance[:MOST_WORD],
            "type": type,
            "reason": reason[:MOST_WORD],
            "action": action[:MOST_WORD],
            "note": _bounded(note),
            "regarding": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "namespace": namespace,
                "name": name,
                "uid": metadata.get("uid", ""),
            },
        }


def _bounded(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= MOST_NOTE_BYTES:
        return note
    return encoded[: MOST_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"
