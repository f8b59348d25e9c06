"""How an operator that cannot start says so."""

import asyncio
import json
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from pillion_operator.app import Operator, StartFailed
from pillion_operator.settings import DelivererDefaults, OperatorSettings
from pillion_sidecar.config.addresses import Address
from support.in_background import in_background


def operator(kubeconfig: Path, telemetry: Address) -> Operator:
    return Operator(
        OperatorSettings(
            deliverer=DelivererDefaults(image="registry.example.org/pillion:1"),
            kubeconfig=kubeconfig,
            telemetry=telemetry,
            lease=None,
            webhook=None,
        )
    )


async def started(kubeconfig: Path, telemetry: Address) -> None:
    await operator(kubeconfig, telemetry).run(asyncio.Event())


def kubeconfig(folder: Path) -> Path:
    """One that leads nowhere."""
    path = folder / "kubeconfig"
    named = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [named],
                "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "x", "user": {}}],
            }
        )
    )
    return path


@pytest.mark.parametrize("text", [None, "", "- a list", "{"])
def test_without_a_way_to_an_api_server_it_says_so(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StartFailed, match=f"no way to an API server: .*{path}"):
        asyncio.run(started(path, Address("127.0.0.1", 0)))


def test_an_address_that_is_taken_is_named_with_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = (
            f"^cannot listen on 127.0.0.1:{port}: [Aa]ddress already in use; "
            "choose another address by --telemetry$"
        )
        with pytest.raises(StartFailed, match=said):
            asyncio.run(started(kubeconfig(tmp_path), Address("127.0.0.1", port)))


def test_an_api_server_that_does_not_answer_is_waited_for_and_the_probes_say_so(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        under_test = operator(kubeconfig(tmp_path), Address("127.0.0.1", 0))
        running = asyncio.create_task(under_test.run(asyncio.Event()))
        try:
            async with asyncio.timeout(20):
                while "does not answer" not in (answer := await ready(under_test)):
                    pass
            assert " 503 " in answer
            assert not under_test.started.is_set()
            assert not running.done()
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    asyncio.run(scene())


def test_what_is_no_http_is_logged_without_what_it_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        under_test = operator(kubeconfig(tmp_path), Address("127.0.0.1", 0))
        async with in_background(under_test.run(asyncio.Event())):
            async with asyncio.timeout(20):
                while not (answer := await asked(under_test, b"GET /readyz HTTP/1.0\r\nSECRET")):
                    pass
            assert " 400 " in answer

    asyncio.run(scene())
    assert "not HTTP that is accepted here" in caplog.text
    assert "SECRET" not in caplog.text


async def ready(under_test: Operator) -> str:
    """What its probe says; nothing before it is served."""
    return await asked(under_test, b"GET /readyz HTTP/1.0")


async def asked(under_test: Operator, request: bytes) -> str:
    """What it answers to a request without a body; nothing before it serves."""
    if not under_test.telemetry_url:
        await asyncio.sleep(0)
        return ""
    host, _, port = under_test.telemetry_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request + b"\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()
