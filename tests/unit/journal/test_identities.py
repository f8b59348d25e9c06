"""The files of identities that outlive their segments."""

from random import Random

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.identities import (
    PER_RECORD,
    IdentitiesFile,
    StoredIdentity,
    identities_name,
    identities_numbers,
    pack_identities,
    read_identities,
    surplus,
    write_identities,
)
from pillion_sidecar.journal.records import DELIVERED, REASON_CODES
from pillion_sidecar.journal.segments import Header, read_header
from support.journal_files import JOURNAL_ID, MemoryFiles

HEADER = Header(5, JOURNAL_ID, 10.0)


def some(count: int) -> list[StoredIdentity]:
    random = Random(count)
    hows = [DELIVERED, *REASON_CODES.values()]
    return [
        StoredIdentity(
            random.randbytes(16),
            float(number),
            random.choice([0.0, 1000.0 + number]),
            random.choice(hows),
            random.choice(["", "a", "b"]),
        )
        for number in range(count)
    ]


def test_identities_are_read_back_in_their_order() -> None:
    for count in (0, 1, PER_RECORD, PER_RECORD + 1, 2 * PER_RECORD + 5):
        files = MemoryFiles()
        written = some(count)
        file = write_identities(files, HEADER, pack_identities(written))
        data = bytes(files.contents[identities_name(5)])
        assert files.names() == [identities_name(5)]
        assert read_identities(data) == (written, [])
        assert read_header(data) == HEADER
        assert (file.name, file.entries, file.size) == (identities_name(5), count, len(data))


def test_a_damaged_record_costs_its_own_identities() -> None:
    files = MemoryFiles()
    written = some(2 * PER_RECORD)
    write_identities(files, HEADER, pack_identities(written))
    data = files.contents[identities_name(5)]
    data[100] ^= 1
    found, damaged = read_identities(bytes(data))
    assert found == written[PER_RECORD:]
    ((at, stretch),) = damaged
    assert at == 64
    assert not stretch.zeros


def test_a_second_file_takes_the_place_of_the_first() -> None:
    files = MemoryFiles()
    write_identities(files, HEADER, pack_identities(some(3)))
    files.contents[identities_name(5) + ".tmp"] = bytearray(b"left by a crash")
    write_identities(files, HEADER, pack_identities(some(4)))
    assert files.names() == [identities_name(5)]
    assert read_identities(bytes(files.contents[identities_name(5)]))[0] == some(4)


def test_the_numbers_are_found_among_names() -> None:
    names = [identities_name(7), "lock", identities_name(3), "0000000000000003.segment"]
    assert identities_numbers(names) == [3, 7]


def test_a_discard_keeps_its_reason_and_destination() -> None:
    files = MemoryFiles()
    code = REASON_CODES[DiscardReason.PURGED]
    one = StoredIdentity(b"d" * 16, 1.0, 2.0, code, "siem")
    file = write_identities(
        files, HEADER, pack_identities([one, one._replace(expires=0.0, accepted_at=7.0)])
    )
    assert (file.last_expires, file.last_accepted_at) == (2.0, 7.0)
    found, _ = read_identities(bytes(files.contents[identities_name(5)]))
    assert found[0] == one


def file_of(
    segment: int, entries: int, *, expires: float = 0.0, accepted: float = 0.0
) -> IdentitiesFile:
    return IdentitiesFile(
        segment=segment,
        entries=entries,
        size=0,
        last_expires=expires,
        last_accepted_at=accepted,
    )


def removed(known: list[IdentitiesFile], *, capacity: int = 100, now: float = 50.0) -> list[int]:
    return [
        file.segment for file in surplus(known, capacity=capacity, window_seconds=10.0, now=now)
    ]


def test_what_nobody_remembers_is_removed() -> None:
    known = [
        file_of(1, 5, accepted=39.0),
        file_of(2, 5, accepted=41.0),
        file_of(3, 5, expires=50.0, accepted=20.0),
        file_of(4, 5, expires=51.0),
        file_of(5, 0),
    ]
    assert removed(known) == [1, 3, 5]


def test_the_oldest_are_removed_where_there_are_too_many() -> None:
    known = [file_of(number, 40, accepted=45.0) for number in range(4)]
    assert removed(known) == [0, 1]
    assert removed([file_of(0, 10, accepted=45.0), *known[1:]]) == [0, 1]
    assert removed(known, capacity=10) == [0, 1, 2]
    assert removed(known[:1], capacity=10) == []
