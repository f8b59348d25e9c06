"""``pillion publish`` over real connections."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from pillion_cli.client import DelivererClient, Unreachable
from pillion_cli.exits import CommandError, Exit
from pillion_cli.main import main

Run = Callable[..., Awaitable[int]]


@dataclass
class Door:
    """An intake that accepts lines of the class A and refuses all others; and remembers."""

    lines: list[str] = field(default_factory=list)
    publishers: set[str | None] = field(default_factory=set)
    requests: int = 0
    flushed: dict[str, str] = field(default_factory=dict)
    #: What was discarded after it was accepted.
    faulty: list[dict[str, object]] = field(default_factory=list)
    reason: str = "unknown class"
    url: str = ""

    async def publish(self, request: web.Request) -> web.Response:
        self.requests += 1
        self.publishers.add(request.headers.get("Pillion-Publisher"))
        lines = (await request.text()).split("\n")
        self.lines += lines
        refused = [
            {"line": number, "status": 400, "field": "class", "reason": self.reason}
            for number, line in enumerate(lines)
            if json.loads(line)["class"] != "A"
        ]
        status = (207 if len(refused) < len(lines) else 400) if refused else 200
        accepted = len(lines) - len(refused)
        content = {"accepted": accepted, "duplicate": 0, "refused": refused}
        return web.json_response(content, status=status)

    async def faults(self, request: web.Request) -> web.Response:
        assert request.query["publisher"] in self.publishers
        told = self.faulty[int(request.query["after"]) :]
        content = {"faults": told, "dropped": 0, "last": len(self.faulty)}
        return web.json_response(content)

    async def flush(self, request: web.Request) -> web.Response:
        self.flushed = dict(request.query)
        counts = {"delivered": 2, "discarded": {"fatal-error": 1}, "pending": 0}
        return web.json_response({"complete": True, "destinations": {"siem": counts}})


@pytest.fixture
def door() -> Door:
    return Door()


@pytest_asyncio.fixture
async def run(door: Door) -> AsyncIterator[Run]:
    """Runs ``pillion publish`` with some arguments."""
    app = web.Application()
    app.router.add_post("/v1/indications", door.publish)
    app.router.add_post("/v1/flush", door.flush)
    app.router.add_get("/v1/faults", door.faults)
    async with TestServer(app) as server:
        url = door.url = str(server.make_url("/"))

        async def run(*arguments: str) -> int:
            return await asyncio.to_thread(main, ["publish", *arguments, "--to", url])

        yield run


@pytest.fixture
def alerts(tmp_path: Path) -> Path:
    path = tmp_path / "alerts.ndjson"
    path.write_text('{"class": "A"}\n\n{"class": "B"}\n' + '{"class": "A"}\n' * 4)
    return path


async def test_a_file_is_published_and_what_is_wrong_is_quoted_by_its_line(
    run: Run, door: Door, alerts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(str(alerts), "--batch", "2") == Exit.PARTLY
    assert door.requests == 3
    assert len(door.lines) == 6
    assert capsys.readouterr().out == (
        "5 accepted, 0 duplicate, 1 refused\n  line 3: class: unknown class\n"
    )


@pytest.mark.parametrize(
    ("accepted", "code", "counts"),
    [(2, Exit.PARTLY, "2 accepted, 0 duplicate, 1 refused"), (0, Exit.FAILED, "0 accepted, 0 ")],
)
async def test_a_reason_that_cannot_be_written_is_escaped(
    run: Run, door: Door, tmp_path: Path, accepted: int, code: Exit, counts: str
) -> None:
    door.reason = "'a\ud800b\x1b[31m' is unknown"
    path = tmp_path / "alerts.ndjson"
    path.write_text('{"class": "B"}\n' + '{"class": "A"}\n' * accepted)
    # A real standard output, whose encoding has no lone surrogates.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pillion_cli.main", "publish", path, "--to", door.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, err) == (code, b"")
    first, refusal = out.decode().splitlines()
    assert first.startswith(counts)
    assert refusal == r"  line 1: class: 'a\ud800b\u001b[31m' is unknown"


async def test_json_output_is_for_scripts(
    run: Run, alerts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(str(alerts), "--output", "json") == Exit.PARTLY
    document = json.loads(capsys.readouterr().out)
    assert (document["accepted"], document["refused"], document["failure"]) == (5, 1, None)
    assert document["refusals"] == [{"line": 3, "reason": "class: unknown class"}]


async def test_standard_input_is_published(
    run: Run, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = SimpleNamespace(buffer=io.BytesIO(b'{"class": "A"}\n' * 3))
    monkeypatch.setattr("sys.stdin", content)
    assert await run("-") == Exit.OK
    assert len(door.lines) == 3


async def test_a_flush_has_an_id_of_its_own_and_shows_each_destination(
    run: Run, door: Door, alerts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(str(alerts), "--flush", "--timeout", "9") == Exit.PARTLY
    (publisher,) = door.publishers
    assert publisher is not None
    assert door.flushed == {"publisher": publisher, "level": "delivered", "timeout": "9"}
    assert "  siem: 2 delivered, 0 pending, 1 discarded (fatal-error)\n" in capsys.readouterr().out


async def test_a_group_is_numbered_and_stopped_at_its_first_fault(
    run: Run, door: Door, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = tmp_path / "steps.ndjson"
    steps.write_text('{"class": "A"}\n' * 4)
    arguments = (str(steps), "--group", "g", "--ordered", "--group-max-idle", "60", "--batch", "2")
    assert await run(*arguments) == Exit.OK
    members = [json.loads(line) for line in door.lines]
    assert [one["sequence"] for one in members] == [0, 1, 2, 3]
    assert [one.get("last", False) for one in members] == [False, False, False, True]
    door.faulty = [{"number": 1, "destination": "siem", "reason": "out-of-order", "sequence": 1}]
    capsys.readouterr()
    assert await run(*arguments, "--output", "json") == Exit.PARTLY
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["faults"] == [{"line": 2, "destination": "siem", "reason": "out-of-order"}]
    assert document["unsettledFrom"] == 3
    assert document["group"]["termination"] == "failed"


async def test_a_group_can_expire(run: Run, door: Door, alerts: Path) -> None:
    assert await run(str(alerts), "--group", "g", "--group-expires", "3600") == Exit.PARTLY
    assert len({json.loads(line)["groupExpires"] for line in door.lines}) == 1


@pytest.mark.parametrize("alone", ["--ordered", "--group-expires=9", "--group-max-idle=9"])
def test_what_is_said_of_a_group_needs_its_name(
    alerts: Path, capsys: pytest.CaptureFixture[str], alone: str
) -> None:
    assert main(["publish", str(alerts), alone]) == Exit.USAGE
    assert "needs --group NAME" in capsys.readouterr().err


def test_no_deliverer_is_a_failure_that_says_what_was_not_accepted(
    alerts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", str(alerts), "--to", "http://127.0.0.1:1"]) == Exit.FAILED
    said = capsys.readouterr()
    assert "nothing was accepted" in said.out
    assert "no deliverer listens at http://127.0.0.1:1" in said.err


def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", str(tmp_path / "none"), "--to", "127.0.0.1:1"]) == Exit.FAILED
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["--batch=0", "--batch=x", "--timeout=nan", "--timeout=-1"])
def test_wrong_numbers_are_usage_errors(wrong: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["publish", "-", "--to", "127.0.0.1:1", wrong])
    assert end.value.code == Exit.USAGE


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://[::1", "http://x:port", "http://x:99999"]
)
def test_what_is_not_a_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(CommandError) as failure:
        DelivererClient(url, timeout=1)
    assert failure.value.code == Exit.USAGE


async def test_a_kept_connection_that_the_peer_closed_is_replaced() -> None:
    closed = asyncio.Event()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    bodies = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        bodies.append(head.split(b"\r\n")[0])
        writer.write(answer)
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with DelivererClient(f"127.0.0.1:{port}", timeout=10) as client:
            for path in ("/first", "/second"):
                closed.clear()
                assert (await asyncio.to_thread(client.get, path)).json() == {}
                await closed.wait()
    assert bodies == [b"GET /first HTTP/1.1", b"GET /second HTTP/1.1"]


@pytest.mark.parametrize(
    "garbage", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
)
async def test_garbage_is_no_answer(garbage: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(garbage)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = DelivererClient(f"127.0.0.1:{port}", timeout=10)
        with client, pytest.raises(Unreachable, match="no answer from"):
            await asyncio.to_thread(client.get, "/")
