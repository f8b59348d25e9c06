"""From a destination to its handler."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_cim.schema import load_schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.config.signing import SigningKey
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.handlers.cimxml import CIMXMLHandler
from pillion_sidecar.handlers.cloudevents import CloudEventsHandler
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.redaction import DiscreetHandler
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.handlers.relay import RelayHandler
from pillion_sidecar.handlers.transport.connector import TLSContexts, build_context
from pillion_sidecar.handlers.webhook import WebhookHandler
from pillion_sidecar.protocols import Protocol
from pillion_sidecar.protocols.declaration import http_schemes
from pillion_sidecar.protocols.webhook import Preset, WebhookOptions
from pillion_sidecar.settings import GatewayEndpoint, PluginEndpoint
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery


class NoResolver:
    """Is not asked."""

    async def resolve(self, host: str) -> Sequence[str]:
        raise AssertionError(host)


@pytest.fixture
def registry(fake_time: FakeTime) -> HandlerRegistry:
    return HandlerRegistry(
        clock=fake_time,
        timers=fake_time,
        resolver=NoResolver(),
        address_policy=AddressPolicy(),
        schema=load_schema(),
        service_name="default",
        plugins={name: PluginEndpoint(command=("true",)) for name in ("news", "chat")},
    )


def destination(**given: Any) -> ListenerDestination:
    values: dict[str, Any] = {
        "name": "a",
        "uid": "u",
        "destination": "http://a.example/",
        "protocol": "CIM-XML",
    }
    return ListenerDestination(**(values | given))


def test_each_protocol_has_its_handler(registry: HandlerRegistry) -> None:
    cim = registry.create_handler(destination())
    events = registry.create_handler(destination(protocol="CloudEvents"))
    options = WebhookOptions(preset=Preset.SLACK)
    webhook = registry.create_handler(destination(protocol="Webhook", options=options))
    assert isinstance(cim, CIMXMLHandler)
    assert isinstance(events, CloudEventsHandler)
    assert isinstance(webhook, WebhookHandler)


def test_a_signed_webhook_hides_its_secrets(registry: HandlerRegistry) -> None:
    key = SigningKey(b"s" * 32, is_asymmetric=False)
    given = destination(protocol="StandardWebhooks", credentials=Credentials(signing=(key,)))
    assert isinstance(registry.create_handler(given), DiscreetHandler)


@pytest.mark.parametrize("protocol", ["CIM-XML", "CloudEvents"])
def test_where_credentials_are_sent_answers_are_not_shown_as_they_are(
    registry: HandlerRegistry, protocol: str
) -> None:
    sent = Credentials(username="a", password="planted-password")
    given = destination(protocol=protocol, credentials=sent)
    assert isinstance(registry.create_handler(given), DiscreetHandler)


@pytest.mark.parametrize(
    ("given", "words", "cause"),
    [
        ({"destination": "ftp://a.example/"}, "ftp", HoldCause.DESTINATION),
        ({"destination": ""}, "no URL", HoldCause.DESTINATION),
        ({"destination": None}, "no URL", HoldCause.DESTINATION),
        ({"destination": 7}, "no URL", HoldCause.DESTINATION),
        ({"protocol": "Gopher"}, "'Gopher' is not supported", HoldCause.PROTOCOL),
        (
            {"protocol": "Plugin", "destination": "plugin://mail/a"},
            "plug-in 'mail' is not declared: start the deliverer with --plugin NAME=COMMAND"
            " (declared: chat, news)",
            HoldCause.PROTOCOL,
        ),
        (
            {"protocol": "Plugin", "destination": "plugin://news.secret/", "url_is_secret": True},
            "the plug-in in its URL is not declared",
            HoldCause.PROTOCOL,
        ),
        (
            {"protocol": "Plugin", "destination": "http://a.example/"},
            "is not plugin://NAME",
            HoldCause.DESTINATION,
        ),
        (
            {"protocol": "StandardWebhooks"},
            "no signing secret",
            HoldCause.CREDENTIALS,
        ),
        (
            {"credentials": Credentials(bearer_token="a b")},
            "bearer token",
            HoldCause.CREDENTIALS,
        ),
        (
            {"destination": "https://a/", "tls": TLSOptions(ca_certificates=b"rubbish")},
            "tls.caCertificates",
            HoldCause.CERTIFICATES,
        ),
        (
            {"destination": "https://a/", "tls": TLSOptions(client_certificate=b"rubbish")},
            "tls.clientCertificate",
            HoldCause.CERTIFICATES,
        ),
    ],
)
async def test_what_cannot_be_sent_to_holds_its_queue_and_is_told_later(
    registry: HandlerRegistry, given: dict[str, Any], words: str, cause: HoldCause
) -> None:
    handler = registry.create_handler(destination(**given))
    told: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    handler.deliver(delivery(), told.set_result)
    assert not told.done()
    outcome = await told
    assert (outcome.result, outcome.hold) == (DeliveryResult.FATAL_ERROR, cause)
    assert words in outcome.detail
    assert ".secret" not in outcome.detail
    handler.close()


def test_a_context_is_built_once_for_the_same_options() -> None:
    contexts = TLSContexts()
    pem = trustme.CA().cert_pem.bytes()
    first = contexts.context(TLSOptions(ca_certificates=pem))
    assert contexts.context(TLSOptions(ca_certificates=pem, server_name="other")) is first
    assert contexts.context(TLSOptions(verify=False)) is not first


def test_verification_is_on_unless_it_is_switched_off() -> None:
    assert build_context(TLSOptions()).check_hostname
    assert not build_context(TLSOptions(verify=False)).check_hostname


def test_a_key_that_is_not_the_certificates_is_refused() -> None:
    authority = trustme.CA()
    one, other = authority.issue_cert("a"), authority.issue_cert("b")
    options = TLSOptions(
        client_certificate=one.cert_chain_pems[0].bytes(),
        client_key=other.private_key_pem.bytes(),
    )
    with pytest.raises(InvalidDestinationError, match="key values mismatch"):
        build_context(options)


# ---------------------------------------------------------------------- gateways


async def told(handler: Handler) -> DeliveryOutcome:
    """What comes of one attempt."""
    outcome: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    handler.deliver(delivery(), outcome.set_result)
    assert not outcome.done()
    return await outcome


async def test_what_is_to_be_relayed_waits_where_there_is_no_way_to_a_gateway(
    registry: HandlerRegistry,
) -> None:
    outcome = await told(registry.create_handler(destination(relay_to="shared")))
    assert outcome.result is DeliveryResult.ERROR
    assert not outcome.spends_attempt
    assert "--gateway" in outcome.detail


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    return tmp_path / "ca.crt"


@pytest.fixture
def relaying(fake_time: FakeTime, ca: Path) -> HandlerRegistry:
    return HandlerRegistry(
        clock=fake_time,
        timers=fake_time,
        resolver=NoResolver(),
        address_policy=AddressPolicy(),
        schema=load_schema(),
        service_name="default",
        gateway=GatewayEndpoint(url="https://{service}.example", ca=ca),
    )


@pytest.fixture(params=["missing", "empty"])
def no_authorities(ca: Path, request: pytest.FixtureRequest) -> None:
    if request.param == "empty":
        ca.write_text("")


@pytest.mark.usefixtures("no_authorities")
async def test_what_is_to_be_relayed_waits_for_the_authorities_of_its_gateway(
    relaying: HandlerRegistry,
) -> None:
    handler = relaying.create_handler(destination(relay_to="shared"))
    assert isinstance(handler, RelayHandler)
    outcome = await told(handler)
    assert outcome.result is DeliveryResult.ERROR
    assert not outcome.spends_attempt
    assert "authorities" in outcome.detail
    handler.close()


@pytest.fixture
def without_module(fake_time: FakeTime) -> HandlerRegistry:
    memo = Protocol(
        name="Memo",
        summary="",
        manual="",
        schemes=http_schemes(),
        handler="no_such_module.handler:create_handler",
        extra="memo",
        library="no_such_module",
    )
    return HandlerRegistry(
        clock=fake_time,
        timers=fake_time,
        resolver=NoResolver(),
        address_policy=AddressPolicy(),
        schema=load_schema(),
        service_name="default",
        protocols={"Memo": memo},
    )


async def test_a_protocol_says_what_its_handler_misses(
    without_module: HandlerRegistry,
) -> None:
    handler = without_module.create_handler(destination(protocol="Memo"))
    told: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    handler.deliver(delivery(), told.set_result)
    outcome = await told
    assert outcome.hold is HoldCause.PROTOCOL
    assert outcome.detail == "protocol Memo needs no_such_module: install pillion[memo]"
