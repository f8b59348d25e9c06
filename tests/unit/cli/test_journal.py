"""``pillion journal``: what it says of journals that were written by hand, and that it changes
nothing of them."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pillion_cim.schema import load_schema
from pillion_cli.commands import journal
from pillion_cli.exits import CommandError, Exit
from pillion_cli.journal_reader import JournalReader, Snapshot
from pillion_sidecar.history.files import LOCK_NAME, segments_of
from pillion_sidecar.indication import DiscardReason, GroupMember, Indication
from pillion_sidecar.intake.decoding import decode_object, parse_json
from pillion_sidecar.journal.files import (
    File,
    Files,
    ReadableFile,
    ReadableFiles,
    SystemFiles,
)
from pillion_sidecar.journal.ports import NO_NUMBER, Place
from pillion_sidecar.journal.records import (
    LOST,
    REASON_CODES,
    THROUGH,
    Flag,
    encode_indication,
)
from pillion_sidecar.journal.segments import segment_name
from pillion_sidecar.testing import FakeTime
from support.journal_files import JOURNAL_ID, Hand, MemoryFiles, queue_state
from support.journal_owner import LiveJournal
from support.outcomes import Recording, outcome

JSON = dict[str, Any]

ALERT = (
    b'{"class":"CIM_AlertIndication","properties":{"AlertType":5,"PerceivedSeverity":6,'
    b'"ProbableCause":1,"Message":"secret body"}}'
)
FULL = REASON_CODES[DiscardReason.QUEUE_FULL]


class Journal:
    """A hand, and the folder that its segments are written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hand = Hand(MemoryFiles())

    def take(
        self, *places: Place, flags: int = 0, origin: int = 0, copy_of: int = 0, **fields: Any
    ) -> int:
        """Write an indication with a body as publishers send it; return its id."""
        if not copy_of:
            self.hand.last_id += 1
        one = Indication(
            body=ALERT,
            class_name="CIM_AlertIndication",
            accepted_at=0.0,
            id=copy_of or self.hand.last_id,
            **fields,
        )
        record = encode_indication(one, places, accepted_at=1000.5, flags=flags, origin=origin)
        self.content += record
        return one.id

    @property
    def content(self) -> bytearray:
        """The newest segment."""
        return self.hand.files.contents[segment_name(self.hand.number)]

    @content.setter
    def content(self, content: bytearray) -> None:
        self.hand.files.contents[segment_name(self.hand.number)] = content

    def write(self) -> None:
        """Write the folder anew."""
        for name, content in self.hand.files.contents.items():
            (self.folder / name).write_bytes(content)


@pytest.fixture
def made(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def run(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    journal.add_arguments(parser)
    return journal.run(parser.parse_args([str(one) for one in arguments]))


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, JSON]:
    code = run(*arguments, "--output", "json")
    document: JSON = json.loads(capsys.readouterr().out)
    return code, document


def exported(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[JSON]:
    assert run("export", *arguments) == Exit.OK
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def busy(made: Journal) -> None:
    """Two segments: of three for one destination the first is delivered, one held, two queues."""
    hand = made.hand
    hand.commit()
    for _ in range(3):
        made.take(hand.place(1), digest=bytes(16))
    made.take(hand.place(2))
    hand.settle((1, THROUGH, 0))
    hand.roll()
    hand.commit()
    made.take(
        Place(1, 0, NO_NUMBER),
        flags=Flag.HELD,
        source="weather",
        group="g",
        member=GroupMember(sequence=7),
    )
    state = queue_state(1, epoch=3, next_number=9)
    hand.state(
        type(state)(
            destination=1,
            listener="http://listener/?token=secret",
            sends_identifiers=True,
            epoch=3,
            base=2,
            next_number=9,
            failures=4,
            next_attempt_at=2000.25,
        )
    )
    made.write()


# ---------------------------------------------------------------------- inspect


def test_inspect_counts_the_next_number_on_from_a_state_that_is_older(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    hand = made.hand
    hand.state(queue_state(1, next_number=0))
    hand.state(queue_state(2, next_number=0))
    for _ in range(3):
        made.take(hand.place(1), hand.place(2))
    hand.settle((1, THROUGH, 2))
    made.write()
    _, document = told(capsys, "inspect", made.folder)
    queues = {one["name"]: one for one in document["destinations"]}
    for name, pending in (("destination-1", 0), ("destination-2", 3)):
        shown = queues[name]
        assert (shown["pending"], shown["context"]["nextSequenceNumber"]) == (pending, 3)


def test_inspect_sums_up_segments_queues_groups_and_identities(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    busy(made)
    code, document = told(capsys, "inspect", made.folder)
    assert code == Exit.OK
    assert (document["journal"], document["version"]) == (JOURNAL_ID.hex(), 1)
    first, second = document["segments"]
    assert (first["name"], first["records"], first["liveRecords"]) == (segment_name(1), 4, 3)
    assert (second["records"], second["liveRecords"]) == (1, 1)
    assert (
        3 * len(ALERT)
        < first["liveBytes"]
        < first["bytes"]
        == len(made.hand.files.contents[first["name"]])
    )
    queues = {one["name"]: one for one in document["destinations"]}
    assert queues["destination-1"] == {
        "name": "destination-1",
        "uid": "uid-1",
        "pending": 2,
        "oldestAcceptedAt": "1970-01-01T00:16:40.5Z",
        "nextAttemptTime": "1970-01-01T00:33:20.25Z",
        "failures": 4,
        "paused": False,
        "context": {"epoch": 3, "nextSequenceNumber": 7, "sent": True},
    }
    assert queues["destination-2"]["pending"] == 1
    assert (queues["destination-0"]["pending"], queues["destination-0"]["context"]) == (0, None)
    assert document["heldGroups"] == [
        {
            "source": "weather",
            "group": "g",
            "pending": 1,
            "oldestAcceptedAt": "1970-01-01T00:16:40.5Z",
            "leastSequence": 7,
        }
    ]
    assert (document["identities"], document["findings"], document["quarantined"]) == (3, [], [])


def test_inspect_shows_it_to_people_and_tells_no_secret(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    busy(made)
    assert run("inspect", made.folder) == Exit.OK
    out = capsys.readouterr().out
    assert f"journal {JOURNAL_ID.hex()}, version 1" in out
    assert "3 identities remembered" in out
    for word in (segment_name(2), "destination-1", "1970-01-01T00:33:20.25Z", "weather"):
        assert word in out
    assert "secret" not in out


def test_inspect_counts_what_was_copied_forward_once_and_where_it_lies_now(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    place = made.hand.place(1)
    one = made.take(place)
    made.hand.roll()
    made.hand.commit()
    made.take(place, flags=Flag.COPY, origin=1, copy_of=one)
    made.write()
    _, document = told(capsys, "inspect", made.folder)
    assert [one["liveRecords"] for one in document["segments"]] == [0, 1]
    assert document["destinations"][1]["pending"] == 1


def test_inspect_counts_what_a_deliverer_without_bodies_has_lost(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    made.take(made.hand.place(1), flags=Flag.BODILESS)
    made.hand.settle((1, THROUGH, 0))
    one = made.take(made.hand.place(1), flags=Flag.BODILESS)
    made.hand.settle((0, LOST, one))
    made.take(made.hand.place(1), flags=Flag.BODILESS)
    made.hand.settle((1, THROUGH, 2))
    made.take(made.hand.place(1), flags=Flag.BODILESS)
    made.write()
    _, document = told(capsys, "inspect", made.folder)
    assert (document["lost"], document["destinations"][1]["pending"]) == (1, 1)
    assert run("inspect", made.folder) == Exit.OK
    assert "1 lost with a deliverer" in capsys.readouterr().out


# ---------------------------------------------------------------------- verify


def test_verify_finds_a_sound_journal_sound(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    busy(made)
    code, document = told(capsys, "verify", made.folder)
    assert (code, document["sound"], document["findings"]) == (Exit.OK, True, [])
    assert (document["files"], document["journal"]) == (2, JOURNAL_ID.hex())
    assert run("verify", made.folder) == Exit.OK
    assert capsys.readouterr().out.startswith("sound: 2 files, ")


def test_verify_says_where_a_flipped_byte_is_and_what_is_lost(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    made.hand.commit()
    made.take(made.hand.place(1))
    begin = len(made.content)
    made.take(made.hand.place(1))
    end = len(made.content)
    made.hand.commit()
    made.content[begin + 120] ^= 1
    made.write()
    code, document = told(capsys, "verify", made.folder)
    assert (code, document["sound"]) == (Exit.FAILED, False)
    assert document["findings"] == [
        {
            "file": segment_name(1),
            "kind": "damaged",
            "begin": begin,
            "end": end,
            "lost": "INDICATION 2",
        }
    ]
    assert run("verify", made.folder) == Exit.FAILED
    found, summary = capsys.readouterr().out.splitlines()
    assert found == (f"{segment_name(1)}: bytes {begin} to {end - 1}: damaged; lost: INDICATION 2")
    assert summary.startswith("damaged in 1 place: 1 file, ")


def test_verify_reads_the_history_too(
    made: Journal, capsys: pytest.CaptureFixture[str], fake_time: FakeTime
) -> None:
    busy(made)
    history = Recording(made.folder, fake_time)
    history.add(outcome(1), outcome(2))
    history.commit()
    history.history.close()
    assert run("verify", made.folder) == Exit.OK
    capsys.readouterr()
    (segment,) = segments_of(made.folder)
    data = bytearray(segment.path.read_bytes())
    data[-1] ^= 1
    segment.path.write_bytes(data)
    assert run("verify", made.folder) == Exit.FAILED
    found, summary = capsys.readouterr().out.splitlines()
    lost = "outcomes, at most 2 discards among them"
    assert found == f"{segment.path.name}: bytes 0 to {len(data) - 1}: damaged; lost: {lost}"
    assert summary.startswith("damaged in 1 place: ")


def test_a_write_that_a_kill_broke_off_is_told_and_is_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = LiveJournal(SystemFiles(tmp_path))
    live.accept(0, body=b" " * 700)
    live.run()
    (segment,) = tmp_path.glob("*.segment")
    data = bytearray(segment.read_bytes())
    end = len(data.rstrip(b"\0"))
    data[end : end + 4] = b"half"
    segment.write_bytes(data)
    code, document = told(capsys, "verify", tmp_path)
    assert (code, document["sound"], document["findings"]) == (Exit.OK, True, [])
    (found,) = document["unfinished"]
    assert found["lost"] == "the last write, of which nothing was acknowledged"
    assert run("verify", tmp_path) == Exit.OK
    told_of, summary = capsys.readouterr().out.splitlines()
    assert "cut short; lost: the last write, of which nothing" in told_of
    assert summary.startswith("sound: ")


def test_an_end_that_is_cut_short_is_told_and_fails(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    made.hand.commit()
    made.take(made.hand.place(1))
    end = len(made.content)
    made.content += b"half a record" + bytes(4096)
    made.write()
    code, document = told(capsys, "verify", made.folder)
    assert (code, document["sound"], document["findings"]) == (Exit.FAILED, False, [])
    assert [one["begin"] for one in document["unfinished"]] == [end]
    assert run("verify", made.folder) == Exit.FAILED
    told_of, summary = capsys.readouterr().out.splitlines()
    assert told_of.endswith(
        f"from byte {end}: cut short; lost: the last write, which may have been acknowledged"
    )
    assert summary.startswith("cut short: ")


def test_verify_misses_the_first_and_the_last_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = LiveJournal(SystemFiles(tmp_path), segment_bytes=4096)
    for _ in range(20):
        live.accept(0, body=b" " * 700)
        live.run()
    live.journal.close()
    assert told(capsys, "verify", tmp_path)[0] == Exit.OK
    first, *_, last = sorted(tmp_path.glob("*.segment"))
    last.unlink()
    code, document = told(capsys, "verify", tmp_path)
    assert (code, [one["file"] for one in document["findings"]]) == (Exit.FAILED, [last.name])
    first.unlink()
    code, document = told(capsys, "verify", tmp_path)
    assert (code, document["sound"]) == (Exit.FAILED, False)
    assert [one["file"] for one in document["findings"]] == [first.name, last.name]
    for segment in tmp_path.glob("*.segment"):
        segment.unlink()
    code, document = told(capsys, "verify", tmp_path)
    assert (code, [one["file"] for one in document["findings"]]) == (Exit.FAILED, [first.name])


@pytest.mark.parametrize("name", [segment_name(2), "marks"])
def test_a_folder_in_the_place_of_a_file_is_called_one(
    made: Journal, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made.hand.roll()
    made.hand.roll()
    made.write()
    (made.folder / name).unlink(missing_ok=True)
    (made.folder / name).mkdir()
    code = run("verify", made.folder)
    out = capsys.readouterr().out
    kind = "marks" if name == "marks" else "missing"
    assert (code, "sound" in out) == (Exit.FAILED, False)
    assert f"{name}: a folder instead of a file: {kind}" in out


def test_a_folder_in_the_place_of_the_historys_lock_is_named(made: Journal) -> None:
    made.write()
    (made.folder / LOCK_NAME).mkdir()
    with pytest.raises(CommandError, match=rf"{LOCK_NAME}': Is a directory; it is a folder with"):
        run("discards", made.folder)


def test_verify_misses_a_segment_between_others_and_names_what_was_put_aside(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    made.hand.roll()
    made.hand.roll()
    made.write()
    (made.folder / segment_name(2)).unlink()
    aside = "0000000000000001-00000040.damaged"
    (made.folder / aside).write_bytes(b"12345")
    code, document = told(capsys, "verify", made.folder)
    assert code == Exit.FAILED
    assert [(one["kind"], one["file"]) for one in document["findings"]] == [
        ("missing", segment_name(2))
    ]
    assert document["quarantined"] == [{"file": aside, "bytes": 5}]
    assert run("verify", made.folder) == Exit.FAILED
    out = capsys.readouterr().out
    assert f"{segment_name(2)}: not there: missing" in out
    assert f"{aside}: 5 damaged bytes, quarantined by a deliverer" in out


def test_verify_calls_a_segment_of_no_bytes_empty(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    made.hand.roll()
    made.write()
    (made.folder / segment_name(1)).write_bytes(b"")
    assert run("verify", made.folder) == Exit.FAILED
    assert f"{segment_name(1)}: empty: " in capsys.readouterr().out


@pytest.mark.parametrize("action", journal.ACTIONS)
@pytest.mark.parametrize("what", ["nothing", "file", "empty", "newer"])
def test_what_is_no_journal_is_a_wrong_command_line(
    action: str, what: str, tmp_path: Path, made: Journal
) -> None:
    path = tmp_path / "journal"
    words = {
        "nothing": "there is no folder",
        "file": "Not a directory",
        "empty": "it has no segment",
    }
    if what == "file":
        path.write_text("x")
    elif what != "nothing":
        path.mkdir()
    if what == "newer":
        newer = bytearray(made.content)
        newer[8:10] = (2).to_bytes(2, "little")
        newer[60:64] = crc32(newer[:60]).to_bytes(4, "little")
        (path / segment_name(1)).write_bytes(newer)
    with pytest.raises(CommandError, match=words.get(what, "layout version 2")) as failure:
        run(action, path)
    assert failure.value.code == Exit.USAGE


# ---------------------------------------------------------------------- export


def test_export_gives_what_is_pending_as_publishers_send_it(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    hand = made.hand
    made.take(hand.place(1))
    made.take(hand.place(1), source="weather", group="g", expires=4102444800.25)
    made.take(
        hand.place(2),
        source="weather",
        group="é",
        member=GroupMember(
            sequence=3, last=True, ordered=True, expires=4102444801.0, max_idle_seconds=2.5
        ),
    )
    hand.settle((1, THROUGH, 0))
    made.write()
    alert = json.loads(ALERT)
    second, third = exported(capsys, made.folder)
    expires = "2100-01-01T00:00:00.25Z"
    assert second == {**alert, "source": "weather", "group": "g", "expires": expires}
    assert third == {
        **alert,
        "source": "weather",
        "group": "é",
        "sequence": 3,
        "last": True,
        "ordered": True,
        "groupExpires": "2100-01-01T00:00:01Z",
        "groupMaxIdleSeconds": 2.5,
    }
    assert len(exported(capsys, made.folder, "--all")) == 3
    assert exported(capsys, made.folder, "--destination", "destination-1") == [second]


def test_what_is_exported_is_what_intake_takes(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    member = GroupMember(
        sequence=3, last=True, ordered=True, expires=4102444801.0, max_idle_seconds=2.5
    )
    made.take(made.hand.place(1), source="weather", group="g", member=member, expires=4102444800.25)
    made.write()
    assert run("export", made.folder, "--pending") == Exit.OK
    line = capsys.readouterr().out.strip().encode()
    decoded = decode_object(parse_json(line), schema=load_schema())
    assert (decoded.source, decoded.group, decoded.expires) == ("weather", "g", 4102444800.25)
    assert decoded.member == member
    assert json.loads(decoded.body) == json.loads(ALERT)


def test_an_envelope_says_what_became_of_each_place(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    hand = made.hand
    one = made.take(*(hand.place(index) for index in range(3)), languages=("en-GB",))
    hand.settle((0, THROUGH, 0), (1, FULL, 0))
    made.write()
    (line,) = exported(capsys, made.folder, "--envelope")
    assert line["id"] == one
    assert line["acceptedAt"] == "1970-01-01T00:16:40.5Z"
    assert line["contentLanguages"] == ["en-GB"]
    assert line["indication"] == json.loads(ALERT)
    named = {"subscription": "s0", "filter": "f0"}
    assert line["places"] == [
        {"destination": "destination-0", **named, "state": "delivered"},
        {"destination": "destination-1", **named, "state": "discarded", "reason": "queue-full"},
        {"destination": "destination-2", **named, "state": "pending"},
    ]


def test_what_was_held_or_copied_is_exported_once(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    hand = made.hand
    released = made.take(Place(1, 0, NO_NUMBER), flags=Flag.HELD)
    ended = made.take(Place(1, 0, NO_NUMBER), flags=Flag.HELD)
    homeless = made.take(flags=Flag.HELD)
    copied = hand.place(2)
    two = made.take(copied)
    hand.roll()
    hand.commit()
    again = made.take(hand.place(1), origin=released)
    hand.end_hold(ended, REASON_CODES[DiscardReason.OUT_OF_ORDER])
    made.take(copied, flags=Flag.COPY, origin=1, copy_of=two)
    made.write()
    lines = exported(capsys, made.folder, "--all", "--envelope")
    assert [line["id"] for line in lines] == [ended, homeless, two, again]
    assert lines[0]["places"][0]["reason"] == "out-of-order"
    lines = exported(capsys, made.folder, "--envelope")
    assert [line["id"] for line in lines] == [homeless, two, again]


def test_the_copy_stands_for_a_record_that_is_damaged(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    place = made.hand.place(1)
    begin = len(made.content)
    one = made.take(place)
    made.content[begin + 100] ^= 1
    made.hand.roll()
    made.hand.commit()
    made.take(place, flags=Flag.COPY, origin=1, copy_of=one)
    made.write()
    assert run("export", made.folder) == Exit.PARTLY
    captured = capsys.readouterr()
    assert [json.loads(line) for line in captured.out.splitlines()] == [json.loads(ALERT)]
    assert "damaged in 1 place" in captured.err


def test_what_was_kept_without_a_body_is_counted(
    made: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    made.take(made.hand.place(1), flags=Flag.BODILESS)
    made.write()
    assert run("export", made.folder) == Exit.PARTLY
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "1 without a body" in captured.err
    assert run("export", made.folder, "--envelope") == Exit.PARTLY
    assert json.loads(capsys.readouterr().out)["indication"] is None


def test_an_unknown_destination_is_named_with_those_that_there_are(made: Journal) -> None:
    made.write()
    with pytest.raises(
        CommandError, match=r"^--destination: .*'siem'; it has destination-0, "
    ) as failure:
        run("export", made.folder, "--destination", "siem")
    assert failure.value.code == Exit.USAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "--all"),
        ("verify", "--destination", "siem"),
        ("inspect", "--envelope", "--pending"),
        ("export", "--output", "json"),
    ],
)
def test_options_of_another_action_are_refused(arguments: tuple[str, ...], made: Journal) -> None:
    made.write()
    action, *options = arguments
    with pytest.raises(CommandError, match=options[0]) as failure:
        run(action, made.folder, *options)
    assert failure.value.code == Exit.USAGE


# ---------------------------------------------------------------------- beside a deliverer


def test_nothing_is_changed(made: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    busy(made)
    path = made.folder / segment_name(1)
    path.write_bytes(path.read_bytes()[:-3] + b"???")
    (made.folder / "next.tmp").write_bytes(bytes(100))
    before = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in made.folder.iterdir()}
    for action in journal.ACTIONS:
        run(action, made.folder)
    capsys.readouterr()
    after = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in made.folder.iterdir()}
    assert after == before


def test_a_segment_that_is_removed_meanwhile_stays_readable(made: Journal) -> None:
    busy(made)
    with Snapshot(made.folder) as snapshot:
        (made.folder / segment_name(1)).unlink()
        reader = JournalReader(snapshot)
        assert reader.damage() == []
        assert len(list(reader.indications())) == 5


def test_a_segment_that_is_removed_before_it_was_opened_is_not_missed(
    made: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(made)
    opened = SystemFiles.open

    def remove_first(self: SystemFiles, name: str, *, writable: bool = False) -> File:
        (made.folder / segment_name(1)).unlink(missing_ok=True)
        return opened(self, name, writable=writable)

    monkeypatch.setattr(SystemFiles, "open", remove_first)
    with Snapshot(made.folder) as snapshot:
        assert snapshot.names() == [segment_name(2)]
        assert JournalReader(snapshot).damage() == []


class BeingWritten(MemoryFiles):
    """A segment of which a stretch is there only when it is read for the third time: the first
    look reads its header, and then all of it."""

    def __init__(self, contents: dict[str, bytes], hole: slice) -> None:
        super().__init__(contents)
        self._whole = {name: bytearray(data) for name, data in self.contents.items()}
        for content in self.contents.values():
            content[hole] = bytes(hole.stop - hole.start)
        self._opened = 0

    def open(self, name: str, *, writable: bool = False) -> File:
        self._opened += 1
        if self._opened == 3:
            self.contents = self._whole
        return super().open(name, writable=writable)


def test_a_hole_that_is_filled_meanwhile_is_no_damage(made: Journal) -> None:
    made.hand.commit()
    begin = len(made.content)
    made.take(made.hand.place(1))
    end = len(made.content)
    made.hand.commit()
    name = segment_name(1)
    files = BeingWritten({name: bytes(made.content)}, slice(begin, end))
    reader = JournalReader(files)
    assert reader.damage() == []
    assert len(list(reader.indications())) == 1


def test_the_snapshot_lets_nothing_be_changed(made: Journal) -> None:
    made.write()
    name = segment_name(1)
    with Snapshot(made.folder) as snapshot:
        file = snapshot.open(name)
        reading = {*dir(ReadableFiles), *dir(ReadableFile)}
        changing = {*dir(Files), *dir(File)} - reading
        assert "create" in changing
        assert not changing & {*dir(snapshot), *dir(file)}


def test_a_journal_may_have_more_files_than_a_process_may_open_at_first(made: Journal) -> None:
    for _ in range(100):
        made.hand.roll()
    made.write()
    program = (
        "import resource, sys\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))\n"
        "from pillion_cli.main import main\n"
        "sys.exit(main(['journal', 'verify', sys.argv[1]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(made.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sound: 101 files, ")
