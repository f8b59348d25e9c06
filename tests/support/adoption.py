"""What a deliverer that is gone has left in a folder, and a gateway that adopts it."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from pillion_cim.schema import load_schema
from pillion_sidecar.adopted_journal import AdoptedJournal, recover_copy
from pillion_sidecar.indication import Refusal
from pillion_sidecar.intake.adoption import AdoptionSender, Line
from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.notices import HeldBack, UndeclaredClasses, UnreachedIndications
from pillion_sidecar.journal.segments import segment_name, segment_numbers, segment_of
from pillion_sidecar.journal_runtime import groups_as_before
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.stores.copies import Copy, Epoch, StoreError, common_end
from pillion_sidecar.stores.messages import AppendRequest, ClaimRequest, Request
from pillion_sidecar.stores.ports import Answer, Unanswered
from pillion_sidecar.stores.sessions import Sessions
from pillion_sidecar.stores.store import StoreLimits
from pillion_sidecar.testing import FakeTime
from support.delivery import ERROR, destination
from support.intake import Counted, HeldQueues, ScriptedRoutes, alert, target
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk
from support.stores import FIRST, NAMES, SESSION, RecordingFolders, ShippedLog

LIMITS = StoreLimits(maximum_bytes=64 << 20, maximum_sessions=3)
DECODER = LineDecoder(load_schema(), maximum_line_bytes=1 << 20, is_relayed=True)


async def _at_once(read: Callable[[], list[Line]]) -> list[Line]:
    await asyncio.sleep(0)
    return read()


class Gone(OnDisk):
    """A deliverer whose destinations fail, until it is gone."""

    def __init__(self, *names: str, **given: Any) -> None:
        self.memory_files = MemoryFiles()
        super().__init__(self.memory_files)
        self.answer = ERROR
        self.apply([destination(name, **given) for name in names or ("siem",)])

    def body_of(self, identifier: str) -> bytes:
        return json.dumps(alert(identifier), separators=(",", ":")).encode()

    def give_all(self, *identifiers: str, to: Sequence[str] = ()) -> None:
        for identifier in identifiers:
            assert self.publish(identifier, *to) is None
        self.run()
        self.rest()

    def copy(self) -> MemoryFiles:
        """What a store has."""
        return self.memory_files.copy()


class Adopter:
    """The intake of a gateway, without doors."""

    def __init__(self, *subscriptions: str, time: FakeTime | None = None) -> None:
        self.time = time or FakeTime()
        self.routes = ScriptedRoutes()
        for name in subscriptions or ("siem",):
            self.know(name)
        self.queues = HeldQueues()
        self.counted = Counted()
        self.refused: list[tuple[str, str]] = []
        self.context = IntakeContext(
            clock=self.time,
            memory=DuplicateMemory(clock=self.time, window_seconds=3600, capacity=1000),
            routes=self.routes,
            queues=self.queues,
            groups=self._groups(),
            unreached=UnreachedIndications(timers=self.time),
            held_back=HeldBack(timers=self.time),
            undeclared=UndeclaredClasses(timers=self.time, schema=load_schema),
        )

    def _groups(self) -> Groups:
        return Groups(clock=self.time, timers=self.time, queues=self.queues, window_seconds=3600)

    def know(self, name: str) -> None:
        """Have a subscription in the configuration."""
        self.routes.by_uid[f"uid-{name}"] = target(name, name)

    def sender(
        self,
        files: MemoryFiles,
        *,
        service: str = "default",
        is_relayed: Callable[[str], bool] = lambda uid: False,
    ) -> AdoptionSender:
        recovery = recover_copy(files, clock=self.time)
        groups = self._groups()
        groups_as_before(groups, recovery.recovered, offset=recovery.offset)
        journal = AdoptedJournal(
            files,
            recovery,
            service=service,
            is_relayed=is_relayed,
            next_expected=groups.next_expected,
        )
        return AdoptionSender(
            journal.queues,
            context=self.context,
            decoder=DECODER,
            namespace=None,
            timers=self.time,
            observer=self.counted,
            refused=lambda destination, reason: self.refused.append((destination, reason)),
            in_thread=_at_once,
        )

    def taken(self, name: str) -> list[str | None]:
        """The identifiers of what a destination got, in order."""
        return [
            one.identifier
            for one, queued in zip(self.queues.taken, self.queues.places, strict=True)
            if name in queued
        ]

    def fill(self, name: str | None = None, *, reason: str = "full") -> None:
        """Refuse all, or what is for one destination."""
        if name is None:
            self.queues.refusal = Refusal(2.0, reason)
        else:
            self.queues.full.add(name)


class KeptCopies:
    """Three stores in memory, each of which answers at once or is away. A ``Transport``."""

    def __init__(self) -> None:
        self.sessions = {name: Sessions(RecordingFolders(), LIMITS) for name in NAMES}
        self.away: set[str] = set()
        self.asked: list[tuple[str, Request]] = []
        #: Told before each answer.
        self.asking: Callable[[str, Request], None] = lambda *_: None

    def keep(self, gone: Gone, *names: str, epoch: Epoch = FIRST) -> None:
        """Ship what a deliverer has on its disk."""
        last, size = segment_of(gone.journal.written)
        segments = {
            number: bytes(gone.memory_files.contents[segment_name(number)])
            for number in segment_numbers(gone.memory_files.names())
        }
        segments[last] = segments[last][:size]
        log = ShippedLog(segments=segments)
        claim = ClaimRequest(number=epoch.number, claimant=epoch.claimant)
        for name in names or NAMES:
            copy = self._perform(name, claim)
            while copy.end < log.end:
                piece, data = log.next(common_end(copy.extents, log.extents))
                request = AppendRequest(
                    number=epoch.number,
                    claimant=epoch.claimant,
                    after=piece.after,
                    position=piece.position,
                    created=piece.created,
                    base=0,
                    data=data,
                )
                copy = self._perform(name, request)

    def _perform(self, name: str, request: Request) -> Copy:
        answer = self.sessions[name].perform(SESSION, request, account="")
        assert isinstance(answer, Copy)
        return answer

    def send(self, store: str, request: Request, answered: Callable[[Answer], None]) -> None:
        self.asked.append((store, request))
        asyncio.get_running_loop().call_soon(lambda: answered(self._answer(store, request)))

    def _answer(self, store: str, request: Request) -> Answer:
        self.asking(store, request)
        if store in self.away:
            return Unanswered(reason=f"{store} is away")
        try:
            return self.sessions[store].perform(SESSION, request, account="")
        except StoreError as error:
            return error

    def counts(self) -> list[int]:
        """How many sessions each has."""
        return [self.sessions[name].count for name in NAMES]
