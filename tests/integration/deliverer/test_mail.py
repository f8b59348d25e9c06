"""E-mail by the whole deliverer: bursts, refusals, and a configuration that changes meanwhile."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import trustme

from pillion_sidecar.handlers.smtp.message import FILE_NAME
from support.mail_server import MailServer, serving
from support.resources import JSON, secret
from support.running import Running, alerts, listener, resources, running

OPTIONS: JSON = {
    "from": "pillion@station.example",
    "to": ["on-call@ops.example", "archive@ops.example"],
    "startTLS": "None",
}


def mail(server: MailServer, smtp: JSON = OPTIONS, **spec: Any) -> JSON:
    return listener("mail", server.url, protocol="SMTP", smtp=smtp, **spec)


def identifiers(server: MailServer) -> list[list[str]]:
    """Of each message."""
    found = []
    for message in server.messages:
        _, attached = message.iter_parts()
        assert attached.get_filename() == FILE_NAME
        instances = json.loads(attached.get_content())
        found.append([one["properties"]["IndicationIdentifier"] for one in instances])
    return found


def flat(server: MailServer) -> list[str]:
    return [one for message in identifiers(server) for one in message]


async def held(run: Running) -> str:
    health = run.queue("mail").health
    await run.until(lambda: health.hold is not None and health.next_attempt_at is not None)
    document = (await run.get("/v1/queues/mail")).document
    shown: JSON = document["hold"] or document["pause"]
    message: str = shown["message"]
    return message


async def test_a_burst_comes_in_few_messages_and_in_order(tmp_path: Path) -> None:
    async with serving() as server, running(tmp_path, *resources(mail(server))) as run:
        await run.publish(*alerts(0, 250))
        await run.settled()
        assert flat(server) == [str(number) for number in range(250)]
        assert len(server.messages) <= 5
        assert server.connections == 1


async def test_one_refused_indication_is_found_and_discarded_alone(tmp_path: Path) -> None:
    async with serving() as server, running(tmp_path, *resources(mail(server))) as run:
        server.unwanted = b"identifier: 7\r\n"
        await run.publish(*alerts(0, 20))
        queue = run.queue("mail")
        for _ in range(2):
            await run.until(lambda: queue.health.next_attempt_at is not None)
            run.retry("mail")
        await run.settled()
        assert sum(queue.statistics.discarded.values()) == 1
    # Each of the others once, in order, and in fewer messages than there are.
    assert flat(server) == [str(number) for number in range(20) if number != 7]
    assert len(server.messages) < 15


async def test_a_refused_recipient_holds_and_loses_nothing(tmp_path: Path) -> None:
    async with serving() as server, running(tmp_path, *resources(mail(server))) as run:
        server.to_recipient = "550 5.1.1 <archive@ops.example> unknown"
        await run.publish(*alerts(0, 3))
        assert "the recipient archive@ops.example was answered by 550" in await held(run)
        health = run.queue("mail").health
        first = health.next_attempt_at
        run.retry("mail")
        await run.until(lambda: health.next_attempt_at not in (None, first))
        assert server.messages == []
        # Without the recipient, an attempt is made at once.
        await run.reload(*resources(mail(server, {**OPTIONS, "to": ["on-call@ops.example"]})))
        await run.settled()
    assert flat(server) == ["0", "1", "2"]


async def test_a_subject_that_is_no_text_holds_until_it_is_corrected(tmp_path: Path) -> None:
    wrong = {**OPTIONS, "subject": "${json:Message}"}
    async with serving() as server, running(tmp_path, *resources(mail(server, wrong))) as run:
        await run.publish(*alerts(0, 1))
        assert "json:" in await held(run)
        await run.reload(*resources(mail(server, {**OPTIONS, "subject": "${Message|class}"})))
        await run.settled()
    assert server.messages[0]["Subject"] == "CIM_AlertIndication"


async def test_a_corrected_password_is_tried_at_once(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    options = {name: value for name, value in OPTIONS.items() if name != "startTLS"}
    ca = secret("ca", {"ca.crt": authority.cert_pem.bytes().decode()})

    def documents(password: str) -> tuple[JSON, ...]:
        login = secret("login", {"username": "pillion", "password": password})
        given = {
            "credentials": {"basic": {"secretRef": {"name": "login"}}},
            "tls": {"caSecretRef": {"name": "ca"}},
        }
        return (*resources(mail(server, options, **given)), ca, login)

    async with (
        serving(tls=tls, requires_login=True) as server,
        running(tmp_path, *documents("hunter2 hunter2")) as run,
    ):
        await run.publish(*alerts(0, 1))
        shown = await held(run)
        assert "535" in shown
        assert "hunter2" not in shown
        await run.reload(*documents(server.password))
        await run.settled()
    assert flat(server) == ["0"]
    assert len(server.logins) == 2


async def test_a_change_meanwhile_leaves_nothing_behind(tmp_path: Path) -> None:
    async with serving() as server, running(tmp_path, *resources(mail(server))) as run:
        for number in range(5):
            await run.publish(*alerts(10 * number, 10))
            await asyncio.sleep(0)
            await run.reload(*resources(mail(server, {**OPTIONS, "subject": f"{number}"})))
        await run.settled()
    # A message that was under way at a change is sent again.
    assert sorted(set(flat(server)), key=int) == [str(number) for number in range(50)]
