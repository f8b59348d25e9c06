"""What ends a subscription changes its status alone, and a change of its spec begins it anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.convergence import World
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import becomes, deliverer_pod, publish, serving
from pillion_testbed.kubectl import Kubectl
from support.cluster_resources import destination, filter_, service, subscription
from support.processes import ListenerProcess, listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SUBSCRIPTION = ("IndicationSubscription", "alerts-to-operations")
#: Nobody listens there.
NOWHERE = "http://127.0.0.1:1/"


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[ListenerProcess]:
    with listener_process(tmp_path) as running:
        yield running


def state_column(kubectl: Kubectl) -> str:
    """What ``kubectl get`` shows of the subscription under State."""
    head, row = kubectl.run("get", "indsub", SUBSCRIPTION[1]).splitlines()
    return row.split()[head.split().index("STATE")]


def generation(world: World) -> int:
    """It grows with each change of the spec."""
    return int((world.get(*SUBSCRIPTION) or {})["metadata"]["generation"])


def ended(world: World, kubectl: Kubectl, state: str, reason: str) -> None:
    """Wait for the end of the subscription, and for all that tells of it."""
    becomes(world, *SUBSCRIPTION, subscriptionState=state)
    world.becomes(*SUBSCRIPTION, "Ready", "False", reason)
    assert generation(world) == 1
    assert state_column(kubectl) == state
    world.until(
        lambda: SUBSCRIPTION not in (world.content() or {}), "it is out of the configuration"
    )
    world.until(lambda: f"Subscription{state}" in world.reasons(), "an Event")


def begun_anew(world: World, **spec: object) -> None:
    """Change the spec, and wait for the subscription to be in force again."""
    world.patch(*SUBSCRIPTION, {"spec": spec})
    becomes(world, *SUBSCRIPTION, subscriptionState="Enabled")
    world.becomes(*SUBSCRIPTION, "Ready", "True")
    world.until(lambda: SUBSCRIPTION in (world.content() or {}), "it is in the configuration")
    world.until(lambda: "SubscriptionEnabled" in world.reasons(), "an Event")


def test_a_lasting_failure_ends_a_subscription_that_wants_it_so_until_its_spec_is_changed(
    world: World,
    operators: Operators,
    kubectl: Kubectl,
    kubelet: Kubelet,
    listener: ListenerProcess,
) -> None:
    first = operators.start("--no-webhook")
    world.apply(
        service(),
        filter_(),
        destination(NOWHERE),
        subscription(onFatalErrorPolicy="Disable", failureTriggerTimeIntervalSeconds=1),
        deliverer_pod(),
    )
    url = serving(world, kubelet.ready("publisher"))
    publish(url, ack="accepted")
    ended(world, kubectl, "Disabled", "FatalError")

    # The deliverer no longer knows of the subscription; its status does.
    assert first.stop() == 0
    operators.start("--no-webhook")
    world.patch("ListenerDestination", "operations", {"spec": {"timeoutSeconds": 12}})
    world.becomes("ListenerDestination", "operations", "Ready", "True", "NotUsed")
    assert state_column(kubectl) == "Disabled"

    world.apply(destination(listener.url, timeoutSeconds=12))
    begun_anew(world, onFatalErrorPolicy="Ignore")
    world.converges()
    publish(url)
    assert len(listener.record()) == 1


def test_a_subscription_ends_after_its_duration(
    world: World, operators: Operators, kubectl: Kubectl
) -> None:
    operators.start("--no-webhook")
    world.apply(
        service(),
        filter_(),
        destination("https://listener.example.com/"),
        subscription(subscriptionDurationSeconds=4),
    )
    becomes(world, *SUBSCRIPTION, subscriptionState="Enabled")
    ended(world, kubectl, "Expired", "Expired")
    begun_anew(world, subscriptionDurationSeconds=3600)


def test_a_listener_that_fails_for_too_long_ends_the_subscriptions_that_lead_to_it(
    world: World,
    operators: Operators,
    kubectl: Kubectl,
    kubelet: Kubelet,
    listener: ListenerProcess,
) -> None:
    operators.start("--no-webhook")
    listener.behave(status=503)
    world.apply(
        service(
            deliveryRetryAttempts=1000,
            subscriptionRemovalAction="Remove",
            subscriptionRemovalTimeIntervalSeconds=2,
        ),
        filter_(),
        destination(listener.url),
        subscription(),
        deliverer_pod(),
    )
    url = serving(world, kubelet.ready("publisher"))
    publish(url, ack="accepted")
    ended(world, kubectl, "Removed", "ListenerFailing")
    listener.behave()
    begun_anew(world, onFatalErrorPolicy="Disable")
    world.converges()
    publish(url)
    assert len(listener.record()) == 1
