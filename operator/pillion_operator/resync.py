"""Lists the cluster: fills the store at the start, and repairs it periodically. A watch may miss
deletions while it is cut (410 Gone): kopf then lists anew, but reports no missing object."""

import logging
from collections.abc import Callable, Sequence

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api, NotFound, succeeds
from pillion_operator.cluster.types import OURS, ResourceType
from pillion_operator.definitions import Definitions
from pillion_operator.store import Key, Store, key_of
from pillion_operator.watching import WATCHED

logger = logging.getLogger("pillion.operator")

#: Seconds for a watch to bring what a listing has found.
PATIENCE = 2.0


class Resync:
    def __init__(
        self,
        *,
        api: Api,
        store: Store,
        namespaces: Sequence[str],
        clock: Clock,
        missed: Callable[[str, int], None],
        definitions: Definitions,
    ) -> None:
        """Empty ``namespaces`` means all. ``missed`` counts, by kind, what no watch has brought."""
        self._api = api
        self._store = store
        self._namespaces = tuple(namespaces)
        self._clock = clock
        self._missed = missed
        self._definitions = definitions

    async def fill(self) -> None:
        for kind, selector in WATCHED:
            await self._one(kind, selector, patience=0.0)

    async def run(self, interval: float) -> None:
        """Repair every ``interval`` seconds."""
        while True:
            await self._clock.sleep(interval)
            await succeeds(
                self.repair(), "cannot list the cluster", extra={"event": "listing-failed"}
            )

    async def repair(self) -> None:
        """List everything, and add what the watches have missed. Only once at a time: the store
        tracks changes for one listing."""
        for kind, selector in WATCHED:
            wrong = await self._one(kind, selector, patience=PATIENCE)
            if wrong:
                self._missed(kind.kind, len(wrong))
                logger.warning(
                    "the watch of %s has missed %d changes; the listing corrects them",
                    kind.plural,
                    len(wrong),
                    extra={"event": "watch-missed", "kind": kind.kind, "count": len(wrong)},
                )

    async def _one(self, kind: ResourceType, selector: str | None, *, patience: float) -> list[Key]:
        self._store.begin_listing()
        listed = []
        for namespace in self._namespaces or (None,):
            try:
                items = await self._api.list(kind, namespace, label_selector=selector)
            except NotFound:
                if kind not in OURS:
                    raise
                # Its definition is gone: missing objects may not have been deleted.
                return []
            # List items lack apiVersion and kind.
            listed += [
                {**item, "apiVersion": kind.api_version, "kind": kind.kind} for item in items
            ]
        # A watch may be about to bring it.
        await self._clock.sleep(patience)
        wrong = self._store.reconcile_listing(
            kind.kind, self._namespaces or None, listed, kept=self._definitions.holds
        )
        there = {key_of(body) for body in listed}
        gone = [key for key in wrong if key not in there and self._definitions.holds(key)]
        news = self._definitions.missing(gone)
        return [key for key in wrong if key not in gone or key in news]
