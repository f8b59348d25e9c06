"""Many resources at once, and when they are ready: for benchmarks on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

from pillion_operator.cluster.types import OURS, Object, type_of
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key, key_of
from pillion_testbed.client import SYNCED, Client
from support.cluster_resources import Resource, destination, filter_, service, subscription

#: What one namespace of a population holds.
SERVICES = FILTERS = 50
DESTINATIONS = 200
SUBSCRIPTIONS = 1_000
OBJECTS = SERVICES + FILTERS + DESTINATIONS + SUBSCRIPTIONS
#: Resources that are applied at once.
AT_ONCE = 16

APPLY_PATCH = "application/apply-patch+yaml"


def population() -> Iterator[Resource]:
    """The resources of one namespace, referring to each other in an order that is no help.

    Each service serves 20 destinations, each destination five services.
    """
    for number in range(SUBSCRIPTIONS):
        yield subscription(
            f"subscription-{number:04}",
            to=destination_name(number % DESTINATIONS),
            of=f"filter-{number % FILTERS:02}",
            by=service_name(number // (SUBSCRIPTIONS // SERVICES)),
        )
    for number in range(DESTINATIONS):
        yield destination(url(number), name=destination_name(number))
    for number in range(FILTERS):
        query = (
            "SELECT * FROM CIM_AlertIndication "
            f"WHERE PerceivedSeverity >= 3 AND SystemName = 'host-{number:02}.example.com'"
        )
        yield filter_(f"filter-{number:02}", query)
    for number in range(SERVICES):
        name = service_name(number)
        yield service(name, deliverer={"podSelector": {"matchLabels": {"app": name}}})


def service_name(number: int) -> str:
    return f"service-{number:02}"


def destination_name(number: int) -> str:
    return f"listener-{number:03}"


def url(number: int, state: str = "new") -> str:
    """Where a destination leads to: a port where nobody listens."""
    return f"http://127.0.0.1:9/{destination_name(number)}/{state}"


def services_of(number: int) -> list[str]:
    """The services whose configuration holds a destination."""
    each = SUBSCRIPTIONS // SERVICES
    return sorted(
        service_name(subscribed // each)
        for subscribed in range(number, SUBSCRIPTIONS, DESTINATIONS)
    )


async def apply_all(client: Client, resources: Iterable[Resource], *, namespace: str) -> None:
    """Apply resources, several at once, as fast as the API server takes them."""
    waiting = iter(list(resources))

    async def work() -> None:
        for body in waiting:
            path = type_of(body).path(namespace, body["metadata"]["name"])
            await client.request(
                "PATCH", f"{path}?fieldManager=benchmark&force=true", body, content_type=APPLY_PATCH
            )

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())


class Watching:
    """What the API server says of Pillion's own kinds, as a watch brings it."""

    def __init__(self) -> None:
        self._ready: set[Key] = set()
        self._generations: dict[Key, int] = {}
        self._changed = asyncio.Condition()

    async def all_ready(self, count: int) -> None:
        """Return once so many objects are Ready at their present generation."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._ready) >= count)

    async def ready_at(self, key: Key, generation: int) -> None:
        """Return once an object is Ready at this generation or a later one."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: key in self._ready and self._generations[key] >= generation
            )

    async def follow(self, client: Client, path: str) -> None:
        """Watch one list until cancelled."""
        async for kind, body in client.events(path):
            if kind == SYNCED:
                continue
            key = key_of(body)
            async with self._changed:
                self._generations[key] = body["metadata"]["generation"]
                if kind != "DELETED" and is_ready(body):
                    self._ready.add(key)
                else:
                    self._ready.discard(key)
                self._changed.notify_all()


@asynccontextmanager
async def watching(client: Client, namespace: str | None) -> AsyncIterator[Watching]:
    """Watch Pillion's own kinds in one namespace, or everywhere."""
    watched = Watching()
    tasks = [asyncio.create_task(watched.follow(client, kind.path(namespace))) for kind in OURS]
    try:
        yield watched
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_ready(body: Object) -> bool:
    """Whether the object is Ready at its present generation."""
    condition = find_condition((body.get("status") or {}).get("conditions"), "Ready")
    return (
        condition is not None
        and condition["status"] == "True"
        and condition["observedGeneration"] == body["metadata"]["generation"]
    )
