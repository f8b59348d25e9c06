"""The applier's own memory and order, in memory; the API server's part is a cluster test."""

import itertools
from typing import Any, cast

import pytest

from pillion_operator.cluster.api import Api, ApiError, Conflict
from pillion_operator.cluster.applier import ATTEMPTS, ECHO, Applier, Invalid, Repair
from pillion_operator.cluster.ownership import managed
from pillion_operator.cluster.repairs import FIRST_WAIT, FORGOTTEN_AFTER
from pillion_operator.cluster.types import (
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    Object,
    ResourceType,
)
from support.desired import indication_service
from support.operator_time import FakeClock

OWNER = indication_service()


def child(name: str, **spec: Any) -> dict[str, Any]:
    return {**managed(NETWORK_POLICY, name, service=OWNER), "spec": spec}


class Server:
    """An API server that keeps whole objects, and does with each write what a test says."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.log: list[str] = []
        self.rewrites: dict[str, Any] = {}
        self.failures: dict[str, ApiError] = {}
        self._versions = itertools.count(100)

    async def apply(self, body: Object) -> Object:
        name = body["metadata"]["name"]
        self.log.append(f"apply {name}")
        if name in self.failures:
            raise self.failures[name]
        before = self.objects.get(name, {"metadata": {"resourceVersion": ""}})
        metadata = {
            **body["metadata"],
            "uid": f"uid-{name}",
            "resourceVersion": before["metadata"]["resourceVersion"],
        }
        spec = {**body["spec"], **self.rewrites}
        after = {**before, **body, "metadata": metadata, "spec": spec}
        if after != before:
            metadata["resourceVersion"] = str(next(self._versions))
            self.objects[name] = after
        return self.objects[name]

    def live(self) -> list[Object]:
        """What the watch shows, with the objects' status written since."""
        return [
            {
                **body,
                "metadata": {**body["metadata"], "resourceVersion": str(next(self._versions))},
                "status": {"seen": True},
            }
            for body in self.objects.values()
        ]

    async def list(
        self, kind: ResourceType, namespace: str, *, label_selector: str
    ) -> list[Object]:
        self.log.append(f"list {label_selector}")
        return list(self.objects.values())

    async def delete(self, kind: ResourceType, namespace: str, name: str, *, uid: str) -> None:
        self.log.append(f"delete {name} {uid}")
        del self.objects[name]


class Bed:
    def __init__(self) -> None:
        self.server = Server()
        self.clock = FakeClock()
        self.repairs: list[Repair] = []
        self.applier = self.installed("here")

    def installed(self, name: str) -> Applier:
        """The applier of an installation."""
        return Applier(
            cast("Api", self.server),
            installation=name,
            clock=self.clock,
            repaired=self.repairs.append,
        )


@pytest.fixture
def bed() -> Bed:
    return Bed()


async def test_what_the_api_server_does_not_keep_is_not_written_for_ever(bed: Bed) -> None:
    desired = [child("a", size=1)]
    bed.server.rewrites = {"size": 2}
    await bed.applier.sync(OWNER, desired=desired, live=[])
    for _ in range(3):
        applied = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
        assert applied.written == 0
    assert bed.server.log == ["apply a"]
    # But what somebody makes of it is drift.
    bed.server.objects["a"] = {**bed.server.objects["a"], "spec": {"size": 3}}
    applied = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert applied.written == 1
    assert [repair.fields for repair in bed.repairs] == [("spec.size",)]


async def test_what_an_apply_leaves_as_it_was_is_no_repair_after_a_restart(bed: Bed) -> None:
    """Only the API server knows what it keeps: its answer has the version that was there."""
    desired = [child("a", size=1)]
    bed.server.rewrites = {"size": 2}
    await bed.applier.sync(OWNER, desired=desired, live=[])
    live = list(bed.server.objects.values())
    later = bed.installed("here")
    assert (await later.sync(OWNER, desired=desired, live=live)).written == 0
    assert bed.server.log == ["apply a", "apply a"]
    assert (await later.sync(OWNER, desired=desired, live=live)).written == 0
    assert bed.server.log == ["apply a", "apply a"]
    assert bed.repairs == []


async def test_a_conflict_of_the_moment_does_not_make_an_object_of_ours_foreign(bed: Bed) -> None:
    await bed.applier.sync(OWNER, desired=[child("a", size=1)], live=[])
    live = bed.server.live()
    bed.server.failures["a"] = Conflict(409, "Conflict", "it has changed")
    with pytest.raises(Conflict):
        await bed.applier.sync(OWNER, desired=[child("a", size=2)], live=live)
    assert bed.server.log.count("apply a") == 1 + ATTEMPTS


async def test_the_echo_of_a_write_is_known_and_what_others_make_of_it_is_not(bed: Bed) -> None:
    await bed.applier.sync(OWNER, desired=[child("a", size=1)], live=[])
    written = bed.server.objects["a"]
    (seen,) = bed.server.live()
    assert bed.applier.wrote(written)
    assert not bed.applier.wrote(seen)
    foreign = {**written, "metadata": {**written["metadata"], "name": "b"}}
    unlabelled = {**written, "metadata": {**written["metadata"], "labels": None}}
    assert not bed.applier.wrote(foreign)
    assert not bed.applier.wrote(unlabelled)
    await bed.applier.sync(OWNER, desired=[child("a", size=2)], live=[written])
    assert not bed.applier.wrote(written)


async def test_what_is_desired_again_is_written_though_the_watch_still_shows_it(bed: Bed) -> None:
    """There and back before the watch has told of it, and its news of the way there is an echo."""
    one, other = child("a", type="ClusterIP"), child("a", type="NodePort")
    await bed.applier.sync(OWNER, desired=[one], live=[])
    seen = list(bed.server.objects.values())
    await bed.applier.sync(OWNER, desired=[other], live=seen)
    assert (await bed.applier.sync(OWNER, desired=[one], live=seen)).written == 1
    assert bed.server.objects["a"]["spec"] == {"type": "ClusterIP"}
    assert (await bed.applier.sync(OWNER, desired=[one], live=seen)).written == 0
    assert bed.repairs == []


async def test_what_is_older_than_what_was_written_is_believed_after_a_while(bed: Bed) -> None:
    """An etcd that was restored from a backup goes on from older versions."""
    desired = [child("a", size=1)]
    await bed.applier.sync(OWNER, desired=desired, live=[])
    written = bed.server.objects["a"]
    restored = {
        **written,
        "metadata": {**written["metadata"], "resourceVersion": "7"},
        "spec": {"size": 3},
    }
    # It may as well be a watch that is late.
    assert (await bed.applier.sync(OWNER, desired=desired, live=[restored])).written == 0
    bed.clock.skip(ECHO)
    assert (await bed.applier.sync(OWNER, desired=desired, live=[restored])).written == 1
    assert bed.server.objects["a"]["spec"] == {"size": 1}
    assert [repair.fields for repair in bed.repairs] == [("spec.size",)]


async def test_nothing_is_deleted_while_something_cannot_be_made(bed: Bed) -> None:
    await bed.applier.sync(OWNER, desired=[child("old")], live=[])
    bed.server.failures["new"] = ApiError(422, "Invalid", "spec.size: must be even")
    desired = [child("new"), child("more")]
    applied = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert (applied.written, applied.pruned) == (1, 0)
    (refused,) = applied.refused
    assert isinstance(refused, Invalid)
    assert str(refused) == "NetworkPolicy new: the API server refuses it: spec.size: must be even"
    assert sorted(bed.server.objects) == ["more", "old"]
    del bed.server.failures["new"]
    applied = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert applied.pruned == 1
    assert sorted(bed.server.objects) == ["more", "new"]


async def test_what_fails_for_the_moment_is_raised_and_what_was_done_stays_done(bed: Bed) -> None:
    bed.server.failures["b"] = ApiError(503, "ServiceUnavailable", "not now")
    desired = [child("a"), child("b")]
    with pytest.raises(ApiError, match="not now"):
        await bed.applier.sync(OWNER, desired=desired, live=[])
    del bed.server.failures["b"]
    applied = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert applied.written == 1
    assert bed.server.log == ["apply a", "apply b", "apply b"]


async def test_an_object_that_is_always_another_is_given_up_for_the_moment(bed: Bed) -> None:
    class Restless(Server):
        async def list(
            self, kind: ResourceType, namespace: str, *, label_selector: str
        ) -> list[Object]:
            uid = f"uid-{next(self._versions)}"
            body = child("a")
            return [{**body, "metadata": {**body["metadata"], "uid": uid}}]

    bed.server = Restless()
    bed.server.failures["a"] = Conflict(409, "Conflict", "it is another")
    applier = Applier(
        cast("Api", bed.server), installation="here", clock=bed.clock, repaired=bed.repairs.append
    )
    with pytest.raises(Conflict):
        await applier.sync(OWNER, desired=[child("a")], live=[])
    assert bed.server.log == ["apply a"] * ATTEMPTS


class Fought(Server):
    """A Secret to which somebody adds a key, and writes ``between`` apply and the next request."""

    between: Object | None = None

    async def apply(self, body: Object) -> Object:
        result = await super().apply({"spec": {}, **body})
        live = {**result, "data": {**body["data"], "theirs": "eA=="}}
        self.objects["a"] = {**live, "data": {**live["data"], **(self.between or {})}}
        return live

    async def patch(
        self, kind: ResourceType, namespace: str, name: str, patch: dict[str, Any]
    ) -> Object:
        self.log.append(f"patch {name}")
        live = self.objects[name]
        assert patch["metadata"] == {"uid": live["metadata"]["uid"]}
        merged = {**live["data"], **patch["data"]}
        data = {key: value for key, value in merged.items() if value is not None}
        metadata = {**live["metadata"], "resourceVersion": str(next(self._versions))}
        self.objects[name] = {**live, "metadata": metadata, "data": data}
        return self.objects[name]


async def test_who_writes_between_two_requests_of_a_repair_makes_no_more_of_them(bed: Bed) -> None:
    server = bed.server = Fought()
    applier = Applier(
        cast("Api", server), installation="here", clock=bed.clock, repaired=bed.repairs.append
    )
    desired = [{**managed(SECRET, "a", service=OWNER), "data": {"ours": "eA=="}}]
    await applier.sync(OWNER, desired=desired, live=[])
    assert server.log == ["apply a", "patch a"]
    assert server.objects["a"]["data"] == {"ours": "eA=="}

    server.log.clear()
    server.between = {"ours": "eQ=="}
    spoiled = [{**body, "data": {"ours": "eg=="}} for body in server.live()]
    assert (await applier.sync(OWNER, desired=desired, live=spoiled)).written == 1
    assert server.log == ["apply a", "patch a"]

    # What was written between is drift like any other, and waits for its turn.
    server.between = None
    waits = await applier.sync(OWNER, desired=desired, live=server.live())
    assert (waits.written, waits.retry_after) == (0, FIRST_WAIT)
    bed.clock.skip(FIRST_WAIT)
    assert (await applier.sync(OWNER, desired=desired, live=server.live())).written == 1
    assert server.objects["a"]["data"] == {"ours": "eA=="}
    assert [(repair.fields, repair.times) for repair in bed.repairs] == [
        (("data.ours",), 1),
        (("data.ours",), 2),
    ]


async def test_what_the_operator_may_not_delete_is_left_to_the_garbage_collector(bed: Bed) -> None:
    surplus = {**managed(SERVICE, "a", service=OWNER), "spec": {}}
    await bed.applier.sync(OWNER, desired=[surplus, child("b")], live=[])
    assert (await bed.applier.sync(OWNER, desired=[], live=bed.server.live())).pruned == 1
    assert list(bed.server.objects) == ["a"]


async def test_what_is_leaving_is_not_deleted_again(bed: Bed) -> None:
    await bed.applier.sync(OWNER, desired=[child("a")], live=[])
    (body,) = bed.server.live()
    leaving = {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01"}}
    assert (await bed.applier.sync(OWNER, desired=[], live=[leaving])).pruned == 0


async def test_a_service_made_anew_begins_with_nothing_remembered(bed: Bed) -> None:
    await bed.applier.sync(OWNER, desired=[child("a")], live=[])
    anew = {**OWNER, "metadata": {**OWNER["metadata"], "uid": "another"}}
    bed.server.objects.clear()
    await bed.applier.sync(anew, desired=[child("a")], live=[])
    # It asks for nothing that it could have made.
    assert bed.server.log == ["apply a", "apply a"]
    assert bed.repairs == []


async def test_a_service_that_was_forgotten_begins_with_nothing_remembered(bed: Bed) -> None:
    await bed.applier.sync(OWNER, desired=[child("a")], live=[])
    bed.applier.forget("shop", "default")
    bed.applier.forget("shop", "never-there")
    bed.server.objects.clear()
    await bed.applier.sync(OWNER, desired=[child("a")], live=[])
    assert bed.server.log == ["apply a", "apply a"]
    assert bed.repairs == []


async def test_what_another_installation_has_left_is_taken_over_without_a_word(bed: Bed) -> None:
    desired = [child("a", size=1)]
    await bed.installed("there").sync(OWNER, desired=desired, live=[])
    applied = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert (applied.written, applied.rival, bed.repairs) == (1, "", [])
    again = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert (again.written, again.rival) == (0, "")


async def test_two_installations_that_overwrite_each_other_find_each_other_out(bed: Bed) -> None:
    desired = [child("a", size=1)]
    there = bed.installed("there")
    await bed.applier.sync(OWNER, desired=desired, live=[])
    await there.sync(OWNER, desired=desired, live=bed.server.live())
    applied = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert (applied.written, applied.rival, applied.rival_for) == (1, "there", FORGOTTEN_AFTER)
    assert (await there.sync(OWNER, desired=desired, live=bed.server.live())).rival == "here"
    # As ever more rarely as any fight.
    waiting = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert (waiting.written, waiting.retry_after, waiting.rival) == (0, FIRST_WAIT, "there")
    await bed.clock.advance(FIRST_WAIT)
    await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    await bed.clock.advance(FORGOTTEN_AFTER)
    over = await bed.applier.sync(OWNER, desired=desired, live=bed.server.live())
    assert (over.written, over.rival, over.rival_for) == (0, "", None)
