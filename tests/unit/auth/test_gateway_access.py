"""The door as the settings ask for it: what it reads, says and counts."""

import logging
from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_sidecar.auth.principal import Principal, own_principal
from pillion_sidecar.gateway_access import GatewayAccess
from pillion_sidecar.settings import GatewayEndpoint, Settings, TLSFiles
from pillion_sidecar.telemetry.gateway import GatewayMetrics
from pillion_sidecar.testing import FakeTime
from support.token_issuer import TokenIssuer


class Opened:
    """A doorway over files, and its metrics."""

    def __init__(self, folder: Path, fake_time: FakeTime, **settings: Any) -> None:
        self.metrics = GatewayMetrics()
        self.doorway = GatewayAccess(
            Settings(resources=folder, **settings),
            clock=fake_time,
            timers=fake_time,
            publishers=tuple,
            metrics=self.metrics,
        )

    def problems(self) -> dict[str, str | None]:
        return {name: check() for name, check in self.doorway.readiness.items()}

    def value(self, name: str) -> float | None:
        for line in "".join(self.metrics.samples()).splitlines():
            if line.startswith(f"{name} "):
                return float(line.rsplit(" ", 1)[1])
        return None


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    records = [(record.levelname, vars(record)["event"]) for record in caplog.records]
    caplog.clear()
    return records


async def test_a_sidecar_has_no_door(tmp_path: Path, fake_time: FakeTime) -> None:
    opened = Opened(tmp_path, fake_time)
    await opened.doorway.look()
    await opened.doorway.follow()
    assert opened.doorway.tokens is None
    assert opened.doorway.acceptor is None
    assert opened.problems() == {}
    assert list(opened.metrics.samples()) == []


async def test_the_gateways_own_account_is_read_from_its_token(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    keys, token = tmp_path / "token-keys.json", tmp_path / "token"
    issuer = TokenIssuer()
    keys.write_bytes(issuer.document())
    endpoint = GatewayEndpoint(url="https://{service}", token=token)
    doorway = Opened(tmp_path, fake_time, token_keys=keys, gateway=endpoint).doorway
    await doorway.look()
    assert doorway.tokens is not None
    assert doorway.tokens.own is None
    subject = "system:serviceaccount:team:gateway"
    token.write_text(f"{issuer.token(sub=subject)}\n")
    await doorway.look()
    assert doorway.tokens.own == Principal("team", "gateway")


@pytest.mark.parametrize("token", [b"", b"x", b"a.b.c", b"a.W10.c", b"a.eyJzdWIiOjF9.c", b"\xff.."])
def test_what_is_no_token_is_nobodys(token: bytes) -> None:
    assert own_principal(token) is None


async def test_the_last_good_keys_stay(
    tmp_path: Path, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "token-keys.json"
    opened = Opened(tmp_path, fake_time, token_keys=file)
    doorway, guard = opened.doorway, opened.doorway.tokens
    assert guard is not None
    await doorway.look()
    assert opened.problems() == {"token-keys": "there are no keys yet to verify tokens with"}
    assert said(caplog) == [("WARNING", "token-keys-refused")]
    assert opened.value("pillion_token_keys") == 0
    issuer = TokenIssuer()
    file.write_bytes(issuer.document())
    await doorway.look()
    assert opened.problems() == {"token-keys": None}
    assert said(caplog) == [("INFO", "token-keys-loaded")]
    assert opened.value("pillion_token_keys_last_read_successful") == 1
    for broken in (b"{", issuer.document(keys=[])):
        file.write_bytes(broken)
        await doorway.look()
        assert opened.problems() == {"token-keys": None}
        assert said(caplog) == [("WARNING", "token-keys-refused")]
        assert opened.value("pillion_token_keys") == 1
        assert opened.value("pillion_token_keys_last_read_successful") == 0
    issuer.add("second")
    file.write_bytes(issuer.document())
    await doorway.look()
    assert opened.value("pillion_token_keys") == 2
    assert opened.value("pillion_token_keys_last_read_successful") == 1


async def test_the_last_good_certificate_stays(
    tmp_path: Path, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = TLSFiles(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    opened = Opened(tmp_path, fake_time, intake_tls=files)
    doorway = opened.doorway
    assert doorway.acceptor is not None
    assert doorway.acceptor.tls is not None
    await doorway.look()
    assert opened.problems() == {"certificate": "there is no certificate yet to serve with"}
    assert opened.value("pillion_intake_certificate_expiry_timestamp_seconds") is None
    assert said(caplog) == [("WARNING", "certificate-refused")]
    issued = trustme.CA().issue_cert("localhost")
    files.certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    files.key.write_bytes(issued.private_key_pem.bytes())
    await doorway.look()
    assert opened.problems() == {"certificate": None}
    assert said(caplog) == [("INFO", "certificate-loaded")]
    expiry = opened.value("pillion_intake_certificate_expiry_timestamp_seconds")
    assert expiry is not None
    files.key.write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())
    await doorway.look()
    assert opened.problems() == {"certificate": None}
    assert said(caplog) == [("WARNING", "certificate-refused")]
    assert opened.value("pillion_intake_certificate_expiry_timestamp_seconds") == expiry
    assert opened.value("pillion_intake_certificate_last_read_successful") == 0
