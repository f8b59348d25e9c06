"""What is read back on the event loop where the page cache has it, and in the thread where not."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.files import SystemFiles
from pillion_sidecar.journal.read_back import RECENT
from pillion_sidecar.journal.segments import segment_name, segment_of
from support.journal_owner import LiveJournal
from support.page_cache import tells_what_it_holds

SEGMENT = 100_000
BODY = b"x" * 1000


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveJournal]:
    if not tells_what_it_holds(tmp_path):
        pytest.skip("this file system does not tell what its page cache holds")
    made = LiveJournal(SystemFiles(tmp_path), segment_bytes=SEGMENT)
    yield made
    made.journal.close()


def load(live: LiveJournal, indications: Sequence[Indication]) -> list[Indication]:
    """Read back what must be there."""
    got: list[Indication | None] = []
    live.journal.load([one.position for one in indications], got.extend)
    live.run()
    found = [one for one in got if one is not None]
    assert [one.id for one in found] == [one.id for one in indications]
    return found


def test_what_the_page_cache_has_needs_no_thread_and_comes_later_all_the_same(
    live: LiveJournal,
) -> None:
    taken = [live.accept(1, body=b"%d" % number) for number in range(3)]
    live.run()
    got: list[Indication | None] = []
    live.journal.load([one.position for one in taken], got.extend)
    assert got == []
    assert not live.reader.jobs
    live.turn()
    assert [one.body for one in got if one is not None] == [b"0", b"1", b"2"]
    live.journal.load([], got.append)
    live.turn()
    assert got[3:] == [[]]


def test_what_several_queues_ask_for_is_one_indication(live: LiveJournal) -> None:
    several = [live.accept(1, 2, body=BODY) for _ in range(3)]
    alone = live.accept(1)
    live.run()
    first = load(live, [*several, alone])
    # In another order, and among others, as another queue has it.
    second = load(live, [alone, *reversed(several)])
    assert all(one is other for one, other in zip(first[:3], reversed(second[1:]), strict=True))
    assert first[3] is not second[0]
    assert {one.unsettled for one in first[:3]} == {2}


def test_what_is_asked_for_again_knows_how_many_places_are_left(live: LiveJournal) -> None:
    taken = live.accept(1, 2, 3)
    live.run()
    (first,) = load(live, [taken])
    assert first.unsettled == 3
    live.settle(taken, 2)
    (again,) = load(live, [taken])
    assert again is first
    assert again.unsettled == 2


def test_only_so_many_are_remembered_for_other_queues(live: LiveJournal) -> None:
    several = [live.accept(1, 2) for _ in range(RECENT + 1)]
    live.run()
    first = load(live, several)
    # The first of them had to make room, and the last did not.
    (again,) = load(live, several[-1:])
    assert again is first[-1]
    (again,) = load(live, several[:1])
    assert again is not first[0]


def copy_forward(live: LiveJournal, indication: Indication) -> int:
    """Have the journal move an indication; return where it was."""
    before = indication.position
    for _ in range(1000):
        busy = live.accept(1, body=BODY)
        live.run()
        live.settle(busy, 1)
        if indication.position != before:
            return before
    raise AssertionError("nothing was ever moved")


def test_what_is_copied_forward_is_read_where_it_is(live: LiveJournal, tmp_path: Path) -> None:
    waiting = live.accept(2, 3, body=b"waits")
    live.run()
    (early,) = load(live, [waiting])
    before = copy_forward(live, waiting)
    live.run()
    assert not (tmp_path / segment_name(segment_of(before)[0])).exists()
    (late,) = load(live, [waiting])
    assert late is not early
    assert (late.body, late.unsettled) == (b"waits", 2)


def test_what_is_copied_forward_before_it_is_handed_over_says_where_it_is(
    live: LiveJournal,
) -> None:
    waiting = live.accept(2, 3, body=b"waits")
    live.run()
    got: list[Indication | None] = []
    position = waiting.position
    live.journal.load([position], got.extend)
    handing_over = live.soon.popleft()
    assert not live.soon
    copy_forward(live, waiting)
    handing_over()
    (found,) = got
    assert found is not None
    assert (found.position, found.size) == (waiting.position, waiting.size)
    assert found.position != position


def test_a_segment_that_is_gone_is_held_open_by_nobody(live: LiveJournal, tmp_path: Path) -> None:
    waiting = live.accept(2, body=b"waits")
    live.run()
    load(live, [waiting])
    before = copy_forward(live, waiting)
    live.run()
    name = segment_name(segment_of(before)[0])
    assert not (tmp_path / name).exists()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            opened = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            # The folder that is being listed.
            continue
        assert not opened.startswith(str(tmp_path / name))


def test_damage_in_the_page_cache_is_found_by_the_thread_and_told(
    live: LiveJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, broken = live.accept(1, 2, body=b"whole"), live.accept(1, body=b"broken")
    live.run()
    number, offset = segment_of(broken.position)
    with (tmp_path / segment_name(number)).open("r+b") as file:
        file.seek(offset + broken.size - 1)
        file.write(b"?")
    got: list[Indication | None] = []
    live.journal.load([broken.position, whole.position], got.extend)
    assert live.reader.jobs
    live.run()
    assert got[0] is None
    assert got[1] is not None
    assert got[1].body == b"whole"
    assert live.journal.statistics.damaged == 1
    (record,) = caplog.records
    assert (record.event, record.file, record.begin) == (  # type: ignore[attr-defined]
        "journal-damaged",
        segment_name(number),
        offset,
    )
