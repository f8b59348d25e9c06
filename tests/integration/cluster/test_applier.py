"""The objects of an IndicationService, made as desired on a real API server."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from pillion_operator.cluster.api import Api
from pillion_operator.cluster.applier import Applier, Invalid, NotOurs, Repair
from pillion_operator.cluster.ownership import owner_reference, service_labels
from pillion_operator.cluster.types import SECRET, Object, our_type
from pillion_operator.names import APPLIED_ANNOTATION
from pillion_testbed.kubectl import Kubectl
from support.operator_time import FakeClock

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds")]

KIND = our_type("IndicationService")


@dataclass
class Bed:
    """An IndicationService on the API server, and an applier for its objects."""

    api: Api
    owner: Object
    clock: FakeClock = field(default_factory=FakeClock)
    repairs: list[Repair] = field(default_factory=list)
    #: The verb of each write.
    writes: list[str] = field(default_factory=list)
    applier: Applier = field(init=False)

    def __post_init__(self) -> None:
        self.api = Api(self.api._client, wrote=self.writes.append)
        self.restart()

    def restart(self) -> None:
        """A new process: nothing is remembered."""
        self.applier = Applier(
            self.api, installation="here", clock=self.clock, repaired=self.repairs.append
        )

    @property
    def namespace(self) -> str:
        return str(self.owner["metadata"]["namespace"])

    def secret(self, name: str, **data: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "example.org/thing",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": dict(service_labels("default")),
                "ownerReferences": [owner_reference(self.owner)],
            },
            "data": dict(data),
        }

    async def live(self) -> list[Object]:
        found = await self.api.list(SECRET, self.namespace)
        return [{**body, "apiVersion": "v1", "kind": "Secret"} for body in found]

    async def get(self, name: str) -> Any:
        return await self.api.get(SECRET, self.namespace, name)

    def written(self) -> int:
        return len(self.writes)


@pytest.fixture
async def bed(api: Api, namespace: str) -> Bed:
    owner = await api.create(
        {
            "apiVersion": KIND.api_version,
            "kind": KIND.kind,
            "metadata": {"name": "default", "namespace": namespace},
            "spec": {},
        }
    )
    return Bed(api, owner)


async def test_what_is_desired_is_made_and_costs_nothing_once_it_is_there(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ=="), bed.secret("b", key="Yg==")]
    first = await bed.applier.sync(bed.owner, desired=desired, live=[])
    assert (first.written, first.pruned, first.refused) == (2, 0, ())
    versions = [body["metadata"]["resourceVersion"] for body in await bed.live()]
    before = bed.written()
    second = await bed.applier.sync(bed.owner, desired=desired, live=await bed.live())
    bed.restart()
    third = await bed.applier.sync(bed.owner, desired=desired, live=await bed.live())
    assert (second.written, third.written) == (0, 0)
    assert bed.written() == before
    assert [body["metadata"]["resourceVersion"] for body in await bed.live()] == versions


async def test_what_the_watch_has_not_shown_yet_is_not_written_again(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])
    stale = await bed.live()
    changed = [bed.secret("a", key="Yg==")]
    await bed.applier.sync(bed.owner, desired=changed, live=stale)
    before = bed.written()
    assert (await bed.applier.sync(bed.owner, desired=changed, live=stale)).written == 0
    assert (await bed.applier.sync(bed.owner, desired=changed, live=[])).written == 0
    assert bed.written() == before
    assert bed.repairs == []


async def test_another_process_takes_over_what_its_watch_has_not_shown_yet(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])
    bed.restart()
    applied = await bed.applier.sync(bed.owner, desired=[bed.secret("a", key="Yg==")], live=[])
    assert (applied.written, applied.refused) == (1, ())
    assert (await bed.get("a"))["data"] == {"key": "Yg=="}


async def test_what_is_no_longer_desired_of_an_object_goes_after_a_restart_too(bed: Bed) -> None:
    labelled = bed.secret("a", key="YQ==")
    labelled["metadata"]["labels"]["example.org/more"] = "yes"
    await bed.applier.sync(bed.owner, desired=[labelled], live=[])
    bed.restart()
    await bed.applier.sync(bed.owner, desired=[bed.secret("a", key="YQ==")], live=await bed.live())
    assert "example.org/more" not in (await bed.get("a"))["metadata"]["labels"]
    assert bed.repairs == []


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"data": {"key": "Yg=="}}, "data.key"),
        ({"data": {"key": None}}, "data"),
        ({"data": {"more": "Yg=="}}, "data[more]"),
        ({"metadata": {"labels": {"pillion.dev/credentials": "false"}}}, None),
        (
            {"metadata": {"annotations": {APPLIED_ANNOTATION: None}}},
            f"metadata.annotations[{APPLIED_ANNOTATION}]",
        ),
        # What is plainly ours is adopted again.
        ({"metadata": {"ownerReferences": None}}, "metadata.ownerReferences"),
        (
            {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
            "metadata.labels[app.kubernetes.io/managed-by]",
        ),
    ],
)
async def test_drift_is_repaired(bed: Bed, patch: Object, path: str | None) -> None:
    desired = [bed.secret("a", key="YQ==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])
    made = await bed.get("a")
    await bed.api.patch(SECRET, bed.namespace, "a", patch)
    applied = await bed.applier.sync(bed.owner, desired=desired, live=await bed.live())
    # A label that is not ours is not our business.
    assert applied.written == (0 if path is None else 1)
    assert [repair.fields for repair in bed.repairs] == ([] if path is None else [(path,)])
    after = await bed.get("a")
    assert after["data"] == made["data"]
    assert after["metadata"]["annotations"] == made["metadata"]["annotations"]
    assert after["metadata"]["ownerReferences"] == made["metadata"]["ownerReferences"]


async def test_labels_that_were_taken_from_it_do_not_hide_an_object_of_ours(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])
    made = await bed.get("a")
    await bed.api.patch(SECRET, bed.namespace, "a", {"metadata": {"labels": None}})
    # The watch goes by these labels, so for it the object is gone.
    applied = await bed.applier.sync(bed.owner, desired=desired, live=[])
    assert (applied.written, applied.refused) == (1, ())
    after = await bed.get("a")
    assert after["metadata"]["labels"] == made["metadata"]["labels"]
    assert [repair.body["metadata"]["uid"] for repair in bed.repairs] == [made["metadata"]["uid"]]


async def test_what_is_deleted_and_made_by_somebody_else_is_theirs(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])
    await bed.api.delete(SECRET, bed.namespace, "a")
    theirs = bed.secret("a", key="Yg==")
    del theirs["metadata"]["labels"]
    made = await bed.api.create(theirs)
    applied = await bed.applier.sync(bed.owner, desired=desired, live=[])
    assert [type(error) for error in applied.refused] == [NotOurs]
    assert await bed.get("a") == made


async def test_what_is_deleted_is_made_again(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])
    await bed.api.delete(SECRET, bed.namespace, "a")
    assert (await bed.applier.sync(bed.owner, desired=desired, live=[])).written == 1
    assert [
        (repair.body["metadata"]["name"], repair.fields, repair.times) for repair in bed.repairs
    ] == [("a", (), 1)]
    assert await bed.get("a") is not None


async def test_somebody_who_fights_makes_repairs_rarer(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])

    async def fight() -> tuple[int, float | None]:
        await bed.api.patch(SECRET, bed.namespace, "a", {"data": {"key": "Yg=="}})
        applied = await bed.applier.sync(bed.owner, desired=desired, live=await bed.live())
        return applied.written, applied.retry_after

    assert [await fight() for _ in range(3)] == [(1, None), (0, 5.0), (0, 5.0)]
    bed.clock.skip(5)
    assert [await fight() for _ in range(2)] == [(1, None), (0, 10.0)]
    # What we want to change ourselves does not wait for the end of a fight.
    changed = [bed.secret("a", key="Yw==")]
    applied = await bed.applier.sync(bed.owner, desired=changed, live=await bed.live())
    assert applied.written == 1
    assert [repair.times for repair in bed.repairs] == [1, 2]


async def test_what_is_no_longer_desired_is_deleted_and_others_objects_stay(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ=="), bed.secret("b", key="Yg==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])
    labels_only = bed.secret("labels-only")
    del labels_only["metadata"]["ownerReferences"]
    owner_only = bed.secret("owner-only")
    del owner_only["metadata"]["labels"]
    for body in (labels_only, owner_only):
        await bed.api.create(body)
    stale = await bed.live()
    applied = await bed.applier.sync(bed.owner, desired=desired[:1], live=stale)
    assert (applied.written, applied.pruned) == (0, 1)
    assert {body["metadata"]["name"] for body in await bed.live()} == {
        "a",
        "labels-only",
        "owner-only",
    }
    before = bed.written()
    assert (await bed.applier.sync(bed.owner, desired=desired[:1], live=stale)).pruned == 0
    assert bed.written() == before


async def test_an_object_that_was_made_anew_meanwhile_is_not_deleted(bed: Bed) -> None:
    await bed.applier.sync(bed.owner, desired=[bed.secret("a", key="YQ==")], live=[])
    stale = await bed.live()
    await bed.api.delete(SECRET, bed.namespace, "a")
    await bed.api.create(bed.secret("a", key="Yg=="))
    assert (await bed.applier.sync(bed.owner, desired=[], live=stale)).pruned == 0
    assert await bed.get("a") is not None


@pytest.mark.parametrize("known", [True, False])
async def test_what_is_not_ours_is_never_taken_over(bed: Bed, known: bool) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a", "namespace": bed.namespace},
        "data": {"key": "Yg=="},
    }
    made = await bed.api.create(foreign)
    live = await bed.live() if known else []
    desired = [bed.secret("a", key="YQ=="), bed.secret("b", key="YQ==")]
    applied = await bed.applier.sync(bed.owner, desired=desired, live=live)
    assert [type(error) for error in applied.refused] == [NotOurs]
    assert "Secret a: there is one already" in str(applied.refused[0])
    assert applied.written == 1
    assert await bed.get("a") == made


async def test_children_of_an_earlier_service_of_that_name_are_taken_over(bed: Bed) -> None:
    # In a version that is not served: the garbage collector cannot look the owner up, and leaves
    # its objects. Otherwise it would delete them, sooner or later than the next line.
    earlier = f"{KIND.api_version.partition('/')[0]}/v1alpha0"
    metadata = {**bed.owner["metadata"], "uid": "earlier"}
    before = Bed(bed.api, {**bed.owner, "apiVersion": earlier, "metadata": metadata})
    await before.applier.sync(before.owner, desired=[before.secret("a", key="YQ==")], live=[])
    made = await bed.get("a")
    desired = [bed.secret("a", key="Yg==")]
    applied = await bed.applier.sync(bed.owner, desired=desired, live=await bed.live())
    assert (applied.refused, applied.written, bed.repairs) == ((), 1, [])
    after = await bed.get("a")
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
    owners = [one["uid"] for one in after["metadata"]["ownerReferences"]]
    assert owners == [bed.owner["metadata"]["uid"]]


async def test_an_object_made_anew_by_others_between_look_and_write_is_theirs(bed: Bed) -> None:
    desired = [bed.secret("a", key="YQ==")]
    await bed.applier.sync(bed.owner, desired=desired, live=[])
    stale = await bed.live()
    await bed.api.delete(SECRET, bed.namespace, "a")
    theirs = bed.secret("a", key="Yg==")
    del theirs["metadata"]["labels"]
    del theirs["metadata"]["ownerReferences"]
    made = await bed.api.create(theirs)
    changed = [bed.secret("a", key="Yw==")]
    applied = await bed.applier.sync(bed.owner, desired=changed, live=stale)
    assert [type(error) for error in applied.refused] == [NotOurs]
    assert await bed.get("a") == made


async def test_a_change_that_cannot_be_made_is_refused_without_what_is_secret(bed: Bed) -> None:
    await bed.applier.sync(bed.owner, desired=[bed.secret("a", key="c2VjcmV0")], live=[])
    other = {**bed.secret("a", key="c2VjcmV0"), "type": "example.org/another"}
    applied = await bed.applier.sync(bed.owner, desired=[other], live=await bed.live())
    (error,) = applied.refused
    assert isinstance(error, Invalid)
    assert "delete the Secret" in str(error)
    assert "c2VjcmV0" not in json.dumps(str(error))


# The collector learns of new kinds every 30 s, and rests for as long on a fresh control plane.
@pytest.mark.timeout(180)
async def test_the_collector_deletes_what_was_made_for_a_service_that_is_gone(
    bed: Bed, kubectl: Kubectl
) -> None:
    await bed.applier.sync(bed.owner, desired=[bed.secret("a", key="YQ==")], live=[])
    await bed.api.delete(KIND, bed.namespace, "default")
    await asyncio.to_thread(kubectl.wait, "secret/a", "--for=delete", within=150)
    assert await bed.get("a") is None
