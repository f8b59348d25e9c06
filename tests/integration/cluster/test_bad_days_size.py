"""Configurations that are larger than one Secret, and than all of them."""

import base64
import random

import pytest

from cluster.bad_days import BadDay
from cluster.convergence import Object
from pillion_sidecar.config.rendered import MOST_PARTS, PART_SIZE
from support.cluster_resources import destination, filter_, service, subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

URL = "https://listener.example.com/events"
#: Bytes of a Secret of which nothing can be compressed; a little less than it may have.
LARGE = 380_000
#: As many as take three Secrets.
FEW = 6


def large_secret(number: int) -> Object:
    """One that a destination uses, with a certificate of nothing but noise beside its token."""
    noise = random.Random(number).randbytes(LARGE)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"large-{number}", "labels": {"pillion.dev/credentials": "true"}},
        "data": {
            "token": base64.b64encode(b"planted").decode(),
            "noise": base64.b64encode(noise).decode(),
        },
    }


def using(number: int) -> list[Object]:
    """A destination that uses the Secret of this number, and its subscription."""
    bearer = {"bearer": {"secretRef": {"name": f"large-{number}"}}}
    return [
        destination(f"{URL}/{number}", name=f"to-{number}", credentials=bearer),
        subscription(f"to-{number}", to=f"to-{number}"),
    ]


def test_a_configuration_is_spread_over_secrets_and_stays_in_force_when_it_grows_too_large(
    day: BadDay,
) -> None:
    operator = day.start()
    too_many = MOST_PARTS * PART_SIZE // LARGE + 1
    day.world.apply(service(), filter_())
    for number in range(FEW):
        day.world.apply(large_secret(number), *using(number))
    day.world.converges()
    assert len(day.world.rendered()) == 3
    small = day.world.revision()
    for number in range(FEW, too_many):
        day.world.apply(large_secret(number))
    for number in range(FEW, too_many):
        day.world.apply(*using(number))
    day.world.becomes("IndicationService", "default", "Ready", "False", "ConfigurationTooLarge")
    # What was written last is complete, and stays.
    last = day.world.revision()
    assert last is not None
    assert last == day.world.status("IndicationService", "default")["revision"]
    for number in (0, too_many - 1):
        name = f"to-{number}"
        day.world.becomes("ListenerDestination", name, "Ready", "False", "ConfigurationTooLarge")
    assert day.world.revision() == last
    for number in range(FEW, too_many):
        day.world.delete("IndicationSubscription", f"to-{number}")
    day.world.converges()
    assert day.world.revision() == small
    assert len(day.world.rendered()) == 3
    assert operator.running.exit_code() is None
