"""The copies of other deliverers' journals that a gateway keeps: their folder, limits and thread.

They are in a folder of the journal's folder, whose lock holds for them. What they may take of the
volume is the journal's no more.
"""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.schema.copies import PARTS_OF_VOLUME, JournalCopies
from pillion_sidecar.config.schema.service import IndicationService
from pillion_sidecar.fields import amount
from pillion_sidecar.journal.files import folder_error
from pillion_sidecar.journal.workers import ThreadWorker

if TYPE_CHECKING:
    # It imports the files of stores, which a sidecar does not need.
    from pillion_sidecar.stores.namespaces import NamespaceStores

logger = logging.getLogger("pillion.journal")

#: Within the journal's folder.
FOLDER_NAME = "copies"


class CopiesFolder:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._worker: ThreadWorker | None = None
        self._in_force: JournalCopies | None = None
        self._is_open = False
        #: None: the gateway keeps no copies.
        self.stores: NamespaceStores | None = None

    async def open(self, journal: Path, service: IndicationService) -> None:
        """``journal``: the journal's folder, which is locked.

        Raises JournalError: the folder cannot be used.
        """
        self._is_open, copies = True, service.journal_copies
        folder = journal / FOLDER_NAME
        if copies is None:
            await asyncio.to_thread(_warn_of_unused, folder)
            return
        # Late: other deliverers have no use for it.
        from pillion_sidecar.stores.namespaces import NamespaceStores, SystemNamespaceFolders
        from pillion_sidecar.stores.store import StoreLimits

        self._worker = ThreadWorker(
            name="stores", call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe
        )
        stores = NamespaceStores(
            SystemNamespaceFolders(folder),
            StoreLimits(
                maximum_bytes=int(amount(copies.maximum_bytes)),
                maximum_sessions=copies.maximum_sessions,
                maximum_age=copies.maximum_age_seconds,
            ),
            worker=self._worker,
            clock=self._clock,
            maximum_bytes=reserved_bytes(service),
        )
        try:
            await asyncio.to_thread(_make, folder)
            await asyncio.to_thread(stores.load)
        except OSError as error:
            raise folder_error(str(error.filename or folder), error) from error
        self._in_force = copies
        self.stores = stores

    def warn_of_change(self, service: IndicationService) -> None:
        """Warn of a revision that wants other copies than the start."""
        if self._is_open and service.journal_copies != self._in_force:
            logger.warning(
                "journalCopies stays as it was at the start; start the gateway again to change it",
                extra={"event": "configuration-warning"},
            )

    def close(self) -> None:
        """Finish what is under way. Idempotent."""
        worker, self._worker = self._worker, None
        self.stores = None
        if worker is not None:
            worker.close()


def reserved_bytes(service: IndicationService) -> int:
    """Return what the copies of all namespaces may take of the volume; 0: none are kept.

    Raises ConfigurationError: it is too much.
    """
    copies = service.journal_copies
    if copies is None:
        return 0
    namespaces = len({one.namespace for one in service.publishers}) or 1
    each = int(amount(copies.maximum_bytes))
    if service.storage_bytes is not None:
        most = service.storage_bytes // PARTS_OF_VOLUME
        if namespaces * each > most:
            raise ConfigurationError(
                [
                    Problem(
                        reason="Invalid",
                        message=f"is for each of {namespaces} namespaces in publishers; together"
                        " they are more than half of deliverer.storage.sizeLimit",
                        remedy=f"Write at most {most // namespaces >> 20}Mi, or a larger volume.",
                        resource=f"IndicationService/{service.name}",
                        field="spec.journalCopies.maximumBytes",
                        value=copies.maximum_bytes,
                    )
                ]
            )
    return namespaces * each


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)


def _warn_of_unused(folder: Path) -> None:
    """Warn of copies of a gateway that keeps none now: they take room that nobody counts."""
    if folder.is_dir() and any(folder.iterdir()):
        logger.warning(
            "the copies of journals in %s are left alone, since journalCopies is not set; set it"
            " to serve them, or remove the folder",
            folder,
            extra={"event": "journal-copies-unused", "folder": str(folder)},
        )
