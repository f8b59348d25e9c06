"""A gateway's door as it is run: a process, TLS, tokens of a cluster's issuer."""

import asyncio
import json
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from support.gateway_access import LINE, Gateway, running
from support.resources import write
from support.running import listener, resources
from support.token_issuer import TokenIssuer


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    """One whose listener is away: that is not what is looked at here."""
    made = Gateway(tmp_path)
    write(
        made.resources,
        *resources(
            listener("siem", "http://127.0.0.1:9/"),
            deliverer={"mode": "Gateway"},
            publishers=[{"namespace": "team"}, {"namespace": "guests", "serviceAccount": "spark"}],
        ),
    )
    return made


async def test_whoever_may_publish_does_and_nobody_else(gateway: Gateway) -> None:
    gateway.issue()
    gateway.give_keys()
    async with running(gateway):
        assert (await gateway.readiness())[0] == 200
        assert gateway.process.intake.startswith("https://")
        good = gateway.token()
        assert await gateway.publish(good) == 200
        assert await gateway.publish(good) == 200
        assert await gateway.publish(gateway.token(namespace="guests")) == 200
        assert await gateway.publish(None) == 401
        assert await gateway.publish("not.a.token") == 401
        assert await gateway.publish(gateway.token(exp=1)) == 401
        assert await gateway.publish(TokenIssuer().token(now=time.time())) == 401
        assert await gateway.publish(gateway.token(namespace="others")) == 403
        assert await gateway.publish(gateway.token(namespace="guests", account="other")) == 403
        # What an administrator may is not behind this door at all.
        for path in ("/drain", "/v1/queues/siem/purge"):
            assert await gateway.publish(good, path=path) == 404
        name = "pillion_intake_requests_turned_away_total"
        for reason, count in (("missing", 1), ("expired", 1), ("signature", 1), ("forbidden", 2)):
            assert await gateway.metric(f'{name}{{reason="{reason}"}}') == count
        # Plain HTTP is not spoken here.
        plain = gateway.process.intake.replace("https", "http")
        with pytest.raises(aiohttp.ClientError):
            await gateway.session.get(plain)


async def test_what_is_missing_at_the_start_may_come_later(gateway: Gateway) -> None:
    async with running(gateway, "--wait-for-configuration"):
        process = gateway.process
        status, text = await gateway.readiness()
        assert status == 503
        assert "certificate: there is no certificate yet" in text
        assert "token-keys: there are no keys yet" in text
        with pytest.raises(aiohttp.ClientError):
            await gateway.publish(gateway.token())
        gateway.issue()
        await process.logged("certificate-loaded")
        assert await gateway.publish(gateway.token()) == 503
        gateway.give_keys()
        await process.logged("token-keys-loaded")
        assert await gateway.publish(gateway.token()) == 200
        assert (await gateway.readiness())[0] == 200


async def test_a_certificate_is_replaced_while_connections_go_on(gateway: Gateway) -> None:
    first = gateway.issue()
    gateway.give_keys()
    async with running(gateway):
        process, token = gateway.process, gateway.token()
        old = await gateway.shown()
        assert old.serial == first
        expiry = await gateway.metric("pillion_intake_certificate_expiry_timestamp_seconds")
        assert expiry is not None
        second = gateway.issue()
        await process.logged("certificate-loaded", 2)
        new = await gateway.shown()
        assert new.serial == second != first
        # A broken pair changes nothing.
        (gateway.folder / "tls" / "..data" / "tls.key").write_text("no key")
        await process.logged("certificate-refused")
        name = "pillion_intake_certificate_last_read_successful"
        assert await gateway.metric(name) == 0
        third = await gateway.shown()
        assert third.serial == second
        for connection in (old, new, third):
            assert await connection.ask(token) == 404
            connection.close()


async def test_keys_are_replaced_and_broken_ones_are_not_taken(gateway: Gateway) -> None:
    gateway.issue()
    gateway.give_keys()
    async with running(gateway):
        process = gateway.process
        first = gateway.token()
        gateway.issuer.add("second", "RS256")
        second = gateway.token(kid="second")
        assert [await gateway.publish(one) for one in (first, second)] == [200, 401]
        gateway.give_keys()
        await process.logged("token-keys-loaded", 2)
        assert [await gateway.publish(one) for one in (first, second)] == [200, 200]
        gateway.give_keys(b'{"issuer": ')
        await process.logged("token-keys-refused")
        assert [await gateway.publish(one) for one in (first, second)] == [200, 200]
        gateway.issuer.remove("first")
        gateway.give_keys()
        await process.logged("token-keys-loaded", 3)
        assert [await gateway.publish(one) for one in (first, second)] == [401, 200]


async def test_the_command_publishes_through_the_door(gateway: Gateway, tmp_path: Path) -> None:
    gateway.issue()
    gateway.give_keys()
    file, token = tmp_path / "alerts.ndjson", tmp_path / "token"
    file.write_bytes(LINE + b"\n")
    async with running(gateway):
        command = ("publish", str(file), "--to", gateway.process.intake, "--ca", str(gateway.ca))
        for content, code, says in (
            (gateway.token(), 0, "accepted"),
            (gateway.token(namespace="others"), 1, "may not publish here"),
        ):
            token.write_text(content)
            ended, said = await _run(*command, "--token-file", str(token), "--source", f"s{code}")
            gateway.told += said
            assert (ended, says in said) == (code, True)
        ended, said = await _run(*command)
        assert ended == 1
        assert "HTTP 401: there is no token" in said
        ended, said = await _run("publish", str(file), "--to", gateway.process.intake)
        assert ended == 1
        assert "the certificate of https://127.0.0.1" in said
        assert "with --ca" in said


async def _run(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pillion_cli.main"),
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_a_token_is_found_nowhere(gateway: Gateway) -> None:
    gateway.issue()
    gateway.give_keys()
    async with running(gateway, "--log-level", "DEBUG"):
        tokens = [
            gateway.token(),
            gateway.token(exp=1),
            gateway.token(namespace="others"),
            gateway.token(header={"kid": "none"}),
            gateway.token(padding="x" * 5000),
            TokenIssuer().token(now=time.time()),
        ]
        for token in tokens:
            await gateway.publish(token)
            await gateway.publish(token, body=b"no line")
            await gateway.publish(token, path="/v1/nothing")
        # Neither where the request cannot even be read.
        planted = await gateway.shown()
        planted.close()
        broken = b"POST / HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %b\x01\r\n\r\n"
        port = int(gateway.process.intake.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=gateway.context)
        writer.write(broken % tokens[0].encode())
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        await gateway.metric("pillion_build_info")
        gateway.process.process.terminate()
        await gateway.process.ended()
    told = gateway.told + json.dumps(gateway.process.log) + "".join(gateway.process.said)
    assert "deliverer-stopping" in told
    for token in tokens:
        for part in token.split("."):
            # A header is the same in all of them, and says nothing that is secret.
            assert part == token.split(".")[0] or part not in told
