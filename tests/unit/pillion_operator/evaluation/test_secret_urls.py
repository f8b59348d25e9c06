"""A listener's URL in a Secret: who is told it, and what stands for it elsewhere."""

import base64
from pathlib import Path
from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.references import References, url_of
from pillion_operator.store import Change, Key, key_of
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.destination import WITHHELD_URL
from support.operator_objects import (
    DESTINATION,
    NAMESPACE,
    filter_of,
    secret,
    service,
    subscription,
)
from support.operator_objects import destination as written
from unit.pillion_operator.evaluation.test_relaying import HUB, Shop, gateway, loaded, spec

URL = "https://hooks.example.com/services/planted"
HOOK = Key("Secret", NAMESPACE, "hook")


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


def destination(name: str = "d", *, of: str = "hook", **more: Any) -> dict[str, Any]:
    body = written(name, destinationFrom={"secretKeyRef": {"name": of, "key": "url"}}, **more)
    del body["spec"]["destination"]
    return body


def hook(url: str = URL, name: str = "hook") -> dict[str, Any]:
    return secret(name, url=base64.b64encode(url.encode()).decode())


def test_the_deliverer_gets_the_secret_and_nobody_else_the_url(
    judge: Judge, tmp_path: Path
) -> None:
    shop = Shop((service(), filter_of(), destination(), subscription(), hook()), judge)
    evaluation = shop.evaluated("default")
    assert HOOK in evaluation.content
    assert "destination" not in spec(evaluation, DESTINATION)
    found = loaded(evaluation, "default", tmp_path).destinations["d"]
    assert (found.destination, found.fault) == (URL, None)


def test_the_url_that_stands_for_it_is_one_of_its_protocol(judge: Judge, tmp_path: Path) -> None:
    plugin = destination(protocol="Plugin")
    shop = Shop((service(), filter_of(), plugin, subscription()), judge)
    evaluation = shop.evaluated("default")
    assert spec(evaluation, DESTINATION)["destination"] == "plugin://withheld.invalid/"
    found = loaded(evaluation, "default", tmp_path).destinations["d"]
    assert found.suspended
    assert found.fault is None
    assert found.url_is_hidden


@pytest.mark.parametrize("held", [(), (secret("hook", other="eA=="),), (hook("planted"),)])
def test_a_secret_that_is_missing_or_wrong_suspends_the_destination(
    judge: Judge, tmp_path: Path, held: tuple[dict[str, Any], ...]
) -> None:
    shop = Shop((service(), filter_of(), destination(), subscription(), *held), judge)
    evaluation = shop.evaluated("default")
    assert evaluation.held == {"d": "CredentialsMissing"}
    assert "planted" not in evaluation.destinations["d"].message
    configuration = loaded(evaluation, "default", tmp_path)
    found = configuration.destinations["d"]
    assert (found.destination, found.suspended, found.fault) == (WITHHELD_URL, True, None)
    assert set(configuration.subscriptions) == {"s"}


def test_sidecars_that_relay_are_not_told_it(judge: Judge, tmp_path: Path) -> None:
    relayed = destination(deliverThrough="Gateway")
    bodies = (service(gatewayRef=HUB), gateway(), filter_of(), relayed, subscription(), hook())
    shop = Shop(bodies, judge)
    evaluation = shop.evaluated("default")
    assert HOOK not in evaluation.content
    found = loaded(evaluation, "default", tmp_path).destinations["d"]
    assert (found.relay_to, found.destination) == ("hub", WITHHELD_URL)
    assert HOOK in shop.evaluated("hub").content


def test_destinations_of_one_key_are_one_listener() -> None:
    assert url_of(destination()) == url_of(destination("e"))
    assert url_of(destination(of="other")) != url_of(destination())


def test_a_change_of_the_secret_concerns_the_services_that_deliver_there() -> None:
    references = References()
    for body in (service(), filter_of(), destination(), subscription(), hook()):
        references.follow(Change(key_of(body), None, body))
    assert references.services_using(HOOK) == {Key("IndicationService", NAMESPACE, "default")}
