"""The stores of a gateway: one for each namespace, whose sessions are its own. All their folders
are changed by one thread."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from pillion_sidecar.clock import Clock, SystemClock
from pillion_sidecar.journal.ports import Worker
from pillion_sidecar.stores.copies import Copy, StoreError
from pillion_sidecar.stores.messages import AppendRequest, ClaimRequest, Request
from pillion_sidecar.stores.sessions import Sessions, SessionStatus
from pillion_sidecar.stores.store import (
    Folders,
    QuotaError,
    StoreLimits,
    SystemFolders,
    UnknownError,
)

logger = logging.getLogger("pillion.journal")

#: The folder of writers without tokens; no namespace has this name.
ANY_NAMESPACE = "_"
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


@dataclass(frozen=True, slots=True)
class ListedSession:
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
        # Only the worker's thread changes these.
        self._stores: dict[str, Sessions] = {}
        #: Sessions that gave way to others, by namespace.
        self._dropped = Counter[str]()

    def load(self) -> None:
        """Read what all namespaces have, before the first request. Blocks; raises OSError and
        StoreError."""
        for namespace in self._folders.names():
            self._store(namespace, creates=False)

    async def perform(
        self, namespace: str | None, session: str, request: Request, *, account: str = ""
    ) -> Copy | bytes:
        """Return the copy after the request, or what was read. Raises StoreError, OSError."""
        return await self._ask(
            partial(self._perform, namespace or ANY_NAMESPACE, session, request, account)
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
        self, namespace: str, session: str, request: Request, account: str
    ) -> Copy | bytes | StoreError:
        try:
            store = self._store(namespace, creates=isinstance(request, ClaimRequest))
            if isinstance(request, AppendRequest):
                self._check_total(len(request.data))
            return store.perform(session, request, account=account)
        except StoreError as error:
            return error

    def _check_total(self, size: int) -> None:
        maximum = self._maximum_bytes
        if maximum is None:
            return
        total = sum(store.total for store in self._stores.values())
        if total + size > maximum:
            raise QuotaError(
                f"the copies of all namespaces take {total} bytes, and {size} more would exceed"
                f" {maximum}"
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
                raise UnknownError("there is no copy of this session; claim it first")
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
