"""Writes statuses: only what differs, conditions at once, what merely moves now and then."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api, NotFound
from pillion_operator.cluster.types import Object, our_type
from pillion_operator.reconciling.ports import Recorder
from pillion_operator.reconciling.transitions import transitions
from pillion_operator.status.conditions import Condition, rfc3339, set_conditions
from pillion_operator.status.writing import Later, changes
from pillion_operator.store import Change, Key, Store, key_of


class StatusWriter:
    """Writes the status of Pillion's own kinds."""

    def __init__(
        self,
        *,
        api: Api,
        store: Store,
        recorder: Recorder,
        clock: Clock,
        come_again: Callable[[Key, float], None],
    ) -> None:
        """``come_again`` has a key reconciled again after so many seconds."""
        self._api = api
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._come_again = come_again
        #: When each status was last written, on the monotonic clock.
        self._written: dict[Key, float] = {}

    def follow(self, change: Change) -> None:
        """Forget what is gone."""
        if change.after is None:
            self._written.pop(change.key, None)

    async def write(
        self,
        body: Object,
        conditions: Sequence[Condition],
        fields: Mapping[str, Any],
        *,
        again_as: Key | None = None,
    ) -> None:
        """Have the status say so. ``again_as`` is the key to come again with, if not its own."""
        key = key_of(body)
        live: Mapping[str, Any] = body.get("status") or {}
        generation = body["metadata"]["generation"]
        wanted = {
            "observedGeneration": generation,
            "conditions": set_conditions(
                live.get("conditions") or (),
                conditions,
                generation=generation,
                now=rfc3339(self._clock.time()),
            ),
            **fields,
        }
        now = self._clock.monotonic()
        patch = changes(live, wanted, last_written_at=self._written.get(key), now=now)
        if patch is None:
            return
        if isinstance(patch, Later):
            self._come_again(again_as or key, patch.seconds)
            return
        # One that was made anew under the same name must not get the status of the one before.
        if not await self._patch(key, {"metadata": {"uid": body["metadata"]["uid"]}, **patch}):
            return
        self._written[key] = now
        for transition in transitions(live, wanted):
            self._recorder.publish(
                body,
                type=transition.type,
                reason=transition.reason,
                note=transition.note,
                action="Reconcile",
            )

    async def _patch(self, key: Key, patch: Mapping[str, Any]) -> bool:
        """Whether the object is still there."""
        kind = our_type(key.kind)
        try:
            answer = await self._api.patch(
                kind, key.namespace, key.name, patch, subresource="status"
            )
        except NotFound:
            # Deleted meanwhile; its watch will say so.
            return False
        self._store.put(answer)
        return self._store.get(key) is not None
