"""Resources that do not fit together, or not yet: told in conditions, healed by what is missing.

A circle cannot be written: subscriptions name services, filters and destinations, destinations name
Secrets, and none of those names anything. So there is no test of one.
"""

from itertools import permutations

import pytest

from cluster.bad_days import BadDay, looked_at_everything
from cluster.convergence import Object
from support.cluster_resources import credentials, destination, filter_, service, subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

URL = "https://listener.example.com/events"
BEARER = {"bearer": {"secretRef": {"name": "token"}}}


def a_set(suffix: str = "") -> list[Object]:
    """One of each, which need each other, with names of their own."""
    token = {"bearer": {"secretRef": {"name": f"token{suffix}"}}}
    return [
        service(f"default{suffix}"),
        filter_(f"alerts{suffix}"),
        destination(URL, name=f"operations{suffix}", credentials=token),
        subscription(
            f"to{suffix}",
            to=f"operations{suffix}",
            of=f"alerts{suffix}",
            by=f"default{suffix}",
        ),
        credentials(f"token{suffix}"),
    ]


def test_whatever_comes_first_everything_is_accepted_and_ready_in_the_end(day: BadDay) -> None:
    operator = day.start()
    orders = [
        [a_set(f"-{number}")[place] for place in order]
        for number, order in enumerate(permutations(range(5)))
    ]
    # The first of all orders, then the second of all: each order has its operator look at what is
    # not complete yet.
    for step in range(5):
        day.world.apply(*(order[step] for order in orders))
    day.world.converges(*(f"default-{number}" for number in range(len(orders))))
    assert operator.stop() == 0
    written = len(day.writes())
    # Two for each status and one for each Secret, more where it was told what is missing.
    assert written < 20 * len(orders)
    again = day.start()
    day.world.until(lambda: looked_at_everything(day, again), "all is looked at after a restart")
    assert len(day.writes()) == written


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("IndicationService", "ServiceNotFound"),
        ("IndicationFilter", "FilterNotFound"),
        ("ListenerDestination", "DestinationNotFound"),
        ("Secret", "DestinationNotAccepted"),
    ],
)
def test_what_is_missing_is_told_and_heals(day: BadDay, missing: str, reason: str) -> None:
    day.start()
    absent = next(one for one in a_set() if one["kind"] == missing)
    day.world.apply(*(one for one in a_set() if one is not absent and one["kind"] != missing))
    day.world.becomes("IndicationSubscription", "to", "Accepted", "False", reason)
    day.world.apply(absent)
    day.world.converges()
    # And back: what is taken away is missed again, and healed again.
    day.world.delete(missing, absent["metadata"]["name"])
    day.world.becomes("IndicationSubscription", "to", "Accepted", "False", reason)
    day.world.apply(absent)
    day.world.converges()


def test_two_subscriptions_of_the_same_are_both_served(day: BadDay) -> None:
    day.start()
    day.world.apply(*a_set(), subscription("again"))
    day.world.converges()
    names = {name for kind, name in day.world.content() or {} if kind == "IndicationSubscription"}
    assert names == {"to", "again"}


def test_the_secret_under_a_destination_comes_goes_and_changes(day: BadDay) -> None:
    day.start()
    other = [
        destination(URL, name="other"),
        subscription("to-other", to="other", of="alerts"),
    ]
    day.world.apply(*a_set(), *other)
    day.world.apply(credentials("unlabelled", permitted=False, token="never-read"))
    day.world.converges()

    def cut_off() -> None:
        """The destination keeps its queue and sends nothing, and the rest goes on."""
        day.world.becomes(
            "ListenerDestination", "operations", "Accepted", "False", "CredentialsNotPermitted"
        )
        day.world.until(
            lambda: not any(kind == "Secret" for kind, _ in day.world.content() or {}),
            "the configuration holds no Secret",
        )
        held = (day.world.content() or {})["ListenerDestination", "operations"]
        assert held["suspended"] is True
        assert "credentials" not in held
        day.world.becomes(
            "ListenerDestination", "operations", "Delivering", "False", "CredentialsMissing"
        )
        day.world.becomes("ListenerDestination", "other", "Ready", "True")

    for unlabelled in (None, "false", "TRUE"):
        patch = {"metadata": {"labels": {"pillion.dev/credentials": unlabelled}}}
        day.world.patch("Secret", "token", patch)
        cut_off()
        day.world.apply(credentials("token"))
        day.world.converges()
    day.world.delete("Secret", "token")
    cut_off()
    day.world.apply(credentials("token", token="another"))
    day.world.converges()
    before = day.world.revision()
    day.world.apply(credentials("token", token="a-third"))
    day.world.until(lambda: day.world.revision() != before, "the changed Secret is rendered")
    day.world.converges()
    day.world.patch(
        "ListenerDestination",
        "other",
        {"spec": {"credentials": {"bearer": {"secretRef": {"name": "unlabelled"}}}}},
    )
    day.world.becomes(
        "ListenerDestination", "other", "Accepted", "False", "CredentialsNotPermitted"
    )
    read = [
        one.uri
        for one in day.requests()
        if one.resource == "secrets"
        and one.namespace == day.world.namespace
        and one.verb in ("get", "list", "watch")
    ]
    assert read
    assert [uri for uri in read if "labelSelector=" not in uri] == []
