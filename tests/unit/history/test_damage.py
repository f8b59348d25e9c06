"""What is damaged in the files of a history is found, counted and told."""

import logging
from pathlib import Path

import pytest

from pillion_sidecar.history.blocks import HEADER_BYTES, MAGIC, header_of
from pillion_sidecar.history.damage import Damage, damage_in
from pillion_sidecar.history.files import Segment, segments_of
from pillion_sidecar.testing import FakeTime
from support.outcomes import Recording, identifiers, outcome

#: Discards of each block.
COUNT = 3


def recorded(folder: Path, time: FakeTime, blocks: int = 3) -> tuple[Segment, list[int]]:
    """Return a segment, and where its blocks begin."""
    run = Recording(folder, time)
    for number in range(blocks):
        run.add(*(outcome(COUNT * number + at) for at in range(COUNT)))
        run.commit()
    run.history.close()
    (segment,) = segments_of(folder)
    data = segment.path.read_bytes()
    begins = [0]
    while header := header_of(data[begins[-1] :]):
        begins.append(begins[-1] + HEADER_BYTES + header.size)
    assert len(begins) == blocks + 1
    return segment, begins


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("is_newest", [False, True])
def test_a_sound_segment_has_no_damage(
    tmp_path: Path, fake_time: FakeTime, is_newest: bool
) -> None:
    segment, _ = recorded(tmp_path, fake_time)
    assert damage_in(segment, is_newest=is_newest) == []


@pytest.mark.parametrize(
    "at", [0, len(MAGIC) + 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 40]
)
@pytest.mark.parametrize("block", [0, 1])
def test_a_damaged_block_is_found_with_its_discards(
    tmp_path: Path, fake_time: FakeTime, block: int, at: int
) -> None:
    segment, begins = recorded(tmp_path, fake_time)
    begin, end = begins[block : block + 2]
    flip(segment.path, begin + at)
    expected = Damage(segment.path.name, begin, end - begin, 1 + COUNT * (block + 1), COUNT)
    assert damage_in(segment, is_newest=True) == [expected]


def test_a_segment_that_was_cut_short_is_damaged_unless_it_is_the_newest(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    segment, begins = recorded(tmp_path, fake_time)
    segment.path.write_bytes(segment.path.read_bytes()[: begins[2] + 5])
    expected = Damage(segment.path.name, begins[2], 5, 1 + 2 * COUNT, 0)
    assert damage_in(segment, is_newest=False) == [expected]
    assert damage_in(segment, is_newest=True) == []


def test_the_next_start_counts_and_logs_what_is_lost(
    tmp_path: Path, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    segment, begins = recorded(tmp_path, fake_time)
    flip(segment.path, begins[1] + HEADER_BYTES)
    with caplog.at_level(logging.WARNING):
        again = Recording(tmp_path, fake_time)
    assert len(identifiers(tmp_path)) == 2 * COUNT
    assert again.history.unkept_discards == COUNT
    assert again.history.unkept_after(0, "anybody") == COUNT
    assert again.history.unkept_after(2 * COUNT, "anybody") == 0
    again.add(outcome(100))
    again.commit()
    (told,) = caplog.records
    assert told.__dict__["event"] == "history-damaged"
    assert (told.__dict__["file"], told.__dict__["discards"]) == (segment.path.name, COUNT)
    assert (told.__dict__["begin"], told.__dict__["size"]) == (begins[1], begins[2] - begins[1])


def test_a_segment_that_is_removed_meanwhile_stops_no_search(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    segment, begins = recorded(tmp_path, fake_time)
    flip(segment.path, begins[0] + HEADER_BYTES)
    later = Recording(tmp_path, fake_time)
    assert later.history.unkept_discards == COUNT
    gone = segment._replace(path=tmp_path / "gone")
    later.history._look_for_damage([gone, *segments_of(tmp_path)])
    later.worker.drain()
    assert later.history.unkept_discards == 2 * COUNT
