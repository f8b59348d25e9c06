"""To which object a status is written."""

from typing import Any, cast

import pytest

from pillion_operator.cluster.api import Api, Conflict
from pillion_operator.controllers.status_writer import StatusWriter
from pillion_operator.events import EventRecorder
from pillion_operator.status.conditions import Condition
from pillion_operator.store import Key, Store
from support.operator_fakes import FakeApi
from support.operator_time import FakeClock

KEY = Key("IndicationService", "shop", "default")
READY = Condition("Ready", "True", "InForce", "It is.")


@pytest.fixture
def api() -> FakeApi:
    fake = FakeApi()
    fake.put(service())
    return fake


def service() -> dict[str, Any]:
    return {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": KEY.kind,
        "metadata": {"namespace": KEY.namespace, "name": KEY.name},
        "spec": {},
    }


def writer_to(fake: FakeApi) -> StatusWriter:
    api, clock = cast("Api", fake), FakeClock()
    return StatusWriter(
        api=api,
        store=Store(),
        recorder=EventRecorder(api, instance="one", clock=clock, dropped=lambda: None),
        clock=clock,
        requeue=lambda _key, _seconds: None,
    )


async def test_a_status_goes_to_the_object_that_was_judged(api: FakeApi) -> None:
    body = api.objects[KEY]
    await writer_to(api).write(body, [READY], {"deliverers": 3})
    ((verb, key, patch),) = api.writes
    assert (verb, key) == ("patch status", KEY)
    assert patch["metadata"] == {"uid": body["metadata"]["uid"]}
    assert api.objects[KEY]["status"]["deliverers"] == 3


async def test_one_made_anew_under_the_name_does_not_get_the_status_of_the_one_before(
    api: FakeApi,
) -> None:
    judged = api.objects[KEY]
    api.remove(KEY)
    api.put(service())
    with pytest.raises(Conflict):
        await writer_to(api).write(judged, [READY], {"deliverers": 3})
    assert api.objects[KEY].get("status") is None
