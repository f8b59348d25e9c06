"""Kubernetes Events: what an administrator sees in ``kubectl describe``.

They are a courtesy: whoever publishes one never waits for it, and where the API server does not
take it, it is counted and gone.
"""

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

#: Events that may wait to be written.
MOST_WAITING = 1_000
#: Seconds for which the same is not said again of an object, and how many are remembered.
REPEATED_AFTER = 3600.0
MOST_REMEMBERED = 10_000
#: Seconds until an attempt to write one is given up.
TIMEOUT = 10.0
#: The API server's bounds: bytes of a note, characters of a reason, an action and an instance.
MOST_NOTE_BYTES = 1024
MOST_WORD = 128
#: The namespace of Events about objects that have none.
CLUSTER_NAMESPACE = "default"

_Said = tuple[str, str, str, str, str, str]


class EventRecorder:
    """Publishes Events, one after the other, in a coroutine of its own."""

    def __init__(
        self,
        api: Api,
        *,
        instance: str,
        clock: Clock,
        dropped: Callable[[], None],
    ) -> None:
        """``instance`` is this process among its replicas. ``dropped`` is called for each Event
        that is not published: too many wait, or the API server does not take it.
        """
        self._api = api
        self._instance = instance
        self._clock = clock
        self._dropped = dropped
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(MOST_WAITING)
        #: When what was said; the oldest first.
        self._said: OrderedDict[_Said, float] = OrderedDict()

    def publish(self, regarding: Object, *, type: str, reason: str, note: str, action: str) -> None:
        """Have an Event about an object published soon. The same about it is said once an hour.

        ``type`` is ``Normal`` or ``Warning``; ``reason`` and ``action`` are CamelCase words; of
        ``note`` 1024 bytes are kept. ``regarding`` is an object, or its reference: ``apiVersion``,
        ``kind`` and ``metadata``.
        """
        event = self._event(regarding, type=type, reason=reason, note=note, action=action)
        about = event["regarding"]
        said = (about["kind"], about["namespace"], about["name"], about["uid"], reason, note)
        if not self._news(said):
            return
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            # It was not said, so it may be said later.
            del self._said[said]
            self._dropped()

    async def run(self) -> NoReturn:
        while True:
            event = await self._waiting.get()
            try:
                await self._write(event)
            finally:
                self._waiting.task_done()

    async def drained(self) -> None:
        """Return once everything that was published has been written or lost; ``run`` must run."""
        await self._waiting.join()

    async def _write(self, event: Object) -> None:
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
            # Like client-go's: the object's name, and something that makes it one of its own. An
            # object's name may be as long as an Event's.
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
