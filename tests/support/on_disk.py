"""A delivery service on a real journal, with workers that do at once what they are given."""

from typing import Any

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import Indication, Refusal, Target
from pillion_sidecar.journal.disk import DiskJournal, open_journal
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.limits import JournalSettings
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.testing import FakeTime
from support.delivery import Deliverer
from support.stepped import SteppedWorker

SMALL = JournalSettings(durability=Durability.DISK, segment_bytes=6 << 10)


class OnDisk(Deliverer):
    """A :class:`support.delivery.Deliverer` whose first revision takes over what is in a folder."""

    def __init__(
        self,
        files: Files,
        *,
        settings: JournalSettings = SMALL,
        time: FakeTime | None = None,
        history: History | None = None,
        lacks_end: bool = False,
    ) -> None:
        self.files, self.settings, self.history = files, settings, history
        self.lacks_end = lacks_end
        super().__init__(time=time, history=history)
        self._attached = False

    def open(self) -> None:
        self.workers = (SteppedWorker(), SteppedWorker())
        self.memory = DuplicateMemory(clock=self.time, window_seconds=86_400.0, capacity=4096)
        self.journal: DiskJournal
        self.journal, self.recovered = open_journal(
            self.files,
            clock=self.time,
            worker=self.workers[0],
            reader=self.workers[1],
            call_soon=self._soon.append,
            timers=self.time,
            settings=self.settings,
            identities=self.memory,
            journal_id=bytes(range(16)),
            outcomes=self.history,
            lacks_end=self.lacks_end,
        )
        self.service.open(self.journal, self.recovered)

    def applied(self) -> None:
        if not self._attached:
            self._attached = True
            self.journal.attach(
                self.service.journal_listener(
                    groups=bytes, identities=self.memory.ended, failed=self.journal_failed
                )
            )

    def run(self) -> None:
        """Run what is due now, the workers too, until nothing is."""
        super().run()
        while self.workers[0].step() or self.workers[1].step():
            super().run()

    def rest(self) -> None:
        """Have all that is settled written."""
        self.advance(1.0)

    def restart(self, **given: Any) -> "OnDisk":
        """Crash, and begin again on what is in the folder."""
        return OnDisk(self.files, time=self.time, **given)

    def give(self, identifier: str, *to: str, body: bytes = b"{}") -> Refusal | None:
        """Offer one indication."""
        return self.service.offer(self.indication(identifier, body=body), self.targets(*to))

    def indication(self, identifier: str, *, body: bytes = b"{}") -> Indication:
        return Indication(
            body=body,
            class_name="CIM_AlertIndication",
            accepted_at=self.time.monotonic(),
            identifier=identifier,
            trackers=(self.settlements,),
        )

    def targets(self, *names: str) -> list[Target]:
        known = self.configuration.subscriptions
        return [
            Target(
                subscription=name,
                filter_name=known[name].filter_name,
                destination=known[name].destination_name,
            )
            for name in names or tuple(known)
        ]
