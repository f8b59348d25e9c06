"""A gateway is asked for copies and adoptions, and nothing that it answers is trusted."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from pillion_operator.polling.adoptions import (
    MOST_PAGES,
    AskError,
    GatewayAdoptions,
    Refused,
)
from pillion_sidecar.wire.adoptions import AdoptionOrder, OrderedGroup, OrderedStores
from pillion_sidecar.wire.journals import MOST_SESSIONS
from support.adopting_gateways import session

ORDER = AdoptionOrder(
    session=session(1),
    service="default",
    stores=OrderedStores(groups=[OrderedGroup(name="g", members=["a"])]),
)


class Scripted:
    """Gives one answer after the other, the last one again and again."""

    def __init__(self, *answers: tuple[int, Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Mapping[str, str], bytes | None]] = []

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        address: str,
        token: str,
        seconds: float,
        most: int,
        body: bytes | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        self.asked.append((method, path, query, body))
        assert (address, token) == ("10.0.0.1", "t")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, document = answer
        return (
            status,
            {},
            document if isinstance(document, bytes) else json.dumps(document).encode(),
        )


def gateway(scripted: Scripted) -> GatewayAdoptions:
    return GatewayAdoptions(scripted, address="10.0.0.1", token="t")


def page(number: int, following: str | None) -> tuple[int, Any]:
    copy = {"session": session(number), "claimant": "c", "epoch": 1, "bytes": 1, "end": "1"}
    return 200, {"journals": [{**copy, "idleSeconds": 0.5}], "next": following}


def test_copies_are_read_page_by_page() -> None:
    scripted = Scripted(page(1, "shop/1"), page(2, None))
    copies = asyncio.run(gateway(scripted).copies())
    assert [copy.session for copy in copies] == [session(1), session(2)]
    limit = str(MOST_SESSIONS)
    assert [query for *_, query, _ in scripted.asked] == [
        {"limit": limit},
        {"limit": limit, "after": "shop/1"},
    ]


def test_endless_pages_end() -> None:
    scripted = Scripted(*(page(number, f"shop/{number:04}") for number in range(1, 99)))
    assert len(asyncio.run(gateway(scripted).copies())) == MOST_PAGES
    scripted = Scripted(page(1, "shop/1"))
    assert len(asyncio.run(gateway(scripted).copies())) == 2


def test_an_order_is_sent_as_the_gateway_reads_it() -> None:
    status = {"session": session(1), "service": "default", "state": "Waiting"}
    scripted = Scripted((202, status))
    assert asyncio.run(gateway(scripted).order(ORDER)).state == "Waiting"
    ((method, path, _, body),) = scripted.asked
    assert (method, path) == ("POST", "/v1/adoptions")
    assert body is not None
    groups = [{"name": "g", "members": ["a"], "backups": []}]
    stores = {"groups": groups, "within": "Quorum", "between": "Any", "leaseSeconds": 0}
    assert json.loads(body) == {"session": session(1), "service": "default", "stores": stores}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((409, {"reason": "it needs\ndurability Disk"}), "HTTP 409: it needs durability Disk"),
        ((404, b"<html>"), "HTTP 404"),
        ((400, {"reason": "x" * 1000}), "HTTP 400: " + "x" * 290),
        ((500, []), "HTTP 500"),
    ],
)
def test_a_refusal_is_told_in_one_line(answer: tuple[int, Any], told: str) -> None:
    with pytest.raises(Refused) as raised:
        asyncio.run(gateway(Scripted(answer)).order(ORDER))
    assert str(raised.value) == told
    assert raised.value.status == answer[0]


@pytest.mark.parametrize("answer", [(200, b"\xff"), (200, {}), (200, b"[" * 100_000)])
def test_an_answer_that_cannot_be_read_is_none(answer: tuple[int, Any]) -> None:
    async def work() -> None:
        for asked in ("copies", "statuses"):
            with pytest.raises(AskError, match="cannot be read"):
                await getattr(gateway(Scripted(answer)), asked)()
        with pytest.raises(AskError, match="cannot be read"):
            await gateway(Scripted(answer)).order(ORDER)

    asyncio.run(work())


@pytest.mark.parametrize("error", [TimeoutError(), OSError("refused")])
def test_no_answer_is_told_without_its_cause(error: Exception) -> None:
    with pytest.raises(AskError, match=r"^it does not answer the operator$"):
        asyncio.run(gateway(Scripted(error)).statuses())
