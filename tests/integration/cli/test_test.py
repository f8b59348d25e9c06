"""``pillion test`` against a deliverer's process and its listeners (S0.12)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pillion_cli.exits import Exit
from pillion_cli.main import main
from pillion_cli.remedies import remedy
from pillion_sidecar.delivery.handler import FailureCause
from support.in_terminal import in_terminal
from support.listening import Listening, listening
from support.resources import JSON, secret, write
from support.running import listener, resources
from support.sidecar import Sidecar, sidecar

WITH_CREDENTIALS: JSON = {"credentials": {"bearer": {"secretRef": {"name": "token"}}}}


@pytest_asyncio.fixture
async def good() -> AsyncIterator[Listening]:
    """A listener that answers."""
    async with listening() as found:
        yield found


@pytest_asyncio.fixture
async def deliverer(
    tmp_path: Path, good: Listening, unused_tcp_port: int
) -> AsyncIterator[Sidecar]:
    """One with a suspended, a dead and a failing listener."""
    async with listening(status=503) as bad:
        folder = write(
            tmp_path,
            *resources(
                listener("good", good.url, suspended=True),
                listener("dead", f"http://127.0.0.1:{unused_tcp_port}/"),
                listener("bad", bad.url),
                listener("tls", good.url.replace("http:", "https:")),
            ),
        )
        async with sidecar(folder) as process:
            yield process


async def run(process: Sidecar, *arguments: str) -> int:
    return await asyncio.to_thread(main, ["test", *arguments, "--server", process.intake])


async def test_the_listener_gets_it_and_the_queue_does_not_count_it(
    deliverer: Sidecar, good: Listening, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "good") == Exit.OK
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("good: success after ")
    assert first.endswith(" ms: HTTP 200")
    assert good.identifiers == [second.removeprefix("CIM-XML, ")]
    queue = (await deliverer.get("/v1/queues/good")).document
    assert (queue["suspended"], queue["depth"], queue["delivered"]) == (True, 0, 0)
    assert queue["attempts"] == []
    await deliverer.logged("destination-tested")


@pytest.mark.parametrize(
    ("name", "told", "cause"),
    [
        ("dead", "connection refused", FailureCause.REFUSED),
        ("bad", "HTTP 503", FailureCause.STATUS),
        ("tls", "TLS handshake", FailureCause.TLS),
    ],
)
async def test_a_failure_has_its_cause_and_what_to_do(
    deliverer: Sidecar,
    capsys: pytest.CaptureFixture[str],
    name: str,
    told: str,
    cause: FailureCause,
) -> None:
    assert await run(deliverer, name) == Exit.FAILED
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{name}: error after ")
    assert told in lines[0]
    assert lines[1] == f"cause {cause}: {remedy(cause)}"
    assert await run(deliverer, name, "--output", "json") == Exit.FAILED
    document = json.loads(capsys.readouterr().out)
    assert (document["destination"], document["cause"]) == (name, cause)
    assert document["identifier"].startswith("pillion-test-")


@pytest.mark.parametrize(
    ("spec", "do"),
    [({}, "add spec.credentials"), (WITH_CREDENTIALS, "correct the Secret")],
)
async def test_refused_credentials_are_corrected_or_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: JSON, do: str
) -> None:
    async with listening(status=401) as closed:
        ops = listener("ops", closed.url, **spec)
        folder = write(tmp_path, *resources(ops), secret("token", {"token": "t0ken-of-ops"}))
        async with sidecar(folder) as process:
            assert await run(process, "ops") == Exit.FAILED
    assert do in capsys.readouterr().out


def test_each_cause_has_a_remedy() -> None:
    assert all(remedy(cause) for cause in FailureCause)
    assert remedy(None) == remedy("of-a-later-version") == ""


async def test_an_unknown_destination_is_told_with_the_nearest(
    deliverer: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "god") == Exit.FAILED
    assert "no destination queue named 'god'; did you mean good?" in capsys.readouterr().err


async def test_it_fits_a_narrow_terminal(deliverer: Sidecar) -> None:
    arguments = ("test", "dead", "--server", deliverer.intake)
    with in_terminal(*arguments, columns=40) as terminal:
        assert await asyncio.to_thread(terminal.end) == Exit.FAILED
    assert max(map(len, terminal.shown.splitlines())) <= 40
    assert "\x1b[1;31mdead: error" in terminal.raw
