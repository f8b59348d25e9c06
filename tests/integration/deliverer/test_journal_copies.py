"""A gateway that keeps copies of journals, as it is run (S3.3): a process, TLS, tokens."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pillion_cli.exits import Exit
from pillion_cli.main import main
from pillion_sidecar.stores.copies import Copy, StoreError
from pillion_sidecar.stores.messages import (
    CONTENT_TYPE,
    MAXIMUM_READ,
    AppendRequest,
    ClaimRequest,
    ReadRequest,
    ReleaseRequest,
    Request,
    decode_copy,
    decode_refusal,
    encode_request,
)
from support.gateway_access import Gateway, running
from support.resources import JSON, write
from support.running import listener, resources
from support.stores import OTHER, SESSION, ShippedLog

CLAIM = ClaimRequest(number=1, claimant="pod")
RELEASE = ReleaseRequest(number=1, claimant="pod")
COPIES = {"maximumBytes": "64Mi", "maximumSessions": 2}


def log_of(*sizes: int, session: str = SESSION) -> ShippedLog:
    log = ShippedLog(session=session)
    log.begin(1, created=1.0)
    for size in sizes:
        log.write(size)
    return log


def append_of(log: ShippedLog, end: int = 0) -> AppendRequest:
    piece, data = log.next(end)
    return AppendRequest(
        number=1,
        claimant="pod",
        after=piece.after,
        position=piece.position,
        created=piece.created,
        base=0,
        data=data,
    )


class Keeper(Gateway):
    """A gateway with a journal, and a writer of two namespaces."""

    def configure(self, **spec: Any) -> None:
        write(
            self.resources,
            *resources(
                listener("siem", "http://127.0.0.1:9/"),
                deliverer={"mode": "Gateway"},
                publishers=[{"namespace": "team"}, {"namespace": "guests"}],
                **spec,
            ),
        )

    def options(self) -> tuple[str, ...]:
        return (*super().options(), "--journal", str(self.folder / "journal"))

    async def ask(
        self, request: Request | bytes, *, session: str = SESSION, **token: str
    ) -> tuple[int, bytes]:
        async with self.session.post(
            f"{self.process.intake}/v1/journals/{session}",
            data=request if isinstance(request, bytes) else encode_request(request),
            headers={
                "Authorization": f"Bearer {self.token(**token)}",
                "Content-Type": CONTENT_TYPE,
            },
            ssl=self.context,
        ) as answer:
            return answer.status, await answer.read()

    async def copy(self, request: Request, **given: str) -> Copy:
        status, body = await self.ask(request, **given)
        assert status == 200, body
        return decode_copy(body)

    async def refused(self, request: Request, **given: str) -> StoreError | None:
        return decode_refusal((await self.ask(request, **given))[1])

    async def listed(self) -> list[JSON]:
        """What an administrator sees."""
        async with self.session.get(f"{self.process.administration}/v1/journals") as answer:
            assert answer.status == 200
            found: list[JSON] = (await answer.json())["journals"]
            return found


@pytest_asyncio.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    made = Keeper(tmp_path)
    made.configure(journalCopies=COPIES)
    made.issue()
    made.give_keys()
    yield made


async def test_copies_outlive_a_killed_gateway(
    keeper: Keeper, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_of(1000, 2000)
    async with running(keeper):
        await keeper.copy(CLAIM)
        assert (await keeper.copy(append_of(log))).extents == log.extents
        assert (await keeper.copy(CLAIM, namespace="guests")).extents == ()
        assert isinstance(
            await keeper.refused(ReadRequest(position=0, size=1), account="other"), StoreError
        )
        asked = [await keeper.ask(CLAIM, session=one) for one in (OTHER, "f" * 32)]
        assert [status for status, _ in asked] == [200, 507]
        name = "pillion_journal_copy_requests_total"
        assert await keeper.metric(f'{name}{{verb="claim",result="sessions"}}') == 1
        assert await keeper.metric('pillion_journal_copy_sessions{writer_namespace="team"}') == 2
        keeper.process.process.send_signal(signal.SIGKILL)
        await keeper.process.ended()
    async with running(keeper):
        assert (await keeper.copy(CLAIM)).extents == log.extents
        begin = log.extents[0].number << 32
        assert (await keeper.ask(ReadRequest(position=begin, size=MAXIMUM_READ)))[1] == (
            log.content()
        )
        told = [(one["namespace"], one["session"], one["bytes"]) for one in await keeper.listed()]
        size = len(log.content())
        assert told == [("guests", SESSION, 0), ("team", SESSION, size), ("team", OTHER, 0)]
        assert await keeper.metric('pillion_journal_copy_bytes{writer_namespace="team"}') == size
        at = ["journals", "--to", keeper.process.administration]
        assert await asyncio.to_thread(main, at) == Exit.OK
        shown = capsys.readouterr().out.splitlines()
        assert [line.split()[:5] for line in shown[1:]] == [
            ["guests", SESSION, "pod", "1", "0"],
            ["team", SESSION, "pod", "1", str(size)],
            ["team", OTHER, "pod", "1", "0"],
        ]
        assert await asyncio.to_thread(main, [*at, "--output", "json"]) == Exit.OK
        assert json.loads(capsys.readouterr().out)[1]["end"] == f"{log.end:x}"
        await keeper.copy(RELEASE)
        await keeper.copy(RELEASE)
        assert len(await keeper.listed()) == 2


async def test_a_writer_that_stops_within_its_request_harms_nobody(keeper: Keeper) -> None:
    async with running(keeper):
        await keeper.copy(CLAIM)
        _, writer = await asyncio.open_connection("127.0.0.1", keeper.port, ssl=keeper.context)
        head = (
            f"POST /v1/journals/{SESSION} HTTP/1.1\r\nHost: g\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"Authorization: Bearer {keeper.token()}\r\nContent-Length: 5000\r\n\r\n"
        )
        writer.write(head.encode() + b"x" * 100)
        await writer.drain()
        assert (await keeper.copy(append_of(log_of(10)))).extents == log_of(10).extents
        writer.close()
        await keeper.copy(CLAIM)


async def test_a_gateway_without_the_field_names_it(
    keeper: Keeper, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(keeper):
        await keeper.copy(CLAIM)
    keeper.configure()
    async with running(keeper):
        status, body = await keeper.ask(CLAIM)
        assert (status, b"set journalCopies" in body) == (404, True)
        await keeper.process.logged("journal-copies-unused")
        at = ["journals", "--to", keeper.process.administration]
        assert await asyncio.to_thread(main, at) == Exit.FAILED
        assert "set journalCopies" in capsys.readouterr().err
        keeper.configure(journalCopies=COPIES)
        await keeper.process.logged("configuration-warning")
