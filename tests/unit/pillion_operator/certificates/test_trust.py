"""By what publishers and gateways know each other, in the objects of a service."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509

from pillion_operator.certificates.authority import KeyPair, new_ca, serving_certificate
from pillion_operator.certificates.gateways import NOTHING, Trust, hosts, standing
from pillion_operator.cluster.ownership import belongs
from pillion_operator.desired.objects import desired_objects
from pillion_sidecar.config.rendered import pack, render
from support.desired import DEFAULTS, indication_service

NOW = 1_800_000_000.0
CA = new_ca(name="ca", now=NOW)
GATEWAY = indication_service("alerts", mode="Gateway")
SIDECARS = indication_service("alerts", mode="Sidecar")


def serving(service: dict[str, Any] = GATEWAY) -> KeyPair:
    return serving_certificate(CA, name="pillion-alerts", hosts=hosts(service), now=NOW)


FULL = Trust(gateway_ca=CA.certificate, token_keys=b'{"keys":[]}', serving=serving())


def made(service: dict[str, Any], trust: Trust) -> dict[tuple[str, str], Any]:
    objects = desired_objects(service, pack(render([])), token="t", defaults=DEFAULTS, trust=trust)
    return {(body["kind"], body["metadata"]["name"]): body for body in objects}


def files(body: Any) -> dict[str, bytes]:
    return {name: base64.b64decode(value) for name, value in body["data"].items()}


def test_a_gateway_gets_keys_authorities_and_its_certificate() -> None:
    objects = made(GATEWAY, FULL)
    first = files(objects["Secret", "pillion-alerts-0"])
    assert first["gateway-ca.crt"] == CA.certificate
    assert first["token-keys.json"] == b'{"keys":[]}'
    secret = objects["Secret", "pillion-alerts-tls"]
    assert secret["type"] == "kubernetes.io/tls"
    assert FULL.serving is not None
    assert files(secret) == {
        "tls.crt": FULL.serving.certificate,
        "tls.key": FULL.serving.key,
        "ca.crt": CA.certificate,
    }
    assert belongs(secret, GATEWAY)


def test_no_destination_may_use_a_gateways_certificate() -> None:
    secret = made(GATEWAY, FULL)["Secret", "pillion-alerts-tls"]
    assert secret["metadata"]["labels"]["pillion.dev/credentials"] != "true"


def test_publishers_without_a_sidecar_find_the_authorities_in_a_config_map() -> None:
    found = made(GATEWAY, FULL)["ConfigMap", "pillion-alerts"]
    assert found["data"] == {"ca.crt": CA.certificate.decode()}
    assert belongs(found, GATEWAY)


def test_a_service_of_sidecars_gets_the_authorities_alone() -> None:
    objects = made(SIDECARS, Trust(gateway_ca=CA.certificate))
    assert list(objects) == [("Secret", "pillion-alerts-0")]
    assert "gateway-ca.crt" in files(objects["Secret", "pillion-alerts-0"])
    assert "token-keys.json" not in files(objects["Secret", "pillion-alerts-0"])


def test_of_what_is_not_known_nothing_is_made() -> None:
    objects = made(GATEWAY, NOTHING)
    assert not {("ConfigMap", "pillion-alerts"), ("Secret", "pillion-alerts-tls")} & objects.keys()
    assert files(objects["Secret", "pillion-alerts-0"]).keys() >= {"operator-token"}


def test_the_revision_is_of_the_configuration_alone() -> None:
    with_, without = made(GATEWAY, FULL), made(GATEWAY, NOTHING)
    key = ("Secret", "pillion-alerts-0")
    for name in ("annotations", "labels"):
        assert with_[key]["metadata"][name] == without[key]["metadata"][name]


def test_new_authorities_and_keys_restart_no_pod() -> None:
    key = ("StatefulSet", "pillion-alerts")
    assert made(GATEWAY, FULL)[key] == made(GATEWAY, NOTHING)[key]


def test_what_stands_there_is_read_again() -> None:
    live = [*made(GATEWAY, FULL).values()]
    assert standing(GATEWAY, live) == FULL
    # Another service's, or an earlier one's of this name, is not its own.
    assert standing(indication_service("other", mode="Gateway"), live) == NOTHING
    metadata = {**GATEWAY["metadata"], "uid": "another"}
    assert standing({**GATEWAY, "metadata": metadata}, live) == NOTHING


@pytest.mark.parametrize("spoilt", ["tls.crt", "tls.key"])
def test_a_certificate_that_somebody_has_spoilt_does_not_stand(spoilt: str) -> None:
    objects = made(GATEWAY, FULL)
    objects["Secret", "pillion-alerts-tls"]["data"][spoilt] = "?"
    assert standing(GATEWAY, objects.values()) == replace(FULL, serving=None)


def test_each_part_makes_another_mark() -> None:
    others = [
        replace(FULL, gateway_ca=b"other"),
        replace(FULL, token_keys=b"other"),
        replace(FULL, serving=serving()),
        replace(FULL, serving=None),
        NOTHING,
    ]
    assert len({trust.mark for trust in (FULL, *others)}) == 6
    assert "PRIVATE" not in repr(FULL)


def test_the_certificate_is_for_all_names_by_which_a_gateway_is_reached() -> None:
    certificate = x509.load_pem_x509_certificate(serving().certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "pillion-alerts",
        "pillion-alerts.shop",
        "pillion-alerts.shop.svc",
        "pillion-alerts.shop.svc.cluster.local",
        "*.pillion-alerts-headless.shop.svc",
        "*.pillion-alerts-headless.shop.svc.cluster.local",
        "localhost",
    ]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
