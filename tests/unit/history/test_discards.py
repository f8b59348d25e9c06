"""The list of discards: those of the history, and the list of earlier versions."""

import json
from pathlib import Path
from typing import Any

from pillion_sidecar.history.discards import count_unlisted, lists_discards, read_discards
from pillion_sidecar.history.outcome import OutcomeQuery
from pillion_sidecar.history.reading import Kept
from pillion_sidecar.testing import FakeTime
from support.outcomes import BEGAN, Recording, outcome

DISCARDED = OutcomeQuery(result="discarded")


def listed(order: int, **fields: Any) -> str:
    """A line as the versions before the history wrote it."""
    line = {
        "time": f"2026-11-22T08:00:{order:02d}Z",
        "destination": "siem",
        "subscription": "to-siem",
        "reason": "purged",
        "detail": None,
        "source": "test",
        "identifier": f"old{order}",
        "sequenceContext": "default#journal-1#siem#1",
        "sequenceNumber": order,
        "attempts": 0,
        "queue": 3,
        "number": order,
        "id": order,
        **fields,
    }
    return json.dumps(line) + "\n"


def earlier(folder: Path) -> None:
    """The files of an earlier version."""
    (folder / "discards-00000002.ndjson").write_text(listed(3) + '{"closed":true}\n{"torn')
    (folder / "discards-00000001.ndjson").write_text(listed(1) + listed(2, destination="noc"))
    (folder / "discards.lock").write_text(f"{7:020d}\n")


def names(folder: Path, query: OutcomeQuery = DISCARDED) -> list[str | None]:
    return [one.identifier for one in read_discards(Kept(folder=folder), query)]


def test_an_empty_folder_lists_nothing(tmp_path: Path) -> None:
    assert not lists_discards(tmp_path)
    assert not lists_discards(tmp_path / "missing")
    assert (names(tmp_path), count_unlisted(tmp_path)) == ([], 0)


def test_the_list_of_an_earlier_version_comes_first_and_is_left_alone(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    earlier(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert lists_discards(tmp_path)
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1), outcome(2, result="delivered"), outcome(3))
    run.commit()
    assert names(tmp_path) == ["old1", "old2", "old3", "i1", "i3"]
    latest = run.history.latest(DISCARDED, limit=3)()
    assert [one.identifier for one in latest] == ["old3", "i1", "i3"]
    assert count_unlisted(tmp_path) == 7
    run.history.close()
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_both_are_selected_by_the_same_query(tmp_path: Path, fake_time: FakeTime) -> None:
    earlier(tmp_path)
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1, destination="noc"), outcome(2))
    run.commit()
    assert names(tmp_path, OutcomeQuery(result="discarded", destination="noc")) == ["old2", "i1"]
    assert names(tmp_path, OutcomeQuery(result="discarded", reason="queue-full")) == ["i1", "i2"]
    assert names(tmp_path, OutcomeQuery(result="discarded", identifier="old3")) == ["old3"]
    assert names(tmp_path, OutcomeQuery(result="discarded", since=BEGAN)) == ["i1", "i2"]
    assert names(tmp_path, OutcomeQuery(result="discarded", until=BEGAN)) == [
        "old1",
        "old2",
        "old3",
    ]
