"""The stores of a gateway: one for each namespace, whose sessions are its own. All their folders
are changed by one thread."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from pillion_sidecar.clock import Clock, SystemClock
from pillion_sidecar.journal.ports import Worker
from pillion_sidecar.stores.copies import Copy, StoreError
from pillion_sidecar.stores.folders import Folders, SystemFolders
from pillion_sidecar.stores.messages import ClaimRequest, Request
from pillion_sidecar.stores.sessions import Sessions, SessionStatus, size_of
from pillion_sidecar.stores.store import (
    QuotaError,
    SessionsError,
    StoreLimits,
    UnknownError,
)

logger = logging.getLogger("pillion.journal")

#: The folder of writers without tokens; no namespace has this name.
ANY_NAMESPACE = "_"
#: Seconds between two lines of the log about one namespace and reason.
QUIET_SECONDS = 600.0
#: Verbs and results that alerts watch: a counter that begins with 1 has no increase.
REFUSED_FROM_ZERO = (
    *(("append", result) for result in ("quota", "disk", "broken")),
    *(("claim", result) for result in ("sessions", "disk", "broken")),
)
_Result = TypeVar("_Result")


class NamespaceFolders(Protocol):
    """Every call blocks and may raise OSError."""

    def names(self) -> list[str]:
        """Return the namespaces that have folders."""

    def open(self, namespace: str, *, creates: bool) -> Folders | None:
        """Return a namespace's folders; None: there are none. Created ones are on disk."""


class SystemNamespaceFolders:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return SystemFolders(self._folder).names()

    def open(self, namespace: str, *, creates: bool) -> Folders | None:
        if creates:
            SystemFolders(self._folder).create(namespace)
        folder = self._folder / namespace
        return SystemFolders(folder) if folder.is_dir() else None


@dataclass(frozen=True, slots=True)
class NamespaceUsage:
    bytes: int
    sessions: int


class ListedSession(NamedTuple):
    namespace: str
    status: SessionStatus


class NamespaceStores:
    """Each namespace has the same limits, and knows nothing of the others' sessions."""

    def __init__(
        self,
        folders: NamespaceFolders,
        limits: StoreLimits,
        *,
        worker: Worker,
        clock: Clock | None = None,
        maximum_bytes: int | None = None,
    ) -> None:
        """``maximum_bytes``: of all namespaces together; None: no limit.

        The caller holds the lock of the folder, and closes the worker.
        """
        self.limits = limits
        self._folders = folders
        self._worker = worker
        self._clock = clock or SystemClock()
        self._maximum_bytes = maximum_bytes
        #: By namespace and class of the error.
        self._quiet_until: dict[tuple[str, str], float] = {}
        #: By verb and result.
        self.requests = Counter[tuple[str, str]](dict.fromkeys(REFUSED_FROM_ZERO, 0))
        # Only the worker's thread changes these.
        self._stores: dict[str, Sessions] = {}
        #: Sessions that gave way to others, by namespace.
        self._dropped = Counter[str]()

    def load(self) -> None:
        """Read what all namespaces have, before the first request. Blocks; raises OSError."""
        for namespace in self._folders.names():
            try:
                self._store(namespace, creates=False)
            except StoreError as error:
                # Its writers are refused; the others are not harmed.
                self._tell(namespace, error)

    async def perform(
        self, namespace: str | None, session: str, request: Request, *, account: str | None = ""
    ) -> Copy | bytes:
        """Return the copy after the request, or what was read; see :meth:`Sessions.perform`. Raises
        StoreError, OSError."""
        namespace = namespace or ANY_NAMESPACE
        try:
            return await self._ask(partial(self._perform, namespace, session, request, account))
        except (QuotaError, SessionsError, OSError) as error:
            self._tell(namespace, error)
            raise

    def _tell(self, namespace: str, error: StoreError | OSError) -> None:
        """Tell the operator on call, not for each of a writer's attempts."""
        now, kind = self._clock.monotonic(), type(error).__name__
        if now < self._quiet_until.get((namespace, kind), now):
            return
        self._quiet_until[namespace, kind] = now + QUIET_SECONDS
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"the disk refuses: {error.strerror or error}"
        logger.warning(
            "copies of journals of namespace %s are refused: %s",
            namespace,
            reason,
            extra={"event": "journal-copy-refused", "namespace": namespace, "reason": reason},
        )

    async def sessions(self, *, after: tuple[str, str], limit: int) -> list[ListedSession]:
        """Return sessions by namespace and name, of all namespaces. Raises StoreError, OSError."""
        return await self._ask(partial(self._list, None, after, limit))

    async def sessions_of(
        self, namespace: str | None, *, after: str, limit: int
    ) -> list[ListedSession]:
        """Return the sessions of one namespace by name. Raises StoreError, OSError."""
        own = namespace or ANY_NAMESPACE
        return await self._ask(partial(self._list, own, (own, after), limit))

    @property
    def usage(self) -> Mapping[str, NamespaceUsage]:
        return {
            name: NamespaceUsage(store.total, store.count)
            for name, store in list(self._stores.items())
        }

    @property
    def dropped(self) -> Mapping[str, int]:
        """Sessions that gave way to others, by namespace."""
        return dict(self._dropped)

    async def _ask(self, work: Callable[[], _Result | StoreError]) -> _Result:
        """Have the thread do it. What it raises besides OSError ends the deliverer, so refusals are
        returned."""
        answer = asyncio.get_running_loop().create_future()

        def done(result: _Result | StoreError) -> None:
            if answer.cancelled():
                return
            if isinstance(result, StoreError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def failed(error: OSError) -> None:
            if not answer.cancelled():
                answer.set_exception(error)

        self._worker.submit(work, done, failed)
        result: _Result = await answer
        return result

    def _perform(
        self, namespace: str, session: str, request: Request, account: str | None
    ) -> Copy | bytes | StoreError:
        try:
            store = self._store(namespace, creates=isinstance(request, ClaimRequest))
            if size := size_of(request):
                self._make_room(size, namespace, session)
            return store.perform(session, request, account=account)
        except StoreError as error:
            return error

    def _make_room(self, size: int, namespace: str, session: str) -> None:
        """Have idle copies give way to a session, also those of other namespaces."""
        maximum = self._maximum_bytes
        while maximum is not None:
            total = sum(store.total for store in self._stores.values())
            if total + size <= maximum:
                return
            if not any(
                store.drop_idle(besides=session if name == namespace else "")
                for name, store in self._stores.items()
            ):
                raise QuotaError(
                    f"the copies of all namespaces take {total} bytes, and {size} more would exceed"
                    f" {maximum}, journalCopies.maximumBytes of each"
                )

    def _list(
        self, namespace: str | None, after: tuple[str, str], limit: int
    ) -> list[ListedSession] | StoreError:
        found: list[ListedSession] = []
        try:
            for name in sorted(self._stores):
                if name < after[0] or namespace not in (None, name):
                    continue
                begin = after[1] if name == after[0] else ""
                page = self._stores[name].statuses(after=begin, limit=limit - len(found))
                found += [ListedSession(name, one) for one in page]
                if len(found) >= limit:
                    break
        except StoreError as error:
            return error
        return found

    def _store(self, namespace: str, *, creates: bool) -> Sessions:
        store = self._stores.get(namespace)
        if store is None:
            folders = self._folders.open(namespace, creates=creates)
            if folders is None:
                raise UnknownError("the store has no copy of this session")
            store = self._stores[namespace] = Sessions(
                folders,
                self.limits,
                now=self._clock.time,
                dropped=partial(self._drop, namespace),
            )
        return store

    def _drop(self, namespace: str, session: str, size: int, idle: float) -> None:
        self._dropped[namespace] += 1
        logger.warning(
            "the copy of session %s of namespace %s was dropped to make room: nobody has written to"
            " it for %d s; it had %d bytes",
            session,
            namespace,
            idle,
            size,
            extra={
                "event": "journal-copy-dropped",
                "namespace": namespace,
                "session": session,
                "bytes": size,
            },
        )
