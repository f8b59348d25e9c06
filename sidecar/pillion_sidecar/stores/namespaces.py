"""The stores of a gateway: one for each namespace, whose sessions are its own. All their folders
are changed by one thread."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Protocol

from pillion_sidecar.journal.ports import Worker
from pillion_sidecar.stores.copies import Copy, StoreError
from pillion_sidecar.stores.messages import (
    AppendRequest,
    ClaimRequest,
    CutRequest,
    IdentitiesRequest,
    KeepRequest,
    ReadRequest,
    RemoveRequest,
    Request,
    encode_identities,
)
from pillion_sidecar.stores.store import (
    Folders,
    Store,
    StoreLimits,
    SystemFolders,
    UnknownError,
)

#: The folder of writers without tokens; no namespace has this name.
ANY_NAMESPACE = "_"


class NamespaceFolders(Protocol):
    """Every call blocks and may raise OSError."""

    def open(self, namespace: str, *, creates: bool) -> Folders | None:
        """Return a namespace's folders; None: there are none. Created ones are on disk."""


class SystemNamespaceFolders:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, namespace: str, *, creates: bool) -> Folders | None:
        if creates:
            SystemFolders(self._folder).create(namespace)
        folder = self._folder / namespace
        return SystemFolders(folder) if folder.is_dir() else None


class NamespaceStores:
    """Each namespace has the same limits, and knows nothing of the others' sessions."""

    def __init__(self, folders: NamespaceFolders, limits: StoreLimits, *, worker: Worker) -> None:
        """The caller holds the lock of the folder, and closes the worker."""
        self._folders = folders
        self._limits = limits
        self._worker = worker
        # Only the worker's thread looks at it.
        self._stores: dict[str, Store] = {}

    async def perform(self, namespace: str | None, session: str, request: Request) -> Copy | bytes:
        """Return the copy after the request, or what was read. Raises StoreError, OSError."""
        answer = asyncio.get_running_loop().create_future()

        def done(result: Copy | bytes | StoreError) -> None:
            if answer.cancelled():
                return
            if isinstance(result, StoreError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def failed(error: OSError) -> None:
            if not answer.cancelled():
                answer.set_exception(error)

        self._worker.submit(
            partial(self._perform, namespace or ANY_NAMESPACE, session, request), done, failed
        )
        result: Copy | bytes = await answer
        return result

    def _perform(self, namespace: str, session: str, request: Request) -> Copy | bytes | StoreError:
        """In the thread. What it raises besides OSError ends the deliverer, so refusals are
        returned."""
        try:
            store = self._store(namespace, creates=isinstance(request, ClaimRequest))
            return perform(store, session, request)
        except StoreError as error:
            return error

    def _store(self, namespace: str, *, creates: bool) -> Store:
        store = self._stores.get(namespace)
        if store is None:
            folders = self._folders.open(namespace, creates=creates)
            if folders is None:
                raise UnknownError("there is no copy of this session; claim it first")
            store = self._stores[namespace] = Store(folders, self._limits)
        return store


def perform(store: Store, session: str, request: Request) -> Copy | bytes:
    """Blocks; raises StoreError and OSError."""
    match request:
        case ClaimRequest():
            return store.claim(session, request.epoch)
        case CutRequest():
            return store.cut(session, request.epoch, request.position)
        case AppendRequest():
            return store.append(
                session, request.epoch, request.piece, request.data, base=request.base
            )
        case RemoveRequest():
            return store.remove(session, request.epoch, request.removal)
        case ReadRequest():
            return store.read(
                session, request.position, request.size, identities=request.identities
            )
        case KeepRequest():
            return store.keep(
                session, request.epoch, request.segment, request.data, first=request.first
            )
        case IdentitiesRequest():
            return encode_identities(store.identities(session))
