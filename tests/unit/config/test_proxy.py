"""Which proxy a destination has: its own, its service's, or none."""

from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.schema.destination import HoldCause
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.schema.proxy import ConnectTo, Proxy
from support.resources import destination, secret, service, write

URL = "http://proxy.example:3128"
OF_SERVICE = {"url": "http://egress.example:8080", "connectTo": "Name"}


def proxy_of(folder: Path, *documents: dict[str, Any]) -> Proxy | None:
    return load_folder(write(folder, *documents)).destinations["ops"].proxy


def test_a_proxy_of_its_own_has_credentials_from_a_labelled_secret(tmp_path: Path) -> None:
    account = {"username": "pillion", "password": "planted"}
    own = destination(proxy={"url": URL, "secretRef": {"name": "login"}})
    found = proxy_of(tmp_path, own, secret("login", account))
    assert found == Proxy(url=URL, credentials=Credentials(username="pillion", password="planted"))
    assert "planted" not in repr(found)
    with pytest.raises(ConfigurationError) as refused:
        proxy_of(tmp_path, own, secret("login", account, labelled=False))
    (problem,) = refused.value.problems
    assert problem.field == "spec.proxy.secretRef.name"


def test_the_services_proxy_is_for_destinations_without_one(tmp_path: Path) -> None:
    of_service = service(proxy=OF_SERVICE)
    inherited = Proxy(url=OF_SERVICE["url"], connect_to=ConnectTo.NAME)
    assert proxy_of(tmp_path, of_service, destination()) == inherited
    assert proxy_of(tmp_path, of_service, destination(proxy={"url": URL})) == Proxy(url=URL)
    assert proxy_of(tmp_path, of_service, destination(proxy={})) is None
    assert proxy_of(tmp_path, service(), destination()) is None


def test_a_protocol_that_is_not_http_has_no_proxy(tmp_path: Path) -> None:
    syslog = destination(protocol="Syslog", destination="syslogs://host")
    assert proxy_of(tmp_path, service(proxy=OF_SERVICE), syslog) is None


def test_the_policy_of_addresses_holds_for_the_proxy(tmp_path: Path) -> None:
    own = destination(proxy={"url": "http://127.0.0.1:3128"})
    with pytest.raises(ConfigurationError) as refused:
        load_folder(write(tmp_path, own), addresses=AddressPolicy())
    (problem,) = refused.value.problems
    assert (problem.reason, problem.field) == ("AddressNotPermitted", "spec.proxy.url")


def test_the_policy_of_addresses_holds_for_the_services_proxy(tmp_path: Path) -> None:
    folder = write(tmp_path, service(proxy={"url": "http://127.0.0.1:3128"}), destination())
    with pytest.raises(ConfigurationError) as refused:
        load_folder(folder, addresses=AddressPolicy())
    (problem,) = refused.value.problems
    assert (problem.resource, problem.reason, problem.field) == (
        "IndicationService/default",
        "AddressNotPermitted",
        "spec.proxy.url",
    )
    assert load_folder(folder).service.proxy is not None


@pytest.mark.parametrize(
    ("proxy", "cause"),
    [
        ({"url": "http://proxy.example/path"}, HoldCause.DESTINATION),
        ({"url": "http://[1:2]:3128"}, HoldCause.DESTINATION),
        ({"url": "http://169.254.169.254"}, HoldCause.ADDRESS),
        ({"url": URL, "connectTo": "Nowhere"}, HoldCause.DESTINATION),
        ({"url": URL, "secretRef": {"name": "login"}}, HoldCause.CREDENTIALS),
        ({"url": URL, "secretRef": {"name": "A"}}, HoldCause.CREDENTIALS),
    ],
)
def test_the_cause_of_a_hold_names_what_is_wrong_with_the_proxy(
    tmp_path: Path, proxy: dict[str, Any], cause: HoldCause
) -> None:
    folder = write(tmp_path, destination(proxy=proxy))
    found = load_folder(folder, may_be_held=None).destinations["ops"].fault
    assert found is not None
    assert found.cause is cause
