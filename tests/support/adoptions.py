"""A gateway whose adoptions are ordered, with three stores in memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec

from pillion_sidecar.adoption_attempts import Gateway
from pillion_sidecar.adoption_runtime import Adoptions
from pillion_sidecar.journal_runtime import ADOPTING_NAME
from pillion_sidecar.stores.messages import Request
from pillion_sidecar.stores.ports import ClosableTransport
from pillion_sidecar.wire.adoptions import (
    AdoptionOrder,
    AdoptionStatus,
    OrderedGroup,
    OrderedStores,
)
from support.adoption import DECODER, Adopter, Gone, KeptCopies
from support.stores import NAMES, SESSION

ORDER = AdoptionOrder(
    session=SESSION,
    service="default",
    stores=OrderedStores(groups=[OrderedGroup(name="g", members=list(NAMES))]),
)


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stores = KeptCopies()
        #: Those of other sessions. All others are in no store.
        self.others: dict[str, KeptCopies] = {}
        self._none = KeptCopies()
        #: Attempts that are connected to their stores.
        self.open = 0
        self.adopter = Adopter()
        self.problem: str | None = None
        self.journal_room = self.free = 1 << 30
        self.counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        self.adoptions = self.again()

    def connect(self, services: Sequence[str], *, session: str) -> ClosableTransport:
        self.open += 1
        stores = self.stores if session == SESSION else self.others.get(session, self._none)
        return _Counted(self, stores)

    def again(self, adopter: Adopter | None = None) -> Adoptions:
        """Another run of the gateway, or another gateway."""
        adopter = adopter or self.adopter
        gateway = Gateway(
            context=adopter.context,
            clock=adopter.time,
            timers=adopter.time,
            observer=adopter.counted,
            decoder=lambda: DECODER,
            namespace=lambda: None,
            is_relayed=lambda uid: False,
            connect=self.connect,
            problem=lambda: self.problem,
            journal_room=lambda: self.journal_room,
            free=lambda folder: self.free,
            ended=self.counts[0],
            indications=self.counts[1],
        )
        return Adoptions(self.folder, gateway, name="shared-0")

    async def ended(self, adoptions: Adoptions | None = None) -> AdoptionStatus:
        """Order, and wait until nothing is under way."""
        adoptions = adoptions or self.adoptions
        adoptions.order(ORDER)
        await until_idle(adoptions)
        (status,) = adoptions.statuses
        return status

    def scratch(self) -> list[str]:
        folder = self.folder / ADOPTING_NAME
        return sorted(one.name for one in folder.iterdir()) if folder.exists() else []


class _Counted:
    def __init__(self, world: World, stores: KeptCopies) -> None:
        self._world = world
        self.send = stores.send

    def close(self) -> None:
        self._world.open -= 1


async def until_idle(adoptions: Adoptions) -> None:
    await asyncio.gather(*adoptions._tasks)


def gone(*identifiers: str) -> Gone:
    made = Gone()
    made.give_all(*(identifiers or ("1", "2", "3")))
    return made


class Asked:
    """Waits until a store is asked for something."""

    def __init__(self, stores: KeptCopies, kind: type[Request]) -> None:
        self.happened = asyncio.Event()
        self._kind = kind
        stores.asking = self._asking

    def _asking(self, store: str, request: Request) -> None:
        if isinstance(request, self._kind):
            self.happened.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        async for _ in turns():
            if condition():
                return


async def turns() -> AsyncIterator[None]:
    """Wait for the threads' work, turn by turn."""
    for _ in range(100_000):
        await asyncio.to_thread(int)
        yield


def idle(world: World) -> bool:
    """Let the time of all waits pass."""
    world.adopter.time.advance(60.0)
    return not world.adoptions._tasks


def order_of(number: int) -> AdoptionOrder:
    """Of another session."""
    return msgspec.structs.replace(ORDER, session=f"{number:032x}")
