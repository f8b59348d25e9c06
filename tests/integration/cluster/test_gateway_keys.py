"""A key that others may have: its Secret is deleted, and another key takes its place."""

import base64
import socket
import ssl
from contextlib import closing

import pytest

from cluster.bad_days import BadDay
from cluster.convergence import World
from cluster.deliverer_pod import DelivererPod
from cluster.door import PORT, Door
from cluster.kubelet import Kubelet
from cluster.operators import OperatorProcess, Operators
from cluster.scenes import nudge
from pillion_testbed.rest import wait_until
from support.api_proxy import Asked, Refuse
from support.cluster_resources import service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

GATEWAY = service(deliverer={"mode": "Gateway"})
KEPT = "pillion-default-tls"
WITHIN = 40


def held(world: World, key: str = "tls.key") -> str:
    """What the gateway's Secret holds; nothing while there is none."""
    found = world.get("Secret", KEPT)
    return "" if found is None else base64.b64decode(found["data"][key]).decode()


def another(world: World, *before: str, what: str) -> str:
    """The key that takes the place of those before."""
    wait_until(lambda: held(world) not in ("", *before), within=WITHIN, what=what)
    return held(world)


def shown(pod: DelivererPod) -> str:
    """The certificate that a pod shows to whoever connects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((pod.address, PORT), timeout=30) as raw,
        context.wrap_socket(raw) as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
        assert certificate is not None
        return ssl.DER_cert_to_PEM_cert(certificate)


def test_a_gateway_shows_another_certificate_and_is_not_restarted(
    world: World, operators: Operators, kubelet: Kubelet
) -> None:
    operator = operators.start("--no-webhook")
    world.apply(GATEWAY)
    pod = kubelet.ready("pillion-default-0")
    door = Door(world, pod)
    assert door.publish() == 200
    first, process = held(world), pod.pid

    # What is merely spoilt is as it was.
    world.patch("Secret", KEPT, {"data": {"tls.key": base64.b64encode(b"none").decode()}})
    wait_until(lambda: held(world) == first, within=WITHIN, what="the key is as it was")

    world.delete("Secret", KEPT)
    second = another(world, first, what="another key")
    wait_until(lambda: shown(pod) == held(world, "tls.crt"), within=WITHIN, what="the pod shows it")
    assert door.publish() == 200
    assert (pod.pid, pod.restarts) == (process, 0)
    nudge(world, operator)
    assert held(world) == second
    reasons = world.reasons()
    assert {"CertificateReplaced", "DriftRepaired"} <= reasons
    replaced = [
        one for one in operator.records() if one.get("event") == "gateway-certificate-replaced"
    ]
    assert len(replaced) == 1


def test_no_replica_brings_an_old_key_back(world: World, operators: Operators) -> None:
    first, second = (operators.start("--no-webhook", "--identity", name) for name in ("one", "two"))
    world.apply(GATEWAY)
    world.converges()
    one = another(world, what="a key")
    world.delete("Secret", KEPT)
    two = another(world, one, what="another key, by the leader")
    # The standby has seen all of it, and takes up what stands there.
    assert first.stop() == 0
    until_leading(second)
    nudge(world, second)
    assert held(world) == two
    world.delete("Secret", KEPT)
    three = another(world, one, two, what="another key, by the next leader")

    # While nobody leads.
    second.kill()
    world.delete("Secret", KEPT)
    third = operators.start("--no-webhook", "--identity", "three")
    until_leading(third)
    another(world, one, two, three, what="another key, by the one after that")


def until_leading(operator: OperatorProcess) -> None:
    wait_until(
        lambda: operator.metrics()["pillion_operator_leader"] == 1, within=60, what="it leads"
    )


def test_a_write_that_is_under_way_does_not_bring_an_old_key_back(day: BadDay) -> None:
    operator = day.start()
    day.world.apply(GATEWAY)
    day.world.converges()
    first = another(day.world, what="a key")
    deleted: list[str] = []
    with closing(World(day.plane, day.world.namespace)) as other:
        # The write of a repair meets a Secret that has gone since it was seen.
        def plan(asked: Asked) -> None:
            if asked.method == "PATCH" and asked.path.endswith(KEPT) and not deleted:
                deleted.append(asked.target)
                other.delete("Secret", KEPT)

        day.proxy.plan = plan
        spoilt = {"tls.key": base64.b64encode(b"none").decode()}
        day.world.patch("Secret", KEPT, {"data": spoilt})
        another(day.world, first, "none", what="another key")
    assert deleted
    written = [asked for asked in day.proxy.writes() if asked.path.endswith(KEPT)]
    # Made, repaired in vain, made as it was, and replaced.
    assert len(written) >= 4
    key = held(day.world)
    nudge(day.world, operator)
    assert held(day.world) == key


def test_a_deletion_that_no_watch_has_told_of_is_one_all_the_same(day: BadDay) -> None:
    operator = day.start("--resync-interval", "2")
    day.world.apply(GATEWAY)
    day.world.converges()
    first = another(day.world, what="a key")
    day.proxy.plan = lambda asked: (
        Refuse(status=503) if asked.is_watch and asked.plural == "secrets" else None
    )
    day.proxy.cut_watches()
    day.world.delete("Secret", KEPT)
    another(day.world, first, what="another key, by a listing")
    day.proxy.plan = lambda _: None
    key = held(day.world)
    nudge(day.world, operator)
    assert held(day.world) == key
