"""A folder of resources becomes a configuration, or everything that is wrong with it."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.common import QueueFullPolicy, RemovalAction
from pillion_sidecar.config.schema.destination import (
    Backoff,
    HoldCause,
    Ordering,
    RemovalPolicy,
    RetryPolicy,
    SequenceIdentifiers,
)
from pillion_sidecar.config.schema.filter import QueryLanguage
from pillion_sidecar.config.schema.service import Acknowledgement, Durability
from pillion_sidecar.config.schema.subscription import (
    RepeatNotification,
    RepeatPolicy,
    SubscriptionState,
)
from support.resources import (
    alert_filter,
    destination,
    document,
    secret,
    service,
    subscription,
    write,
)

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "first-subscription"


def problems(folder: Path, **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_folder(folder, **options)
    assert all(problem.remedy.endswith((".", "?", ")")) for problem in caught.value.problems)
    return caught.value.problems


def only_problem(folder: Path, **options: Any) -> Problem:
    found = problems(folder, **options)
    assert len(found) == 1, [str(problem) for problem in found]
    return found[0]


def complete(tmp_path: Path, *more: dict[str, Any]) -> Path:
    return write(tmp_path, destination(), alert_filter(), subscription(), *more)


def test_the_first_example_is_valid() -> None:
    configuration = load_folder(EXAMPLE)
    assert configuration.service.name == "default"
    assert list(configuration.subscriptions) == ["major-alerts-to-operations"]
    assert configuration.destinations["operations"].protocol == "CIM-XML"
    assert configuration.warnings == ()


def test_what_is_left_out_has_the_defaults_of_the_design(tmp_path: Path) -> None:
    configuration = load_folder(complete(tmp_path))
    assert configuration.service.delivery_retry_attempts is None
    assert configuration.service.delivery_retry_interval_seconds is None
    assert configuration.service.duplicate_window_seconds is None
    # These two depend on where the deliverer runs.
    assert (configuration.service.durability, configuration.service.acknowledgement) == (None, None)
    assert configuration.service.callbacks == ()
    assert configuration.service.storage_bytes is None
    ops = configuration.destinations["ops"]
    assert ops.retry is None
    assert (ops.queue_size, ops.queue_full_policy) == (None, QueueFullPolicy.ADAPTIVE)
    assert ops.indication_lifetime_seconds is None
    assert (ops.ordering, ops.max_in_flight) == (Ordering.DESTINATION, 1)
    taken = configuration.subscriptions["alerts-to-ops"]
    assert (taken.service, taken.state) == ("default", SubscriptionState.ENABLED)
    assert taken.repeat_notification == RepeatNotification()
    assert taken.duration_seconds is None
    assert configuration.filters["alerts"].query_language is QueryLanguage.CQL


def test_a_destination_takes_from_the_service_what_it_leaves_out(tmp_path: Path) -> None:
    write(
        tmp_path,
        service(
            deliveryRetryAttempts=7,
            deliveryRetryIntervalSeconds=5,
            queueSize=99,
            queueFullPolicy="Reject",
            indicationLifetimeSeconds=600,
            shutdownGracePeriodSeconds=3,
        ),
        destination(),
        destination(
            "own",
            retry={"attempts": 0, "intervalSeconds": 1},
            queueSize=1,
            queueFullPolicy="DiscardOldest",
            indicationLifetimeSeconds=0,
        ),
    )
    configuration = load_folder(tmp_path)
    taken, own = configuration.destinations["ops"], configuration.destinations["own"]
    assert taken.retry == RetryPolicy(attempts=7, interval_seconds=5.0)
    assert (taken.queue_size, taken.queue_full_policy) == (99, QueueFullPolicy.REJECT)
    assert taken.indication_lifetime_seconds == 600.0
    assert own.retry == RetryPolicy(attempts=0, interval_seconds=1.0)
    assert (own.queue_size, own.queue_full_policy) == (1, QueueFullPolicy.DISCARD_OLDEST)
    assert own.indication_lifetime_seconds == 0.0
    assert configuration.service.shutdown_grace_period_seconds == 3.0


@pytest.mark.parametrize(
    ("of_service", "of_destination", "expected"),
    [
        ({}, {}, None),
        ({}, {"retry": {}}, None),
        ({"indicationLifetimeSeconds": 60}, {"indicationLifetimeSeconds": 30}, None),
        ({"deliveryRetryAttempts": 9}, {}, RetryPolicy(attempts=9)),
        ({"deliveryRetryIntervalSeconds": 5}, {}, RetryPolicy(interval_seconds=5.0)),
        ({}, {"retry": {"jitterPercent": 0}}, RetryPolicy()),
        ({}, {"retry": {"respectRetryAfter": False}}, RetryPolicy(respect_retry_after=False)),
        # What the CRDs of the first release wrote into stored resources counts as written.
        ({"deliveryRetryAttempts": 3, "deliveryRetryIntervalSeconds": 30}, {}, RetryPolicy()),
        (
            {},
            {"retry": {"backoff": "Fixed", "jitterPercent": 0, "respectRetryAfter": True}},
            RetryPolicy(),
        ),
    ],
)
def test_one_written_retry_field_makes_the_others_those_of_dsp1054(
    tmp_path: Path,
    of_service: dict[str, Any],
    of_destination: dict[str, Any],
    expected: RetryPolicy | None,
) -> None:
    write(tmp_path, service(**of_service), destination(**of_destination))
    assert load_folder(tmp_path).destinations["ops"].retry == expected


@pytest.mark.parametrize(
    ("of_service", "of_destination", "seconds"),
    [
        ({"deliveryRetryIntervalSeconds": 5}, {}, "15"),
        ({"deliveryRetryAttempts": 0}, {}, "0"),
        ({}, {"retry": {"attempts": 2, "intervalSeconds": 37}}, "74"),
        ({}, {"indicationLifetimeSeconds": 60}, "60"),
        ({"deliveryRetryAttempts": 1000, "indicationLifetimeSeconds": 74}, {}, "74"),
    ],
)
def test_a_retry_that_loses_something_before_the_alert_is_warned_of(
    tmp_path: Path, of_service: dict[str, Any], of_destination: dict[str, Any], seconds: str
) -> None:
    write(tmp_path, service(**of_service), destination(**of_destination))
    (warning,) = load_folder(tmp_path).warnings
    assert f"takes 75 s: ops (after {seconds} s)." in warning


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"deliveryRetryAttempts": 3, "deliveryRetryIntervalSeconds": 25},
        {"deliveryRetryAttempts": 10, "indicationLifetimeSeconds": 75},
        {"deliveryRetryAttempts": 10, "indicationLifetimeSeconds": 0},
    ],
)
def test_a_retry_that_outlasts_the_alert_is_not_warned_of(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    write(tmp_path, service(**fields), destination())
    assert load_folder(tmp_path).warnings == ()


def test_a_warning_of_many_destinations_names_the_first_ten(tmp_path: Path) -> None:
    listeners = [destination(f"d{number:02}") for number in range(30)]
    write(tmp_path, service(deliveryRetryAttempts=1), *listeners)
    (warning,) = load_folder(tmp_path).warnings
    assert "d09 (after 30 s), …." in warning
    assert "d10" not in warning


def test_every_field_of_a_destination_arrives(tmp_path: Path) -> None:
    write(
        tmp_path,
        destination(
            protocol="CloudEvents",
            timeoutSeconds=5,
            retry={
                "attempts": 2,
                "intervalSeconds": 10,
                "backoff": "Exponential",
                "maximumIntervalSeconds": 100,
                "jitterPercent": 25,
                "respectRetryAfter": False,
            },
            ordering="Group",
            maxInFlight=4,
            sequenceIdentifiers="Omit",
            suspended=True,
            removalPolicy="Drain",
        ),
    )
    ops = load_folder(tmp_path).destinations["ops"]
    assert ops.retry == RetryPolicy(
        attempts=2,
        interval_seconds=10.0,
        backoff=Backoff.EXPONENTIAL,
        maximum_interval_seconds=100.0,
        jitter=0.25,
        respect_retry_after=False,
    )
    assert (ops.protocol, ops.timeout_seconds) == ("CloudEvents", 5.0)
    assert (ops.ordering, ops.max_in_flight) == (Ordering.GROUP, 4)
    assert ops.sequence_identifiers is SequenceIdentifiers.OMIT
    assert ops.suspended
    assert ops.removal_policy is RemovalPolicy.DRAIN


def test_every_field_of_a_service_arrives(tmp_path: Path) -> None:
    write(
        tmp_path,
        service(
            "weather",
            duplicateWindowSeconds=60,
            duplicateWindowEntries=10,
            subscriptionRemovalAction="Disable",
            subscriptionRemovalTimeIntervalSeconds=3600,
            correlatedIndications=True,
            acknowledgement="Delivered",
            durability="StateOnly",
            callbacks=["https://jobs.example/receipts/", "http://localhost:8080/"],
            deliverer={"storage": {"sizeLimit": "10.5Mi"}},
        ),
    )
    found = load_folder(tmp_path).service
    assert found.name == "weather"
    assert (found.duplicate_window_seconds, found.duplicate_window_entries) == (60.0, 10)
    assert found.subscription_removal_action is RemovalAction.DISABLE
    assert found.subscription_removal_time_interval_seconds == 3600.0
    assert found.correlated_indications
    assert found.acknowledgement is Acknowledgement.DELIVERED
    assert found.durability is Durability.STATE_ONLY
    assert found.callbacks == ("https://jobs.example/receipts/", "http://localhost:8080/")
    assert found.storage_bytes == 11_010_048


def test_every_field_of_a_subscription_and_a_filter_arrives(tmp_path: Path) -> None:
    taken = subscription(
        subscriptionState="Disabled",
        onFatalErrorPolicy="Remove",
        repeatNotificationPolicy="Delay",
        repeatNotificationIntervalSeconds=60,
        repeatNotificationGapSeconds=120,
        repeatNotificationCount=5,
        repeatKey=["AlertType"],
        subscriptionDurationSeconds=3600,
    )
    taken["metadata"] |= {"creationTimestamp": "1970-01-01T00:01:00Z", "uid": "abc-1"}
    wql = alert_filter(queryLanguage="WQL", sourceNamespaces=["root/cimv2"])
    configuration = load_folder(write(tmp_path, destination(), wql, taken))
    found = configuration.subscriptions["alerts-to-ops"]
    assert found.state is SubscriptionState.DISABLED
    assert found.on_fatal_error_policy is RemovalAction.REMOVE
    assert found.repeat_notification == RepeatNotification(
        policy=RepeatPolicy.DELAY,
        interval_seconds=60.0,
        gap_seconds=120.0,
        count=5,
        key=("AlertType",),
    )
    assert (found.duration_seconds, found.created_at, found.uid) == (3600.0, 60.0, "abc-1")
    assert configuration.filters["alerts"].query_language is QueryLanguage.WQL
    assert configuration.filters["alerts"].source_namespaces == ("root/cimv2",)


def test_a_uid_is_made_from_kind_and_name_and_stays(tmp_path: Path) -> None:
    first = load_folder(complete(tmp_path))
    again = load_folder(write(tmp_path, destination(timeoutSeconds=3)))
    assert first.destinations["ops"].uid == again.destinations["ops"].uid
    assert first.destinations["ops"].uid != first.subscriptions["alerts-to-ops"].uid


def revision(folder: Path) -> str:
    return load_folder(folder).revision


def test_the_revision_tells_one_content_from_another_and_nothing_else(tmp_path: Path) -> None:
    basic = {"basic": {"secretRef": {"name": "account"}}}
    before = revision(write(tmp_path, destination(credentials=basic), secret("account", ACCOUNT)))
    os.rename(tmp_path / "resources.yaml", tmp_path / "other.yml")
    assert revision(tmp_path) == before
    (tmp_path / "other.yml").unlink()
    write(tmp_path, destination(credentials=basic), secret("account", {**ACCOUNT, "password": "2"}))
    changed = revision(tmp_path)
    assert changed != before
    write(tmp_path, destination(credentials=basic, timeoutSeconds=5), secret("account", ACCOUNT))
    assert revision(tmp_path) not in (before, changed)


ACCOUNT = {"username": "u", "password": "s3cret"}


def with_credentials(**secret_ref: Any) -> dict[str, Any]:
    return destination(credentials={"bearer": {"secretRef": {"name": "token", **secret_ref}}})


def test_credentials_come_from_a_labelled_secret(tmp_path: Path) -> None:
    write(
        tmp_path,
        destination(credentials={"basic": {"secretRef": {"name": "account"}}}),
        secret("account", ACCOUNT),
    )
    found = load_folder(tmp_path).destinations["ops"].credentials
    assert found is not None
    assert (found.username, found.password) == ("u", "s3cret")
    assert "s3cret" not in repr(load_folder(tmp_path))


def test_a_token_loses_the_newline_that_echo_left(tmp_path: Path) -> None:
    held = secret("token")
    del held["stringData"]
    held["data"] = {"token": base64.b64encode(b"abc\n").decode()}
    found = load_folder(write(tmp_path, with_credentials(), held)).destinations["ops"].credentials
    assert found is not None
    assert found.bearer_token == "abc"


def test_a_secret_without_the_label_is_never_used(tmp_path: Path) -> None:
    write(tmp_path, with_credentials(), secret("token", {"token": "s3cret"}, labelled=False))
    problem = only_problem(tmp_path)
    assert problem.reason == "CredentialsNotPermitted"
    assert problem.resource == "ListenerDestination/ops"
    assert problem.field == "spec.credentials.bearer.secretRef.name"
    assert 'pillion.dev/credentials: "true"' in problem.remedy
    assert "s3cret" not in str(problem)


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([with_credentials()], "no such Secret"),
        ([with_credentials(key="other"), secret("token", {"token": "s3cret"})], "no key other"),
        ([with_credentials(), secret("token", {"token": "s3cret\nX: y"})], "no header may hold"),
        ([with_credentials(), secret("token", {"token": ""})], "no header may hold"),
        ([with_credentials(), secret("token", {"token": "s3cret-é"})], "key token holds spaces or"),
        ([with_credentials(), secret("token", {"token": "s3cret s3cret"})], "holds spaces or"),
        (
            [
                destination(credentials={"basic": {"secretRef": {"name": "a"}}}),
                secret("a", {"username": "s3cret:x", "password": "p"}),
            ],
            "holds a colon",
        ),
        (
            [
                destination(tls={"caSecretRef": {"name": "ca"}}),
                secret("ca", {"ca.crt": "s3cret"}),
            ],
            "no certificates",
        ),
        (
            [
                destination(tls={"clientCertificateSecretRef": {"name": "c"}}),
                secret(
                    "c",
                    {"tls.crt": "-----BEGIN CERTIFICATE-----", "tls.key": "s3cret"},
                ),
            ],
            "tls.key is not in PEM",
        ),
        (
            [
                destination(tls={"clientCertificateSecretRef": {"name": "c"}}),
                secret("c", {"tls.crt": "s3cret", "tls.key": "s3cret"}),
            ],
            "tls.crt is not in PEM",
        ),
    ],
)
def test_what_is_wrong_with_a_secret_is_said_without_showing_it(
    tmp_path: Path, documents: list[dict[str, Any]], says: str
) -> None:
    problem = only_problem(write(tmp_path, *documents))
    assert says in problem.message
    assert "s3cret" not in str(problem)


def test_a_secret_that_is_not_base64_is_named(tmp_path: Path) -> None:
    held = secret("token")
    held["data"] = {"token": "s3cret!"}
    found = problems(write(tmp_path, held))
    assert [problem.field for problem in found] == ["data.token"]
    assert "base64" in found[0].message
    assert "s3cret" not in str(found[0])


def test_certificates_are_handed_on_as_they_are(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("client.example")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    options = {
        "serverName": "real.example",
        "caSecretRef": {"name": "ca"},
        "clientCertificateSecretRef": {"name": "client"},
    }
    write(
        tmp_path,
        destination(tls=options),
        secret("ca", {"ca.crt": authority.cert_pem.bytes().decode()}),
        secret(
            "client",
            {"tls.crt": chain.decode(), "tls.key": issued.private_key_pem.bytes().decode()},
        ),
    )
    tls = load_folder(tmp_path).destinations["ops"].tls
    assert tls.verify
    assert tls.server_name == "real.example"
    assert tls.ca_certificates == authority.cert_pem.bytes()
    assert tls.client_certificate == chain
    assert tls.client_key == issued.private_key_pem.bytes()


def test_a_key_that_is_not_the_certificates_is_said_at_load(tmp_path: Path) -> None:
    authority = trustme.CA()
    one, other = authority.issue_cert("a.example"), authority.issue_cert("b.example")
    documents = (
        destination(tls={"clientCertificateSecretRef": {"name": "client"}}),
        secret(
            "client",
            {
                "tls.crt": one.cert_chain_pems[0].bytes().decode(),
                "tls.key": other.private_key_pem.bytes().decode(),
            },
        ),
    )
    problem = only_problem(write(tmp_path, *documents))
    assert (problem.reason, problem.value) == ("CredentialsUnusable", "'client'")
    assert problem.field == "spec.tls.clientCertificateSecretRef.name"
    assert "tls.crt and tls.key are no certificate and its key: key values" in problem.message
    held = load_folder(tmp_path, may_be_held=None)
    assert list(held.destinations) == ["ops"]
    assert "Its destination is held until then." in held.warnings[0]


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([with_credentials()], "no such Secret"),
        (
            [with_credentials(), secret("token", {"token": "s3cret"}, labelled=False)],
            "may not be used by destinations",
        ),
        ([destination(tls={"caSecretRef": {"name": "ca"}})], "no such Secret"),
        (
            [
                destination(tls={"clientCertificateSecretRef": {"name": "c"}}),
                secret("c", {"tls.crt": "-----BEGIN CERTIFICATE-----"}),
            ],
            "has no key tls.key",
        ),
        ([destination(destination="http://169.254.169.254/")], "169.254.169.254"),
        ([destination(destination="http://[::1::2]/")], "::1::2"),
    ],
)
def test_a_fault_of_a_destination_holds_it_where_it_may(
    tmp_path: Path, documents: list[dict[str, Any]], says: str
) -> None:
    write(tmp_path, *documents, subscription(), alert_filter())
    loaded = load_folder(tmp_path, may_be_held=None)
    assert (loaded.held, [*loaded.destinations]) == ({"ops"}, ["ops"])
    assert says in loaded.warnings[0]
    assert "Its destination is held until then." in loaded.warnings[0]
    assert "s3cret" not in str(loaded.destinations["ops"])
    with pytest.raises(ConfigurationError):
        load_folder(tmp_path)


def test_a_fault_is_held_for_only_where_that_is_allowed(tmp_path: Path) -> None:
    write(tmp_path, with_credentials())
    with pytest.raises(ConfigurationError, match="no such Secret"):
        load_folder(tmp_path, may_be_held=("other",))
    held = load_folder(tmp_path, may_be_held=("ops",))
    assert held.held == {"ops"}
    fault = held.destinations["ops"].fault
    assert fault is not None
    assert fault.cause is HoldCause.CREDENTIALS
    assert "no such Secret" in fault.message


def test_a_secret_that_cannot_be_read_is_a_fault_of_all_that_name_it(tmp_path: Path) -> None:
    garbled = secret("token")
    garbled["data"] = {"token": "s3cret!"}
    bearer = with_credentials()
    other = {**bearer, "metadata": {"name": "other"}}
    write(tmp_path, bearer, other, garbled)
    with pytest.raises(ConfigurationError, match="base64"):
        load_folder(tmp_path, may_be_held=("ops",))
    assert load_folder(tmp_path, may_be_held=("ops", "other")).held == {"ops", "other"}
    write(tmp_path, garbled)
    with pytest.raises(ConfigurationError, match="base64"):
        load_folder(tmp_path, may_be_held=None)


def test_the_password_in_a_url_is_in_no_fault(tmp_path: Path) -> None:
    write(tmp_path, destination(destination="https://me:s3cret@listener.example/"))
    fault = load_folder(tmp_path, may_be_held=None).destinations["ops"].fault
    assert fault is not None
    assert "holds a user name or password" in fault.message
    assert "s3cret" not in fault.message


@pytest.mark.parametrize("spec", [{"queueSize": -1}, {"retry": {"attempts": -1}}, {"nothing": 1}])
def test_what_does_not_keep_it_from_being_sent_to_is_no_fault(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    write(tmp_path, destination(destination="http://169.254.169.254/", **spec))
    with pytest.raises(ConfigurationError):
        load_folder(tmp_path, may_be_held=None)


def test_every_problem_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    write(
        tmp_path,
        destination(
            destination="listener.example",
            protocol="cim-xml",
            timeoutSeconds="30",
            retry={"attemps": 3},
            suspended="no",
        ),
        subscription(of="missing", repeatNotificationPolicy="Suppress"),
    )
    write(tmp_path, alert_filter(query="SELECT FROM"), file="filter.json")
    found = problems(tmp_path)
    assert [(problem.file, problem.resource, problem.field) for problem in found] == [
        ("filter.json", "IndicationFilter/alerts", "spec.query"),
        ("resources.yaml", "ListenerDestination/ops", "spec.destination"),
        ("resources.yaml", "ListenerDestination/ops", "spec.protocol"),
        ("resources.yaml", "ListenerDestination/ops", "spec.timeoutSeconds"),
        ("resources.yaml", "ListenerDestination/ops", "spec.retry.attemps"),
        ("resources.yaml", "ListenerDestination/ops", "spec.suspended"),
        ("resources.yaml", "IndicationSubscription/alerts-to-ops", "spec.filterRef.name"),
        ("resources.yaml", "IndicationSubscription/alerts-to-ops", REPEATS),
        ("resources.yaml", "IndicationSubscription/alerts-to-ops", REPEATS),
    ]
    assert "Did you mean CIM-XML?" in found[2].remedy
    assert found[4].remedy == "Did you mean attempts?"
    assert found[4].reason == "UnknownField"


REPEATS = "spec.repeatNotificationPolicy"


def test_a_problem_names_file_line_resource_field_value_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: pillion.dev/v1alpha1\nkind: ListenerDestination\n"
        "metadata:\n  name: ops\nspec:\n  protocol: CIM-XML\n  destination: http://h/\n"
        "  timeoutSeconds: 0\n"
    )
    assert str(only_problem(tmp_path)) == (
        "a.yaml:8: ListenerDestination/ops: spec.timeoutSeconds: is not within 1 to 3,600 "
        "(value 0). Write a number in this range."
    )


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"queueSize": 0}, "spec.queueSize"),
        ({"queueSize": 10_000_001}, "spec.queueSize"),
        ({"deliveryRetryAttempts": -1}, "spec.deliveryRetryAttempts"),
        ({"deliveryRetryIntervalSeconds": 0}, "spec.deliveryRetryIntervalSeconds"),
        ({"deliveryRetryIntervalSeconds": 1.5}, "spec.deliveryRetryIntervalSeconds"),
        ({"correlatedIndications": 1}, "spec.correlatedIndications"),
        ({"deliveryRetryAttempts": True}, "spec.deliveryRetryAttempts"),
        ({"durability": "disk"}, "spec.durability"),
        ({"acknowledgement": "Durable", "durability": "Memory"}, "spec.acknowledgement"),
        ({"callbacks": [f"http://host-{number}/" for number in range(101)]}, "spec.callbacks"),
        ({"callbacks": ["http://host/" + "x" * 2048]}, "spec.callbacks[0]"),
        ({"callbacks": ["http://host/", "http://host/"]}, "spec.callbacks[1]"),
        ({"callbacks": ["http://host/", "http://[::1::2]/"]}, "spec.callbacks[1]"),
        ({"callbacks": ["http://256.0.0.1/"]}, "spec.callbacks[0]"),
        ({"acknowledgement": "Stable"}, "spec.acknowledgement"),
        ({"gatewayRef": "x"}, "spec.gatewayRef"),
    ],
)
def test_a_service_outside_its_bounds_is_refused(
    tmp_path: Path, changed: dict[str, Any], field: str
) -> None:
    assert only_problem(write(tmp_path, service(**changed))).field == field


@pytest.mark.parametrize(
    ("documents", "field", "says"),
    [
        ([subscription(to="other"), destination(), alert_filter()], "destinationRef", "ops"),
        ([subscription(of="other"), destination(), alert_filter()], "filterRef", "alerts"),
        (
            [subscription(serviceRef={"name": "x"}), destination(), alert_filter(), service()],
            "serviceRef",
            "default",
        ),
    ],
)
def test_a_reference_to_nothing_names_the_subscription_and_what_there_is(
    tmp_path: Path, documents: list[dict[str, Any]], field: str, says: str
) -> None:
    problem = only_problem(write(tmp_path, *documents))
    assert problem.reason == "NotFound"
    assert problem.resource == "IndicationSubscription/alerts-to-ops"
    assert problem.field == f"spec.{field}.name"
    assert says in problem.remedy


def test_a_file_that_cannot_be_read_makes_no_dangling_references(tmp_path: Path) -> None:
    write(tmp_path, subscription(), alert_filter())
    (tmp_path / "destination.yaml").write_text("kind: [\n")
    assert only_problem(tmp_path).reason == "Unreadable"


def test_a_reference_to_something_wrong_is_not_a_second_problem(tmp_path: Path) -> None:
    assert len(problems(write(tmp_path, subscription(), alert_filter(), destination(x=1)))) == 1


def test_one_name_stands_for_one_resource_of_a_kind(tmp_path: Path) -> None:
    write(tmp_path, destination(), file="a.yaml")
    write(tmp_path, destination(), alert_filter("ops"), file="b.yaml")
    problem = only_problem(tmp_path)
    assert (problem.reason, problem.file) == ("Duplicate", "b.yaml")
    assert "a.yaml:1" in problem.message


def test_resources_of_two_namespaces_do_not_mix(tmp_path: Path) -> None:
    here, there = destination(), alert_filter()
    here["metadata"]["namespace"] = "here"
    there["metadata"]["namespace"] = "there"
    problem = only_problem(write(tmp_path, here, there, subscription()))
    assert problem.field == "metadata.namespace"
    assert "here" in problem.message


def test_only_the_subscriptions_of_the_service_are_taken(tmp_path: Path) -> None:
    complete(tmp_path, service(), service("other"))
    theirs = subscription("theirs", serviceRef={"name": "other"})
    write(tmp_path, theirs, file="theirs.yaml")
    assert list(load_folder(tmp_path).subscriptions) == ["alerts-to-ops"]
    assert list(load_folder(tmp_path, service="other").subscriptions) == ["theirs"]


def test_a_single_service_need_not_be_chosen(tmp_path: Path) -> None:
    assert load_folder(write(tmp_path, service("weather"))).service.name == "weather"


def test_among_several_services_one_must_be_chosen(tmp_path: Path) -> None:
    folder = write(tmp_path, service("a"), service("b"))
    assert "--service: a, b" in only_problem(folder).remedy
    assert "'c'" in only_problem(folder, service="c").message
    assert load_folder(folder, service="b").service.name == "b"


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("http://127.0.0.1:1/", False),
        ("http://localhost/", False),
        ("http://169.254.169.254/latest", True),
        ("http://[::ffff:169.254.169.254]/", True),
        ("http://0x7f000001/", True),
        ("http://0.0.0.0/", True),
        ("http://10.0.0.1/", False),
    ],
)
def test_a_standalone_deliverer_may_deliver_to_loopback_but_not_to_metadata(
    tmp_path: Path, url: str, refused: bool
) -> None:
    write(tmp_path, destination(destination=url))
    if refused:
        assert only_problem(tmp_path).reason == "AddressNotPermitted"
    else:
        assert load_folder(tmp_path).destinations["ops"].destination == url


def test_loopback_is_refused_where_the_policy_does_not_allow_it(tmp_path: Path) -> None:
    write(tmp_path, destination(destination="http://localhost:5990/"))
    assert only_problem(tmp_path, addresses=AddressPolicy()).reason == "AddressNotPermitted"


def test_a_wrong_query_is_shown_with_its_place(tmp_path: Path) -> None:
    problem = only_problem(write(tmp_path, alert_filter(query="SELECT *\nFROM")))
    assert problem.field == "spec.query"
    assert "line 2" in problem.message


def test_a_given_maximum_is_not_less_than_the_interval_of_the_service(tmp_path: Path) -> None:
    write(
        tmp_path,
        service(deliveryRetryIntervalSeconds=60),
        destination(retry={"maximumIntervalSeconds": 30}),
    )
    assert only_problem(tmp_path).field == "spec.retry.maximumIntervalSeconds"


def test_a_long_interval_raises_the_maximum_that_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, destination(retry={"intervalSeconds": 7200}))
    assert load_folder(tmp_path).destinations["ops"].retry.maximum_interval_seconds == 7200.0


def test_lists_are_taken_apart_and_other_apis_are_left_alone(tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [destination(), alert_filter()]}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    configuration = load_folder(write(tmp_path, listed, other, subscription()))
    assert list(configuration.subscriptions) == ["alerts-to-ops"]
    assert len(configuration.warnings) == 1
    assert "ConfigMap" in configuration.warnings[0]


def test_an_item_of_a_list_knows_its_line(tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [destination(suspended=0)]}
    assert only_problem(write(tmp_path, listed)).line == 14


def test_status_and_metadata_as_a_cluster_shows_them_are_left_alone(tmp_path: Path) -> None:
    shown = destination()
    shown["status"] = {"depth": 3}
    shown["metadata"] |= {"managedFields": [], "annotations": {"a": "b"}, "generation": 4}
    assert load_folder(write(tmp_path, shown)).destinations


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "is not UTF-8"),
        (b"a: [", "not YAML"),
        (b"just a text", "is not a resource"),
        (b"metadata: {name: ops}", "apiVersion and kind are missing"),
        (b"apiVersion: pillion.dev/v1alpha1", "is missing"),
        (b"apiVersion: pillion.dev/v9\nkind: IndicationFilter", "is not a version"),
        (b"apiVersion: pillion.dev/v1alpha1\nkind: Indicationfilter", "is no kind"),
        (b"a: &a [1]\nb: [*a,*a]", "aliases"),
        (b"apiVersion: pillion.dev/v1alpha1\nkind: 3", "is not a text"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    problem = only_problem(tmp_path)
    assert says in problem.message
    assert problem.file == "a.yaml"


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        (None, "metadata.name"),
        ("ops", "metadata.name"),
        ({"name": "Ops"}, "metadata.name"),
        ({"name": 5}, "metadata.name"),
        ({"name": "ops", "uid": 5}, "metadata.uid"),
        ({"name": "ops", "creationTimestamp": "yesterday"}, "metadata.creationTimestamp"),
        ({"name": "ops", "creationTimestamp": "2026-01-31T12:00:00"}, "metadata.creationTimestamp"),
    ],
)
def test_metadata_that_cannot_be_used_is_refused(
    tmp_path: Path, metadata: object, field: str
) -> None:
    assert only_problem(write(tmp_path, {**destination(), "metadata": metadata})).field == field


@pytest.mark.parametrize("spec", [None, "text", [], 3])
def test_a_spec_that_is_no_object_is_refused(tmp_path: Path, spec: object) -> None:
    assert only_problem(write(tmp_path, {**destination(), "spec": spec})).field == "spec"


def test_a_service_needs_no_spec(tmp_path: Path) -> None:
    folder = write(tmp_path, document("IndicationService", "weather"))
    assert load_folder(folder).service.name == "weather"


def test_null_counts_as_left_out_as_in_a_cluster(tmp_path: Path) -> None:
    write(tmp_path, destination(timeoutSeconds=None, tls=None))
    assert load_folder(tmp_path).destinations["ops"].timeout_seconds == 30.0


def test_hidden_files_subfolders_and_other_names_are_not_read(tmp_path: Path) -> None:
    complete(tmp_path)
    (tmp_path / ".hidden.yaml").write_text("[")
    (tmp_path / "README.md").write_text("[")
    (tmp_path / "sub").mkdir()
    assert load_folder(tmp_path).destinations


@pytest.mark.parametrize("text", ["", "\n", "# nothing yet\n", "---\n---\n", "null"])
def test_a_file_without_a_resource_removes_nothing(tmp_path: Path, text: str) -> None:
    complete(tmp_path)
    (tmp_path / "rewritten.yaml").write_text(text)
    problem = only_problem(tmp_path)
    assert (problem.file, problem.reason) == ("rewritten.yaml", "Unreadable")
    assert problem.message == "holds no resource"
    assert "remove the file" in problem.remedy


@pytest.mark.parametrize(("name", "says"), [("nope", "not found"), ("a.yaml", "is not a folder")])
def test_a_folder_that_cannot_be_listed_is_named_whole_with_the_remedy(
    tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "a.yaml").write_text("kind: Other\n")
    with pytest.raises(ConfigurationError) as failure:
        load_folder(tmp_path / name)
    (problem,) = failure.value.problems
    assert problem.file == str(tmp_path / name)
    assert says in problem.message
    assert problem.remedy == "Name the folder that holds the resource files."


def test_the_working_folder_is_named_where_it_holds_no_resource_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as failure:
        load_folder(Path())
    assert str(failure.value.problems[0]).startswith(".: holds no resource files")


def test_a_folder_in_the_place_of_a_file_removes_nothing(tmp_path: Path) -> None:
    complete(tmp_path)
    (tmp_path / "replaced.yaml").mkdir()
    assert only_problem(tmp_path).message == "is not a regular file"


def test_a_folder_as_kubernetes_mounts_it_is_read_through_its_links(tmp_path: Path) -> None:
    (tmp_path / "..2026").mkdir()
    complete(tmp_path / "..2026")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "resources.yaml").symlink_to("..data/resources.yaml")
    assert load_folder(tmp_path).destinations


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert only_problem(tmp_path / "missing").reason == "Unreadable"
    assert "no resource files" in only_problem(tmp_path).message
    assert only_problem(tmp_path).reason == "Empty"
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    found = problems(tmp_path)
    assert [problem.file for problem in found] == ["dangling.yaml", "pipe.yaml"]
    assert found[1].message == "is not a regular file"


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = "pillion_sidecar.config.loader"
    complete(tmp_path)
    monkeypatch.setattr(f"{loader}.MOST_BYTES", 10)
    assert "is larger than" in only_problem(tmp_path).message
    monkeypatch.setattr(f"{loader}.MOST_BYTES_IN_ALL", 10)
    assert "of resources" in only_problem(tmp_path).message
    monkeypatch.setattr(f"{loader}.MOST_FILES", 0)
    assert "more than 0 files" in only_problem(tmp_path).message


def test_a_long_value_is_shortened_where_it_is_shown(tmp_path: Path) -> None:
    problem = only_problem(write(tmp_path, destination(protocol="x" * 5000)))
    assert len(str(problem)) < 400


def test_an_unknown_name_of_any_length_is_refused_shortly(tmp_path: Path) -> None:
    problem = only_problem(write(tmp_path, document("IndicationService", "a", {"x" * 100_000: 1})))
    assert len(str(problem)) < 800


def test_configurations_are_values(tmp_path: Path) -> None:
    folder = complete(tmp_path)
    assert isinstance(load_folder(folder), Configuration)
    assert load_folder(folder) == load_folder(folder)


SECRET_URL = "https://hooks.example.com/services/planted-token"


def with_url(url: str | None = SECRET_URL, **spec: Any) -> list[dict[str, Any]]:
    """A destination whose URL is in a Secret, and that Secret; None: there is none."""
    found = destination(destinationFrom={"secretKeyRef": {"name": "hook"}}, **spec)
    del found["spec"]["destination"]
    return [found] if url is None else [found, secret("hook", {"url": url})]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_url_comes_from_a_labelled_secret_and_is_not_shown(tmp_path: Path, end: str) -> None:
    configuration = load_folder(write(tmp_path, *with_url(SECRET_URL + end)))
    found = configuration.destinations["ops"]
    assert (found.destination, found.url_is_secret) == (SECRET_URL, True)
    assert "planted" not in repr(configuration)
    assert "hooks" not in repr(configuration)


@pytest.mark.parametrize(
    ("url", "spec", "says"),
    [
        (None, {}, "no such Secret"),
        ("", {}, "URL in its key url"),
        ("planted", {}, "does not begin with http://"),
        ("https://planted.example/a b", {}, "holds a character"),
        ("https://u:planted@hooks.example/", {}, "holds a user name or password"),
        ("https://planted..example/", {}, "names no host"),
        ("http://169.254.169.254/planted", {}, "names a host that is not allowed here"),
        ("http://planted.example/", {"tls": {}}, "does not fit: tls has no effect"),
        (
            "http://planted.example/",
            {"credentials": {"bearer": {"secretRef": {"name": "hook", "key": "url"}}}},
            "does not fit: credentials",
        ),
    ],
)
def test_a_url_in_a_secret_is_held_to_the_rules_and_not_shown(
    tmp_path: Path, url: str | None, spec: dict[str, Any], says: str
) -> None:
    found = problems(write(tmp_path, *with_url(url, **spec)))
    told = [one for one in found if one.field.startswith("spec.destinationFrom")]
    assert [says in f"{one.message} {one.remedy}" for one in told] == [True], found
    assert "planted" not in "".join(map(str, found))
