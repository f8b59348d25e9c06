"""Debian's snmptrapd takes the notifications, and reads what was meant."""

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.usm import SNMPCredentials, make_user
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler
from pillion_sidecar.protocols.snmp import (
    AuthProtocol,
    Notification,
    SecurityLevel,
    SNMPOptions,
    SNMPVersion,
)
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication
from support.protocol_peers import AMPLE, TURN, destination, registry
from support.resources import secret
from support.running import alert, listener, resources, running

SNMPTRAPD = shutil.which("snmptrapd", path="/usr/sbin:/usr/bin:/sbin")
SNMPTRANSLATE = shutil.which("snmptranslate")
ROOT = Path(__file__).parents[3]
MIBS = f"{ROOT}/tests/support/mibs:{ROOT}/docs/assets"
AUTH, PRIV = "a passphrase of authentication", "a passphrase of privacy"
#: 0x80007ed904 and the service's name, "default".
ENGINE = "0x80007ed90464656661756c74"
CONFIGURATION = f"""
authCommunity log sunny-side
createUser {{engine}} {{user}} {{protocol}} "{AUTH}" AES "{PRIV}"
authUser log {{user}}
"""
TEXT = 'Wind: 41 < 60 & "gusty" – ünïcode\\'
BODY = {
    "PerceivedSeverity": 6,
    "IndicationTime": "20261121133000.250000+060",
    "SystemName": "station-7",
    "Message": TEXT,
    "Description": "two\nlines",
    "Numbers": [1, 2],
}
#: What the service's name and the destination's filter are in these tests.
SHOWN = {
    # snmpTrapOID.0
    "SNMPv2-SMI::snmpModules.1.1.4.1.0": "PILLION-MIB::pillionIndication",
    "PILLION-MIB::pillionIdentifier.0": "i-1",
    "PILLION-MIB::pillionClass.0": "CIM_AlertIndication",
    "PILLION-MIB::pillionTime.0": "2026-11-21,12:30:0.2,+0:0",
    "PILLION-MIB::pillionSeverity.0": "critical",
    "PILLION-MIB::pillionMessage.0": TEXT,
    "PILLION-MIB::pillionSystem.0": "station-7",
    "PILLION-MIB::pillionSource.0": "",
    "PILLION-MIB::pillionService.0": "default",
    "PILLION-MIB::pillionFilter.0": "severe",
    "PILLION-MIB::pillionTruncated.0": "false",
    "PILLION-MIB::pillionSequenceContext.0": "here",
    "PILLION-MIB::pillionSequenceNumber.0": str(2**40),
}


@pytest.fixture(autouse=True)
def _is_installed() -> None:
    if SNMPTRAPD is None or SNMPTRANSLATE is None:
        pytest.skip("Debian's packages are missing: apt-get install snmptrapd snmp")


@dataclass(frozen=True, slots=True)
class Trapd:
    url: str
    folder: Path

    async def notifications(self, count: int) -> list[dict[str, str]]:
        """Wait until it has so many: values by name, as the MIB shows them."""
        while True:
            text = await asyncio.to_thread((self.folder / "out").read_text, encoding="utf-8")
            parts = text.split("\nEND\n")[:-1]
            if len(parts) >= count:
                return [_values(part) for part in parts]


def _values(part: str) -> dict[str, str]:
    lines = part.partition("BEGIN\n")[2].splitlines()
    pairs = [line.partition(" = ") for line in lines]
    return {name: value for name, _, value in pairs}


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@asynccontextmanager
async def snmptrapd(
    folder: Path,
    *,
    protocol: str = "SHA-256",
    engine: str = "",
    user: str = "pillion",
    port: int | None = None,
) -> AsyncIterator[Trapd]:
    """Run it in the foreground. ``port`` None: any."""
    file, port = folder / "snmptrapd.conf", port or _free_port()
    engine = f"-e {engine}" if engine else ""
    text = CONFIGURATION.format(protocol=protocol, engine=engine, user=user)
    file.write_text(text, encoding="utf-8")
    assert SNMPTRAPD is not None
    command = [SNMPTRAPD, "-f", "-C", "-c", str(file), "-Lf", str(folder / "out"), "-n"]
    command += ["-M", MIBS, "-m", "ALL", "-OQS", "-F", "BEGIN\n%V\n%v\nEND\n"]
    environment = {
        **os.environ,
        "SNMP_PERSISTENT_DIR": str(folder),
        "SNMPCONFPATH": str(folder),
        "MIBDIRS": MIBS,
    }
    log = await asyncio.to_thread(open, folder / "log", "wb")
    with log:
        process = await asyncio.create_subprocess_exec(
            *command, f"udp:127.0.0.1:{port}", stdout=log, stderr=log, env=environment
        )
    try:
        while not await asyncio.to_thread(_listens, port):
            assert process.returncode is None, (folder / "log").read_text(encoding="utf-8")
        yield Trapd(f"snmp://127.0.0.1:{port}", folder)
    finally:
        process.terminate()
        await process.wait()


def _listens(port: int) -> bool:
    sockets = Path("/proc/net/udp").read_text(encoding="ascii")
    # The other column with an address has the peers'.
    return f"0100007F:{port:04X}" in (line.split()[1] for line in sockets.splitlines())


def credentials(protocol: AuthProtocol = AuthProtocol.SHA_256, **other: str) -> Credentials:
    given = {"name": "pillion", "auth_passphrase": AUTH, "priv_passphrase": PRIV, **other}
    return Credentials(snmp=SNMPCredentials(user=make_user(given.pop("name"), protocol, **given)))


COMMUNITY = Credentials(snmp=SNMPCredentials(community="sunny-side"))


def handler_of(made: Any, url: str, given: Credentials, **options: Any) -> Handler:
    handler: Handler = made.create_handler(
        destination(
            "SNMP",
            url,
            credentials=given,
            options=SNMPOptions(**options),
            timeout_seconds=AMPLE,
        )
    )
    return handler


async def deliver(
    handler: Handler, time: FakeTime, identifier: str, **properties: Any
) -> DeliveryOutcome:
    body = {"class": "CIM_AlertIndication", "properties": {**BODY, **properties}}
    encoded = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    told: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    of = delivery(indication(encoded, identifier=identifier), sequence_number=2**40)
    of.sequence_context = "here"
    handler.deliver(of, told.set_result)
    while not told.done():
        time.advance(TURN)
        await asyncio.sleep(0)
    return told.result()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("notification", Notification)
@pytest.mark.parametrize(
    ("version", "level", "protocol", "named"),
    [
        (SNMPVersion.V2C, SecurityLevel.ENCRYPTED, AuthProtocol.SHA_256, "SHA-256"),
        (SNMPVersion.V3, SecurityLevel.ENCRYPTED, AuthProtocol.SHA, "SHA"),
        (SNMPVersion.V3, SecurityLevel.ENCRYPTED, AuthProtocol.SHA_256, "SHA-256"),
        (SNMPVersion.V3, SecurityLevel.ENCRYPTED, AuthProtocol.SHA_384, "SHA-384"),
        (SNMPVersion.V3, SecurityLevel.ENCRYPTED, AuthProtocol.SHA_512, "SHA-512"),
        (SNMPVersion.V3, SecurityLevel.AUTHENTICATED, AuthProtocol.SHA_256, "SHA-256"),
    ],
)
async def test_it_reads_what_was_meant(
    fake_time: FakeTime,
    tmp_path: Path,
    notification: Notification,
    version: SNMPVersion,
    level: SecurityLevel,
    protocol: AuthProtocol,
    named: str,
) -> None:
    given = COMMUNITY
    if version is SNMPVersion.V3:
        given = credentials(protocol)
    engine = ENGINE if notification is Notification.TRAP else ""
    options = {
        "version": version,
        "notification": notification,
        "security_level": level,
        "auth_protocol": protocol,
    }
    if level is SecurityLevel.AUTHENTICATED:
        user = make_user("pillion", protocol, auth_passphrase=AUTH, priv_passphrase=None)
        given = Credentials(snmp=SNMPCredentials(user=user))
    async with (
        snmptrapd(tmp_path, protocol=named, engine=engine) as trapd,
        registry(fake_time, None) as made,
    ):
        handler = handler_of(made, trapd.url, given, **options)
        told = [await deliver(handler, fake_time, f"i-{number}") for number in (1, 2)]
        handler.close()
        assert [one.detail for one in told] == ["", ""]
        assert [one.result for one in told] == 2 * [DeliveryResult.SUCCESS]
        first, second = await trapd.notifications(2)
    properties = json.loads(first.pop("PILLION-MIB::pillionProperties.0"))
    assert properties["Numbers"] == [1, 2]
    assert first | SHOWN == first
    assert second["PILLION-MIB::pillionIdentifier.0"] == "i-2"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("given", "options", "says"),
    [
        (
            credentials(auth_passphrase="another passphrase"),
            {},
            "the digest is wrong: the authentication passphrase or protocol differs",
        ),
        (
            credentials(AuthProtocol.SHA),
            {"auth_protocol": AuthProtocol.SHA},
            "the digest is wrong: the authentication passphrase or protocol differs",
        ),
        (credentials(name="nobody"), {}, "it does not know the user"),
    ],
)
async def test_what_it_refuses_is_an_error_with_the_cause(
    fake_time: FakeTime,
    tmp_path: Path,
    given: Credentials,
    options: dict[str, Any],
    says: str,
) -> None:
    async with snmptrapd(tmp_path) as trapd, registry(fake_time, None) as made:
        handler = handler_of(made, trapd.url, given, **options)
        told = await deliver(handler, fake_time, "i-1")
        handler.close()
    assert told.result is DeliveryResult.ERROR
    assert told.detail == (
        f"the receiver refused the message: {says} before the receiver had the notification"
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("same", [True, False])
async def test_after_a_restart_it_has_the_next_inform(
    fake_time: FakeTime, tmp_path: Path, same: bool
) -> None:
    """The same engine has other boots; another one has another engine ID."""
    first, second = tmp_path / "a", tmp_path / ("a" if same else "b")
    for folder in (first, second):
        folder.mkdir(exist_ok=True)
    async with registry(fake_time, None) as made:
        port = _free_port()
        handler = handler_of(made, f"snmp://127.0.0.1:{port}", credentials())
        for number, folder in enumerate((first, second)):
            async with snmptrapd(folder, port=port) as trapd:
                told = await deliver(handler, fake_time, f"i-{number}")
                assert told.detail == ""
                assert told == DeliveryOutcome(DeliveryResult.SUCCESS)
                shown = await trapd.notifications(1)
        handler.close()
    assert shown[-1]["PILLION-MIB::pillionIdentifier.0"] == "i-1"


@pytest.mark.timeout(60)
async def test_a_trap_after_a_restart_of_the_deliverer_is_in_time(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    async with snmptrapd(tmp_path, engine=ENGINE) as trapd:
        for number in range(3):
            async with registry(fake_time, None) as made:
                handler = handler_of(made, trapd.url, credentials(), notification=Notification.TRAP)
                told = await deliver(handler, fake_time, f"i-{number}")
                handler.close()
            assert told == DeliveryOutcome(DeliveryResult.SUCCESS)
            # Another deliverer whose clock is behind.
            fake_time.step(-100 if number == 0 else 60)
        shown = await trapd.notifications(3)
    identifiers = [one["PILLION-MIB::pillionIdentifier.0"] for one in shown]
    assert identifiers == ["i-0", "i-1", "i-2"]


@pytest.mark.timeout(60)
async def test_a_long_message_arrives_in_parts_of_the_network(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    async with snmptrapd(tmp_path) as trapd, registry(fake_time, None) as made:
        handler = handler_of(made, trapd.url, credentials(), max_bytes=65507)
        told = await deliver(handler, fake_time, "i-1", Message="m" * 60_000)
        handler.close()
        assert told == DeliveryOutcome(DeliveryResult.SUCCESS)
        (shown,) = await trapd.notifications(1)
    assert shown["PILLION-MIB::pillionMessage.0"] == "m" * 60_000


@pytest.mark.timeout(60)
async def test_a_changed_passphrase_is_used_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "trapd"
    folder.mkdir()
    right = {"username": "pillion", "authPassphrase": AUTH, "privPassphrase": PRIV}
    wrong = {**right, "authPassphrase": "planted-passphrase"}
    async with snmptrapd(folder) as trapd:
        to_nms = listener(
            "nms",
            trapd.url,
            protocol="SNMP",
            credentials={"snmp": {"secretRef": {"name": "nms"}}},
            retry={"attempts": 9, "intervalSeconds": 604_800},
        )
        documents = resources(to_nms)
        async with running(tmp_path, *documents, secret("nms", right)) as run:
            await run.publish(alert("a-1", Message="first"))
            await run.settled()
            await run.reload(*documents, secret("nms", wrong))
            await run.publish(alert("a-2"), alert("a-3"))
            health = run.queue("nms").health
            await run.until(lambda: health.next_attempt_at is not None)
            shown = (await run.get("/v1/queues/nms")).document
            await run.reload(*documents, secret("nms", right))
            await run.settled()
        received = await trapd.notifications(3)
    assert "the digest is wrong" in json.dumps(shown)
    assert "planted" not in json.dumps(shown)
    identifiers = [one["PILLION-MIB::pillionIdentifier.0"] for one in received]
    assert identifiers == ["a-1", "a-2", "a-3"]
    assert {one["PILLION-MIB::pillionSeverity.0"] for one in received} == {"major"}


@pytest.mark.timeout(60)
async def test_two_sockets_may_ask_for_the_engine_at_once(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    async with snmptrapd(tmp_path) as trapd, registry(fake_time, None) as made:
        handler = handler_of(made, trapd.url, credentials())
        told = await asyncio.gather(
            *(deliver(handler, fake_time, f"i-{number}") for number in range(5))
        )
        handler.close()
        assert {one.detail for one in told} == {""}
        shown = await trapd.notifications(5)
    identifiers = {one["PILLION-MIB::pillionIdentifier.0"] for one in shown}
    assert identifiers == {f"i-{number}" for number in range(5)}
