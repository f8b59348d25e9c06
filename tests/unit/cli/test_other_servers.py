"""Answers that are not a deliverer's, or half of one, end each command with a sentence."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.other_server import OtherServer, answer_to

COMMANDS = (
    "queues",
    "queues siem",
    "queues --purge siem --yes",
    "doctor",
    "drain --timeout 1",
    "discarded redrive --dry-run",
    "suspend siem",
)
Change = Callable[[Any], Any]


def every(change: Change) -> Change:
    """Return a function that changes each value of a document that has no members."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(one) for name, one in value.items()}
        return [changed(one) for one in value] if isinstance(value, list) else change(value)

    return changed


def halved(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: halved(value[name]) for name in list(value)[: max(1, len(value) // 2)]}
    return [halved(one) for one in value] if isinstance(value, list) else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


CHANGES: dict[str, Change] = {
    "other types": every(lambda value: 5 if isinstance(value, str) else "x"),
    "nothing": every(lambda _: None),
    "half of the members": halved,
    "a large number": every(lambda value: 10**400 if is_number(value) else value),
    "no number": every(lambda value: float("nan") if is_number(value) else value),
    "a negative number": every(lambda value: -5 if is_number(value) else value),
    "a list": lambda document: [document],
}


def run(url: str, command: str) -> int:
    return main([*command.split(), "--server", url])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_answer_of_a_deliverer_is_said_to_be_none(
    command: str, change: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    with OtherServer(lambda path: json.dumps(change(answer_to(path))).encode()) as server:
        assert run(server.url, command) == Exit.FAILED
    told = capsys.readouterr()
    text = " ".join((told.out + told.err).split())
    assert "the answer is not from a deliverer: " in text
    assert "check the address: --server, --context or --pod" in text


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000], ids=["lists", "objects"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_is_nested_deeply_is_none(
    command: str, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with OtherServer(lambda _: body) as server:
        assert run(server.url, command) == Exit.FAILED
    told = capsys.readouterr()
    assert "the answer is not from a deliverer: " in " ".join((told.out + told.err).split())


@pytest.mark.parametrize(
    ("member", "command"),
    [("failingSince", "queues"), ("lastResult", "queues --failing"), ("suspended", "queues siem")],
)
def test_a_member_that_each_version_has_is_not_taken_for_no_trouble(
    member: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(path: str) -> bytes:
        document = json.loads(json.dumps(answer_to(path)))
        for queue in document.get("queues", [document]):
            del queue[member]
        return json.dumps(document).encode()

    with OtherServer(answer) as server:
        assert run(server.url, command) == Exit.FAILED
    told = capsys.readouterr()
    assert f"{member} is missing" in told.err
    assert told.out == ""


@pytest.mark.parametrize(
    ("command", "paged"),
    [("queues", "/v1/queues"), ("doctor", "/v1/queues"), ("doctor", "/v1/endpoints")],
)
@pytest.mark.parametrize(
    ("names", "requests"),
    [(lambda: itertools.repeat("a"), 2), (lambda: map("n{:06}".format, itertools.count()), 100)],
    ids=["the same", "without end"],
)
def test_pages_that_do_not_end_are_not_asked_for_without_end(
    command: str,
    paged: str,
    names: Callable[[], Any],
    requests: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    following = names()

    def answer(path: str) -> bytes:
        more = {"next": next(following)} if path.startswith(paged) else {}
        return json.dumps({**answer_to(path), **more}).encode()

    with OtherServer(answer) as server:
        assert run(server.url, command) == Exit.FAILED
        assert sum(path.startswith(paged) for path in server.paths) == requests
    told = capsys.readouterr()
    assert "its pages do not end" in " ".join((told.out + told.err).split())


def test_a_drain_names_the_destinations_and_why_they_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(path: str) -> bytes:
        document = answer_to(path)
        if path.startswith("/drain"):
            others = {f"z-{number}": 1 for number in range(6)}
            document = {"complete": False, "pending": 26, "destinations": {**others, "siem": 20}}
        return json.dumps(document).encode()

    with OtherServer(answer) as server:
        assert run(server.url, "drain") == Exit.PARTLY
        first, worst, *_, more, last = capsys.readouterr().out.splitlines()
        assert first == "26 pending, which cannot be delivered now"
        assert worst == "siem: 20 pending; failing: its attempts fail; the next one shows the cause"
        assert more == "2 more destinations: pillion queues lists them"
        assert last == "try: pillion queues siem"
        assert run(server.url, "drain --output json") == Exit.PARTLY
        told = json.loads(capsys.readouterr().out)
        assert (told["pending"], told["destinations"]["siem"]) == (26, 20)
        before = len(server.paths)
        assert run(server.url, "drain --best-effort") == Exit.OK
        assert capsys.readouterr().out == f"{first}\n"
        assert len(server.paths) == before + 1


def test_a_drain_counts_though_the_reason_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(path: str) -> bytes:
        return json.dumps(answer_to(path) if path.startswith("/drain") else []).encode()

    with OtherServer(answer) as server:
        assert run(server.url, "drain") == Exit.PARTLY
    assert capsys.readouterr().out.splitlines()[1:] == [
        "siem: 20 pending",
        "try: pillion queues siem",
    ]
