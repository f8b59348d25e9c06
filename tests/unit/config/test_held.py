"""What the configuration alone tells is told when it is read: no handler holds a destination for it
later."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.handlers.gateway import UnableHandler
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.protocols import PROTOCOLS, Protocol
from pillion_sidecar.settings import PluginEndpoint
from pillion_sidecar.testing import FakeTime
from support.credential_cases import BLOCKS, OPTIONS
from support.resources import JSON, destination, secret, write

#: What a Secret can hold for each kind of credentials.
SECRETS: dict[str, dict[str, str]] = {
    "usual": {
        "username": "pillion",
        "password": "planted",
        "token": "planted",
        "key": "planted",
        "community": "planted",
        "authPassphrase": "planted-1",
        "privPassphrase": "planted-2",
        "clientId": "pillion",
        "clientSecret": "planted",
        "secret": "whsec_" + 44 * "A",
    },
    "long": {
        "username": 70_000 * "a",
        "password": 70_000 * "a",
        "token": 70_000 * "a",
        "key": 70_000 * "a",
        "community": 255 * "a",
        "authPassphrase": 1024 * "a",
        "privPassphrase": 1024 * "a",
        "clientId": 70_000 * "a",
        "clientSecret": 70_000 * "a",
        "secret": "whsec_" + 44 * "A",
    },
    "outside ASCII": {
        "username": "ü",
        "password": " : ",
        "token": "t",
        "key": 32 * "ü",
        "community": "ü",
        "authPassphrase": 8 * "ü",
        "privPassphrase": 8 * "ü",
        "clientId": "ü:",
        "clientSecret": "ü",
        "secret": "whsk_" + 43 * "A",
    },
}
RESTS = (
    "h.example",
    "h.example/",
    "h.example:99/path?query=1",
    "h.example?query=1",
    "[::1]:5",
    "[1:2:3]/",
    "127.0.0.1",
    "/a.ndjson",
    "/a/b",
    "/.a",
    "news",
    "news?query=1",
)
#: Only the command line tells which plug-ins there are.
PLUGINS = ("news", "h.example", "127.0.0.1")


class NoResolver:
    """Is not asked."""

    async def resolve(self, host: str) -> Sequence[str]:
        raise AssertionError(host)


def complaints(folder: Path, *documents: JSON) -> Sequence[Problem]:
    try:
        load_folder(write(folder, *documents))
    except ConfigurationError as refused:
        return refused.problems
    return ()


def held(folder: Path, *documents: JSON) -> str | None:
    """Why a configuration that is accepted holds its destination, or None."""
    try:
        found = load_folder(write(folder, *documents)).destinations["ops"]
    except ConfigurationError:
        return None

    async def create() -> str | None:
        time = FakeTime()
        registry = HandlerRegistry(
            clock=time,
            timers=time,
            resolver=NoResolver(),
            address_policy=AddressPolicy(allow_loopback=True),
            schema=load_schema(),
            service_name="default",
            plugins={name: PluginEndpoint(command=("true",)) for name in PLUGINS},
            delivery_folder=folder,
        )
        handler = registry.create_handler(found)
        handler.close()
        return handler.outcome.detail if isinstance(handler, UnableHandler) else None

    return asyncio.run(create())


def spec_of(protocol: Protocol, *kinds: str, **given: Any) -> JSON:
    needed = dict.fromkeys((*protocol.required_credentials, *kinds))
    credentials = {"credentials": {kind: BLOCKS[kind] for kind in needed}} if needed else {}
    return {"protocol": protocol.name, **OPTIONS.get(protocol.name, {}), **credentials, **given}


@pytest.mark.parametrize("rest", RESTS)
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda one: one.name)
def test_a_url_that_is_accepted_can_be_sent_to(
    tmp_path: Path, protocol: Protocol, rest: str
) -> None:
    found = {}
    own = (one.name for one in protocol.schemes)
    for scheme in dict.fromkeys((*own, "https", "plugin", "file")):
        url = f"{scheme}://{rest}"
        written = destination(**spec_of(protocol, destination=url))
        from_secret = destination(
            **spec_of(protocol, destination=None, destinationFrom={"secretKeyRef": {"name": "b"}})
        )
        for source, one in (("written", written), ("in a Secret", from_secret)):
            documents = (one, secret("a", SECRETS["usual"]), secret("b", {"url": url}))
            found[url, source] = held(tmp_path, *documents)
    assert {where: why for where, why in found.items() if why is not None} == {}


CREDENTIALS = [(protocol, kind) for protocol in PROTOCOLS.values() for kind in protocol.credentials]


@pytest.mark.parametrize("texts", SECRETS)
@pytest.mark.parametrize(
    ("protocol", "kind"), CREDENTIALS, ids=[f"{one.name}-{kind}" for one, kind in CREDENTIALS]
)
def test_credentials_that_are_accepted_can_be_sent(
    tmp_path: Path, protocol: Protocol, kind: str, texts: str
) -> None:
    scheme = next((one for one in protocol.schemes if one.is_secure), protocol.schemes[0])
    options = {"webhook": {"preset": "PagerDuty"}} if kind == "apiKey" else {}
    spec = spec_of(protocol, kind, destination=f"{scheme.name}://h.example", **options)
    assert held(tmp_path, destination(**spec), secret("a", SECRETS[texts])) is None


@pytest.mark.parametrize(
    ("protocol", "kind", "texts", "options", "says"),
    [
        ("Webhook", "apiKey", "usual", {"webhook": {"preset": "PagerDuty"}}, "is no routing key"),
        ("MQTT", "basic", "long", {}, "has more than 65,535 bytes"),
        ("MQTT", "bearer", "long", {}, "has more than 65,535 bytes"),
    ],
)
def test_credentials_that_cannot_be_sent_are_told_and_not_shown(
    tmp_path: Path, protocol: str, kind: str, texts: str, options: JSON, says: str
) -> None:
    declared = PROTOCOLS[protocol]
    scheme = next(one for one in declared.schemes if one.is_secure)
    spec = spec_of(declared, kind, destination=f"{scheme.name}://h.example", **options)
    one = destination(**spec)
    (problem,) = complaints(tmp_path, one, secret("a", SECRETS[texts]))
    assert (problem.field, problem.reason) == (
        f"spec.credentials.{kind}.secretRef",
        "CredentialsUnusable",
    )
    assert says in problem.message
    assert "planted" not in str(problem)
    # A Secret that lacks a key is told once.
    (problem,) = complaints(tmp_path, one, secret("a", {"username": "u"}))
    assert "has no key" in problem.message


@pytest.mark.parametrize(
    ("protocol", "url", "says"),
    [
        ("Kafka", "https://planted.example/", "has a scheme that Kafka does not have"),
        ("MQTT", "mqtts://planted.example/x", "has a path or a query"),
        ("Plugin", "plugin:///planted", "names no plug-in"),
        ("File", "file:///planted/x", "names no file"),
    ],
)
def test_a_url_in_a_secret_is_held_to_the_rules_of_its_protocol(
    tmp_path: Path, protocol: str, url: str, says: str
) -> None:
    source = {"secretKeyRef": {"name": "b"}}
    spec = spec_of(PROTOCOLS[protocol], destination=None, destinationFrom=source)
    (problem,) = complaints(tmp_path, destination(**spec), secret("b", {"url": url}))
    assert problem.field == "spec.destinationFrom.secretKeyRef.name"
    assert says in problem.message
    assert "planted" not in str(problem)


def test_a_url_in_a_secret_waits_for_a_spec_that_is_sound(tmp_path: Path) -> None:
    source = {"secretKeyRef": {"name": "b"}}
    one = destination(
        protocol="Kafka", kafka=5, credentials=7, destination=None, destinationFrom=source
    )
    found = complaints(tmp_path, one, secret("b", {"url": "https://h.example/"}))
    assert {problem.field for problem in found} == {"spec.kafka", "spec.credentials"}


@pytest.mark.parametrize(
    ("broker", "says"),
    [
        ("169.254.169.254", "address, and those are not allowed here"),
        ("h.example", None),
        ("10.0.0.1:9092", None),
        ("10.1:9092", "is an unusual spelling"),
        ("[1:2:3]", "Exactly 8 parts expected"),
    ],
)
def test_each_broker_is_held_to_the_policy_of_addresses(
    tmp_path: Path, broker: str, says: str | None
) -> None:
    options = {"topic": "alerts", "brokers": ["other.example", broker]}
    spec = spec_of(PROTOCOLS["Kafka"], destination="kafkas://h.example", kafka=options)
    found = complaints(tmp_path, destination(**spec))
    if says is None:
        assert found == ()
        return
    (problem,) = found
    assert (problem.field, problem.reason) == ("spec.kafka.brokers[1]", "AddressNotPermitted")
    assert says in problem.message


def test_a_recipient_is_named_once(tmp_path: Path) -> None:
    options = {"from": "pillion@station.example", "to": ["a@ops.example", "a@ops.example"]}
    spec = spec_of(PROTOCOLS["SMTP"], destination="smtp://h.example", smtp=options)
    (problem,) = complaints(tmp_path, destination(**spec))
    assert (problem.field, problem.message) == ("spec.smtp.to[1]", "is a duplicate")


def test_options_without_effect_on_a_url_in_a_secret_are_told(tmp_path: Path) -> None:
    source = {"secretKeyRef": {"name": "b"}}
    options = {"subject": "alerts", "tlsFirst": True}
    spec = spec_of(PROTOCOLS["NATS"], destination=None, destinationFrom=source, nats=options)
    (problem,) = complaints(tmp_path, destination(**spec), secret("b", {"url": "nats://h.example"}))
    assert "has tlsFirst, and destination is without TLS" in problem.message


@pytest.mark.parametrize(
    "protocol",
    [one for one in PROTOCOLS.values() if one.options_required],
    ids=lambda one: one.name,
)
@pytest.mark.parametrize("is_null", [False, True], ids=["absent", "null"])
def test_missing_options_beside_a_fault_elsewhere_end_nothing(
    tmp_path: Path, protocol: Protocol, is_null: bool
) -> None:
    spec = spec_of(protocol, destination="https://:80/")
    del spec[protocol.options_name]
    if is_null:
        spec[protocol.options_name] = None
    fields = {one.field for one in complaints(tmp_path, destination(**spec))}
    assert "spec.destination" in fields
