"""What `kubectl apply` refuses beyond the schema, and of what it warns."""

from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_operator.controllers.admission import Admission
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Parsing
from pillion_operator.injection.webhook import Opinion
from pillion_operator.store import Key, Store
from pillion_sidecar.config.addresses import AddressPolicy
from support.operator_objects import (
    NAMESPACE,
    config_map,
    destination,
    filter_of,
    made,
    secret,
    service,
    subscription,
)
from support.store_cases import stream


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


def opinion(judge: Judge, body: dict[str, Any], *there: dict[str, Any]) -> Opinion:
    store = Store()
    for one in there:
        store.put(one)
    return Admission(store=store, parsing=Parsing(), judge=judge).of(body, namespace=NAMESPACE)


def test_what_is_right_is_taken_without_a_word(judge: Judge) -> None:
    whole = [service(), destination(), filter_of(), subscription()]
    for body in whole:
        assert opinion(judge, body, *whole) == Opinion()


@pytest.mark.parametrize(
    "query",
    [
        "SELEC * FROM CIM_AlertIndication",
        "SELECT * FROM CIM_AlertIndication WHERE Nonsense = 1",
        "SELECT * FROM CIM_AlertIndication WHERE (PerceivedSeverity > 5",
        "SELECT * FROM CIM_AlertIndication; DROP TABLE x",
    ],
)
def test_a_query_that_is_wrong_everywhere_is_refused(judge: Judge, query: str) -> None:
    found = opinion(judge, filter_of(query=query), service())
    assert found.refusal.startswith("spec.query: ")


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://0x7f.1/", "http://[::1::2]/"])
def test_an_address_that_cel_cannot_judge_is_refused(judge: Judge, url: str) -> None:
    assert opinion(judge, destination(destination=url)).refusal.startswith("spec.destination: ")


def test_every_missing_reference_is_warned_of_and_none_refused(judge: Judge) -> None:
    found = opinion(judge, subscription())
    assert found.refusal == ""
    assert len(found.warnings) == 3
    assert all("in this namespace. Create it" in warning for warning in found.warnings)


def test_a_secret_that_is_missing_is_a_warning(judge: Judge) -> None:
    credentials = {"bearer": {"secretRef": {"name": "nope"}}}
    found = opinion(
        judge, destination(destination="https://x.example.org/", credentials=credentials)
    )
    assert found.refusal == ""
    assert "nope" in found.warnings[0]


def test_a_secret_of_a_stream_that_is_missing_is_a_warning(judge: Judge) -> None:
    member = stream(credentials={"basic": {"secretRef": {"name": "nope"}}})
    writing = service(stores={"groups": [{"name": "all", "members": [member]}]})
    found = opinion(judge, writing)
    assert found.refusal == ""
    assert "nope" in found.warnings[0]
    login = secret("nope", username="YQ==", password="Yg==")
    assert opinion(judge, writing, login) == Opinion()
    member["nats"]["servers"] = ["tls://169.254.169.254"]
    assert "nats.servers[0]: " in opinion(judge, writing, login).refusal


def test_an_unknown_class_is_warned_of_unless_a_service_declares_it(judge: Judge) -> None:
    unknown = filter_of(query="SELECT * FROM ACME_Alert")
    assert "ACME_Alert" in opinion(judge, unknown, service()).warnings[0]
    declared = {"name": "ACME_Alert", "superclass": "CIM_AlertIndication"}
    assert opinion(judge, unknown, service(classes=[declared])) == Opinion()


def test_gateways_and_selectors_are_warned_of(judge: Judge) -> None:
    selector = {"podSelector": {"matchLabels": {"app": "a"}}}
    other = service("other", deliverer=selector)
    found = opinion(
        judge,
        service("default", gatewayRef={"name": "default"}, deliverer=selector),
        other,
    )
    assert found.refusal == ""
    assert any("names the service itself" in warning for warning in found.warnings)
    assert any("IndicationService other" in warning for warning in found.warnings)


def test_a_retry_shorter_than_the_alert_is_warned_of(judge: Judge) -> None:
    short = {"attempts": 1, "intervalSeconds": 5}
    (warning,) = opinion(judge, destination(retry=short)).warnings[:1]
    assert "before a Prometheus alert can fire" in warning
    hasty = service(deliveryRetryAttempts=1, deliveryRetryIntervalSeconds=5)
    assert "before a Prometheus alert can fire" in opinion(judge, hasty).warnings[0]


def mof_from(*names: str) -> dict[str, Any]:
    named = [{"configMapRef": {"name": name, "key": "classes.mof"}} for name in names]
    return service(mofFrom=named)


def test_a_service_takes_classes_from_a_config_map_without_a_word(judge: Judge) -> None:
    declared = config_map("class ACME_Alert : CIM_AlertIndication { };")
    assert opinion(judge, mof_from("classes"), declared) == Opinion()


@pytest.mark.parametrize(
    ("mof", "said"),
    [
        ("class ACME_Alert {", "ConfigMap classes"),
        ("class ACME_Alert : Nope_Class { };", "Nope_Class"),
    ],
)
def test_wrong_classes_of_a_config_map_are_warned_of(judge: Judge, mof: str, said: str) -> None:
    found = opinion(judge, mof_from("classes"), config_map(mof))
    assert found.refusal == ""
    assert said in found.warnings[0]


def test_a_config_map_that_is_not_there_is_warned_of_and_the_rest_is_judged(judge: Judge) -> None:
    found = opinion(judge, mof_from("absent"))
    assert found.refusal == ""
    assert "ConfigMap absent" in found.warnings[0]
    body = mof_from("absent")
    body["spec"]["mof"] = "class ACME_Alert {"
    assert opinion(judge, body).warnings
    body["spec"]["callbacks"] = ["http://[::1::2]/"]
    assert opinion(judge, body).refusal.startswith("spec.callbacks[0]: ")


def test_whose_retry_is_short_is_said(judge: Judge) -> None:
    hasty = service(deliveryRetryAttempts=1, deliveryRetryIntervalSeconds=5)
    (warning,) = opinion(judge, hasty).warnings
    assert "of IndicationService default, a listener" in warning


def replay(**spec: Any) -> dict[str, Any]:
    whole = {"destinationRef": {"name": "d"}, "from": "2026-01-31T12:00:00Z", **spec}
    return made(Key("IndicationReplay", NAMESPACE, "r"), whole)


def test_a_replay_of_a_time_that_ends_before_it_begins_is_refused(judge: Judge) -> None:
    there = (service(), destination())
    assert opinion(judge, replay(), *there) == Opinion()
    for until in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+02:00"):
        assert opinion(judge, replay(until=until), *there).refusal.startswith("spec.until: ")


def test_a_replay_is_warned_of_what_is_missing_and_what_is_not_kept(judge: Judge) -> None:
    found = opinion(judge, replay(filterRef={"name": "f"}))
    assert [warning.split(" does")[0] for warning in found.warnings] == [
        "IndicationFilter f",
        "ListenerDestination d",
        "IndicationService default",
    ]
    delivered = replay(results=["Delivered"])
    for body, history, warned in (
        (delivered, {}, "no delivered indication"),
        (delivered, {"bodies": "All"}, None),
        (replay(), {}, None),
        (replay(), {"bodies": "None"}, "no indication"),
    ):
        opened = opinion(judge, body, service(history=history), destination())
        assert opened.refusal == ""
        assert [warned in warning for warning in opened.warnings if warned] == [True] * bool(warned)
