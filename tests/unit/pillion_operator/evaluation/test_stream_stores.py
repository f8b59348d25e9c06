"""NATS streams as stores of a service: its Secrets, and what is told of them (S3.11)."""

import base64
from pathlib import Path
from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.partial import concerned
from pillion_operator.evaluation.references import (
    References,
    names_secret,
    secrets_of_stores,
    stores_named,
    streams_named,
)
from pillion_operator.store import Change, Key, key_of
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import Credentials
from support.operator_objects import (
    NAMESPACE,
    SERVICE,
    destination,
    filter_of,
    secret,
    service,
    subscription,
)
from support.store_cases import stream
from unit.pillion_operator.evaluation.test_relaying import Shop, loaded

LOGIN = Key("Secret", NAMESPACE, "nats")
BASIC = {"basic": {"secretRef": {"name": "nats"}}}
STORES = {"groups": [{"name": "all", "members": [stream(credentials=BASIC)]}]}
FIELD = "spec.stores.groups[0].members[0].nats.credentials.basic.secretRef.name"


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


def stores(**more: Any) -> dict[str, Any]:
    member = stream(credentials=BASIC, tls={"caSecretRef": {"name": "ca"}}, **more)
    return {"groups": [{"name": "all", "members": [stream(name="other"), member]}]}


def login(**more: str) -> dict[str, Any]:
    texts = {"username": "pillion", "password": "planted", **more}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    return secret("nats", **data)


def shop(judge: Judge, *more: dict[str, Any]) -> Shop:
    return Shop((service(stores=STORES), filter_of(), destination(), subscription(), *more), judge)


def test_deliverers_get_the_secret_of_a_stream(judge: Judge, tmp_path: Path) -> None:
    evaluation = shop(judge, login()).evaluated("default")
    assert evaluation.verdict.accepted, evaluation.verdict
    assert LOGIN in evaluation.content
    found = loaded(evaluation, "default", tmp_path).service.stores
    assert found is not None
    (member,) = found.groups[0].members
    assert member.stream is not None
    assert member.stream.credentials == Credentials(username="pillion", password="planted")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "Label it if these stores may use it."),
        ((secret("nats"),), "has no key username"),
    ],
)
def test_what_is_wrong_with_its_secret_is_told_by_field_and_the_revision_stays(
    judge: Judge, given: tuple[dict[str, Any], ...], says: str
) -> None:
    evaluation = shop(judge, *given).evaluated("default")
    assert not evaluation.verdict.accepted
    assert evaluation.verdict.message.startswith(f"{FIELD}: ")
    assert says in evaluation.verdict.message
    assert evaluation.content == {}


def test_a_stream_is_no_gateway(judge: Judge) -> None:
    assert stores_named(service(stores=STORES)) == {}
    assert shop(judge, login()).evaluated("default").gateways == {}


def test_a_change_of_its_secret_concerns_the_service(judge: Judge) -> None:
    references = References()
    for body in (service(stores=stores()), subscription(), destination()):
        references.follow(Change(key_of(body), None, body))
    assert references.services_using(LOGIN) == {SERVICE}
    assert references.services_using(Key("Secret", NAMESPACE, "ca")) == {SERVICE}
    world = shop(judge, login())
    whole = world.evaluated("default")
    told = concerned(
        [LOGIN],
        whole,
        service=SERVICE,
        namespace=world.namespace,
        references=references,
        most=100,
    )
    assert told is None


def test_names_of_streams_and_of_their_secrets_are_read() -> None:
    body = service(stores=stores())
    assert streams_named(body) == ["other", "zone-a"]
    assert secrets_of_stores(body) == {"nats", "ca"}
    assert names_secret(FIELD)
    assert not names_secret("spec.stores.groups[0].members[0].nats.servers[0]")


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "a",
        {"groups": "a"},
        {"groups": [{"members": [{"nats": "a"}]}]},
        {"groups": [{"members": [{"nats": {"name": 1, "credentials": "a"}}]}]},
        {"groups": [{"members": [{"nats": {"tls": {"caSecretRef": "a"}}}]}]},
        {"groups": [{"members": [{"nats": {"tls": {"caSecretRef": {"name": 1}}}}]}]},
    ],
)
def test_streams_of_any_form_are_read(wrong: object) -> None:
    body = service(stores=wrong)
    assert (streams_named(body), secrets_of_stores(body)) == ([], set())
