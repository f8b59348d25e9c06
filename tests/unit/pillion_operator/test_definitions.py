"""A deletion counts once its definition is known to stand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.cluster.types import OURS
from pillion_operator.definitions import (
    CONFIRMATION,
    LOOK_AGAIN,
    LOOK_SOON,
    RETURN,
    Definitions,
)
from pillion_operator.store import Key, Store, identity_of, key_of, version_of
from support.in_background import in_background
from support.operator_time import FakeClock

DESTINATION = "ListenerDestination"


def body(name: str, kind: str = DESTINATION, *, version: int = 5) -> dict[str, Any]:
    return {
        "apiVersion": OURS[0].api_version,
        "kind": kind,
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": f"{name}-{version}",
            "resourceVersion": str(version),
        },
    }


@dataclass
class Discovery:
    there: set[str] = field(default_factory=lambda: {kind.plural for kind in OURS})
    away: bool = False

    async def served(self, _api_version: str, *, verb: str) -> frozenset[str]:
        if self.away:
            raise ApiError(503, "ServiceUnavailable", "not now")
        return frozenset(self.there)


@dataclass
class Bed:
    clock: FakeClock
    discovery: Discovery
    store: Store
    definitions: Definitions

    def deleted(self, gone: dict[str, Any]) -> None:
        self.definitions.removed(key_of(gone), version=version_of(gone) + 1)

    def applied(self, new: dict[str, Any]) -> None:
        self.store.put(new)
        self.definitions.seen(key_of(new), version=version_of(new))

    def uid(self, name: str) -> str:
        """The uid by which deliverers know an object."""
        found = self.store.get(Key(DESTINATION, "shop", name))
        assert found is not None
        return str(identity_of(found)["uid"])

    def names(self, kind: str = DESTINATION) -> list[str]:
        return [key.name for key in self.store.keys(kind)]


@asynccontextmanager
async def running(*there: dict[str, Any]) -> AsyncIterator[Bed]:
    clock, discovery, store = FakeClock(), Discovery(), Store()
    definitions = Definitions(api=cast(Api, discovery), store=store, clock=clock)
    for one in there:
        store.put(one)
    async with in_background(definitions.run()):
        yield Bed(clock, discovery, store, definitions)


async def test_a_deletion_counts_once_discovery_shows_its_definition() -> None:
    async with running(body("a"), body("b")) as bed:
        bed.deleted(body("a"))
        assert bed.names() == ["a", "b"]
        await bed.clock.advance(2 * CONFIRMATION)
        assert bed.names() == ["b"]


async def test_deletions_without_end_are_confirmed_all_the_same() -> None:
    async with running(*(body(f"n{number}") for number in range(20))) as bed:
        for number in range(20):
            bed.deleted(body(f"n{number}"))
            await bed.clock.advance(CONFIRMATION / 2)
        assert len(bed.names()) <= 4
        await bed.clock.advance(2 * CONFIRMATION)
        assert bed.names() == []


async def test_nothing_is_deleted_with_its_definition() -> None:
    async with running(body("a"), body("b")) as bed:
        bed.discovery.there.remove("listenerdestinations")
        bed.deleted(body("a"))
        bed.deleted(body("b"))
        await bed.clock.advance(3600)
        assert bed.names() == ["a", "b"]


async def test_what_is_applied_again_after_its_definition_continues_what_it_was() -> None:
    async with running(body("a")) as bed:
        for version in (20, 40):
            bed.discovery.there.remove("listenerdestinations")
            bed.deleted(body("a", version=version - 10))
            await bed.clock.advance(60)
            bed.discovery.there.add("listenerdestinations")
            await bed.clock.advance(LOOK_AGAIN + CONFIRMATION)
            bed.applied(body("a", version=version))
            # Each later event brings it as the API server has it.
            bed.applied(body("a", version=version) | {"spec": {}})
            assert bed.uid("a") == "a-5"
        # Deleted by itself and made again, it is another one.
        await bed.clock.advance(2 * RETURN)
        bed.deleted(body("a", version=40))
        await bed.clock.advance(2 * CONFIRMATION)
        bed.applied(body("a", version=60))
        assert bed.uid("a") == "a-60"


async def test_what_is_replaced_at_once_is_another_one() -> None:
    async with running(body("a")) as bed:
        bed.deleted(body("a"))
        bed.applied(body("a", version=20))
        await bed.clock.advance(2 * CONFIRMATION)
        assert bed.uid("a") == "a-20"


async def test_a_definition_may_be_back_at_once() -> None:
    async with running(body("a"), body("b"), body("c")) as bed:
        bed.discovery.there.remove("listenerdestinations")
        bed.deleted(body("a"))
        await bed.clock.advance(2 * LOOK_SOON)
        bed.discovery.there.add("listenerdestinations")
        await bed.clock.advance(2 * LOOK_SOON)
        # The watch is behind.
        bed.deleted(body("b"))
        bed.deleted(body("c"))
        bed.applied(body("b", version=20))
        await bed.clock.advance(60)
        bed.applied(body("a", version=20))
        bed.applied(body("c", version=20))
        assert [bed.uid(name) for name in "abc"] == ["a-5", "b-5", "c-5"]


async def test_a_further_definition_may_be_back_at_once() -> None:
    async with running(body("a"), body("f", "IndicationFilter")) as bed:
        bed.discovery.there.remove("indicationfilters")
        bed.deleted(body("f", "IndicationFilter"))
        await bed.clock.advance(LOOK_AGAIN / 2)
        bed.discovery.there.remove("listenerdestinations")
        bed.deleted(body("a"))
        await bed.clock.advance(LOOK_SOON)
        bed.discovery.there.add("listenerdestinations")
        await bed.clock.advance(60)
        assert bed.names() == ["a"]


async def test_what_is_replaced_after_its_definition_is_back_is_another_one() -> None:
    async with running(body("a"), body("b")) as bed:
        bed.discovery.there.remove("listenerdestinations")
        for name in "ab":
            bed.deleted(body(name))
        await bed.clock.advance(60)
        bed.discovery.there.add("listenerdestinations")
        await bed.clock.advance(LOOK_AGAIN + CONFIRMATION)
        bed.applied(body("a", version=20))
        await bed.clock.advance(60)
        bed.deleted(body("a", version=20))
        bed.applied(body("a", version=30))
        assert bed.uid("a") == "a-30"
        # One that is deleted now is gone, though another one may still come again.
        bed.deleted(body("a", version=30))
        await bed.clock.advance(2 * CONFIRMATION + LOOK_AGAIN)
        assert bed.names() == ["b"]


async def test_what_is_applied_again_too_late_is_another_one() -> None:
    async with running(body("a")) as bed:
        bed.discovery.there.remove("listenerdestinations")
        bed.deleted(body("a"))
        await bed.clock.advance(60)
        bed.discovery.there.add("listenerdestinations")
        await bed.clock.advance(RETURN + LOOK_AGAIN + CONFIRMATION)
        bed.applied(body("a", version=20))
        assert bed.uid("a") == "a-20"


async def test_what_is_applied_again_after_its_definition_was_never_missing() -> None:
    async with running(body("a"), body("b")) as bed:
        bed.discovery.there.remove("listenerdestinations")
        for name in ("a", "b"):
            bed.deleted(body(name))
        await bed.clock.advance(60)
        bed.discovery.there.add("listenerdestinations")
        await bed.clock.advance(LOOK_AGAIN + CONFIRMATION)
        bed.applied(body("a", version=20))
        await bed.clock.advance(RETURN - 10)
        assert bed.names() == ["a", "b"]
        await bed.clock.advance(20)
        assert bed.names() == ["a"]
        # From then on a deletion is one.
        bed.deleted(body("a", version=20))
        await bed.clock.advance(2 * CONFIRMATION)
        assert bed.names() == []


async def test_a_definition_that_goes_once_more_begins_the_time_of_return_anew() -> None:
    async with running(body("a")) as bed:
        bed.discovery.there.remove("listenerdestinations")
        bed.deleted(body("a"))
        await bed.clock.advance(10)
        bed.discovery.there.add("listenerdestinations")
        await bed.clock.advance(RETURN / 2)
        bed.discovery.there.remove("listenerdestinations")
        await bed.clock.advance(RETURN)
        bed.discovery.there.add("listenerdestinations")
        await bed.clock.advance(RETURN / 2)
        assert bed.names() == ["a"]
        await bed.clock.advance(RETURN)
        assert bed.names() == []


async def test_deletions_wait_for_an_api_server_that_does_not_say() -> None:
    async with running(body("a")) as bed:
        bed.discovery.away = True
        bed.deleted(body("a"))
        await bed.clock.advance(60)
        assert bed.names() == ["a"]
        bed.discovery.away = False
        await bed.clock.advance(2 * LOOK_AGAIN + CONFIRMATION)
        assert bed.names() == []


async def test_another_kind_is_deleted_beside_one_whose_definition_is_gone() -> None:
    async with running(body("a"), body("f", "IndicationFilter")) as bed:
        bed.discovery.there.remove("listenerdestinations")
        bed.deleted(body("a"))
        bed.deleted(body("f", "IndicationFilter"))
        await bed.clock.advance(2 * CONFIRMATION)
        assert bed.names() == ["a"]
        assert bed.names("IndicationFilter") == []


async def test_a_service_is_forgotten_at_once() -> None:
    async with running(body("s", "IndicationService")) as bed:
        bed.discovery.there.clear()
        bed.deleted(body("s", "IndicationService"))
        assert bed.names("IndicationService") == []


async def test_what_only_a_listing_has_missed_is_held_too_and_counted_once() -> None:
    async with running(body("a")) as bed:
        key = Key(DESTINATION, "shop", "a")
        bed.discovery.there.remove("listenerdestinations")
        assert bed.definitions.missing([key]) == {key}
        assert bed.definitions.missing([key]) == set()
        await bed.clock.advance(60)
        assert bed.names() == ["a"]
