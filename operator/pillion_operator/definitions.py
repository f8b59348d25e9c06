"""Distinguishes the deletion of an object from that of its custom resource definition.

Deleting a definition deletes every object of it. So a deletion reaches the store only after
discovery shows that the kind is still served for writing; until the definition is back, its objects
stay as they were. An IndicationService is forgotten at once, because the garbage collector deletes
what it owns.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from pillion_operator.clock import Clock, within
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.cluster.types import OURS
from pillion_operator.store import Key, Store, version_of

logger = logging.getLogger("pillion.operator")

#: Seconds from a deletion to the discovery that confirms it: within them, discovery shows a
#: definition that terminates.
CONFIRMATION = 0.5
#: Seconds between two discoveries until then: a definition may be back within 0.25 s.
LOOK_SOON = 0.05
#: Seconds between two discoveries while deletions are held.
LOOK_AGAIN = 2.0
#: Seconds that the objects of a restored definition may be missing.
RETURN = 300.0

_PLURALS = {kind.kind: kind.plural for kind in OURS if kind.kind != "IndicationService"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deletion:
    version: int
    at: float
    unconfirmed: bool = False


class Definitions:
    def __init__(self, *, api: Api, store: Store, clock: Clock) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._deletions: dict[Key, _Deletion] = {}
        self._some = asyncio.Event()
        #: The kinds whose definitions were absent or terminating, and since when they are back.
        self._away: dict[str, float | None] = {}
        store.takes_up = self.takes_up

    def removed(self, key: Key, *, version: int) -> None:
        """Record a deletion that a watch has reported."""
        if key.kind not in _PLURALS:
            self._store.remove(key, version=version)
            return
        known = self._store.get(key)
        if known is not None:
            self._deletions[key] = _Deletion(version=version, at=self._clock.monotonic())
            self._some.set()

    def seen(self, key: Key, *, version: int) -> None:
        """Record an object; it is back if its deletion is older."""
        held = self._deletions.get(key)
        if held is not None and version > held.version:
            del self._deletions[key]

    def takes_up(self, key: Key) -> bool:
        """Whether the object was deleted with its definition; applied again, it continues."""
        held = self._deletions.get(key)
        return held is not None and (held.unconfirmed or self._went_with_kind(key.kind, held))

    def missing(self, keys: Iterable[Key]) -> set[Key]:
        """Record deletions found by a listing; return the new ones."""
        news = {key for key in keys if key not in self._deletions}
        for key in news:
            body = self._store.get(key)
            if body is not None:
                self.removed(key, version=version_of(body))
        return news

    def holds(self, key: Key) -> bool:
        """Whether only a confirmed deletion may remove an object from the store."""
        return key.kind in _PLURALS

    async def run(self) -> None:
        while True:
            if not self._deletions:
                await self._some.wait()
            self._some.clear()
            await self._look()
            if any(not deletion.unconfirmed for deletion in self._deletions.values()):
                await self._clock.sleep(LOOK_SOON)
            elif self._deletions:
                with suppress(TimeoutError):
                    # A further deletion is checked without delay.
                    await within(self._clock, LOOK_AGAIN, self._some.wait())

    async def _look(self) -> None:
        began = self._clock.monotonic()
        try:
            writable = await self._api.served(OURS[0].api_version, verb="create")
        except FAILURES as error:
            logger.warning(
                "cannot read which definitions are served: %s; deletions wait",
                str(error) or type(error).__name__,
                extra={"event": "listing-failed"},
            )
            await self._clock.sleep(LOOK_AGAIN)
            return
        for kind in sorted({key.kind for key in self._deletions}):
            self._judge(kind, there=_PLURALS[kind] in writable)
        for key, deletion in list(self._deletions.items()):
            self._settle(key, deletion, now=began)
        still = {key.kind for key in self._deletions}
        self._away = {kind: since for kind, since in self._away.items() if kind in still}

    def _judge(self, kind: str, *, there: bool) -> None:
        since = self._away.get(kind)
        if there:
            if kind in self._away and since is None:
                self._away[kind] = self._clock.monotonic()
                logger.info(
                    "the definition of %s is back; objects missing in %.0f s count as deleted",
                    kind,
                    RETURN,
                    extra={"event": "definition-back", "kind": kind},
                )
        elif kind not in self._away or since is not None:
            self._away[kind] = None
            logger.warning(
                "the definition of %s is absent or being deleted: the operator keeps its objects "
                "as it last saw them; apply the definition and the objects again",
                kind,
                extra={"event": "definition-gone", "kind": kind},
            )

    def _settle(self, key: Key, deletion: _Deletion, *, now: float) -> None:
        if self._went_with_kind(key.kind, deletion):
            deletion = self._deletions[key] = replace(deletion, unconfirmed=True)
        back = self._away.get(key.kind)
        if deletion.unconfirmed:
            settled = back is not None and now - back >= RETURN
        else:
            settled = now - deletion.at >= CONFIRMATION
        if settled:
            del self._deletions[key]
            self._store.remove(key, version=deletion.version)

    def _went_with_kind(self, kind: str, deletion: _Deletion) -> bool:
        """Whether the definition was away at a deletion. The watch may report one after discovery
        shows the definition again."""
        if kind not in self._away:
            return False
        back = self._away[kind]
        return back is None or deletion.at - back < CONFIRMATION
