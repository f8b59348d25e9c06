"""What waits in a queue: a front that is loaded, and a packed rest that is read back in time."""

from collections.abc import Callable, Sequence

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.backlog import FRONT_ENTRIES, FRONT_LOW, Backlog, Packing
from pillion_sidecar.delivery.compact_entries import CompactEntries
from pillion_sidecar.delivery.entries import EntryColumns, QueueEntry, Subscription
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.memory import MemoryJournal
from pillion_sidecar.testing import FakeTime
from support.delivery import subscription


class Bodies(MemoryJournal):
    """Keeps the indications of entries; reads them back when it is told to."""

    def __init__(self, *, durability: Durability) -> None:
        super().__init__(clock=FakeTime())
        self.durability = durability
        self.subscriptions = [
            Subscription(subscription(f"s{index}", "ops"), began_at=0.0, index=index)
            for index in range(2)
        ]
        self.kept: dict[int, Indication] = {}
        self.loads: list[tuple[Sequence[int], Callable[[Sequence[Indication | None]], None]]] = []

    def entry(self, number: int) -> QueueEntry:
        self.kept[number] = Indication(
            body=b"", class_name="CIM_AlertIndication", accepted_at=0.0, id=number, position=number
        )
        return QueueEntry(self.kept[number], self.subscriptions[number % 2], number)

    def load(
        self, positions: Sequence[int], done: Callable[[Sequence[Indication | None]], None]
    ) -> None:
        self.loads.append((positions, done))

    def read(self) -> list[int]:
        """Hand over what the oldest load asks for; return its numbers."""
        numbers, done = self.loads.pop(0)
        done([self.kept[one] for one in numbers])
        return list(numbers)


class Row:
    """Waiting entries with numbers from 0, and how often an empty front was filled."""

    def __init__(self, count: int, *, packs: bool = True) -> None:
        self.journal = Bodies(durability=Durability.DISK if packs else Durability.MEMORY)
        self.packing = Packing(
            self.journal, subscription_at=self.journal.subscriptions.__getitem__, followers=()
        )
        self.filled = 0
        self.entries = Backlog(packing=self.packing, loaded=self._loaded)
        for number in range(count):
            self.append(number)

    def append(self, number: int) -> None:
        entry = self.journal.entry(number)
        self.entries.extend(EntryColumns(number, [entry.indication], [entry.subscription]))

    def _loaded(self) -> None:
        self.filled += 1

    @property
    def front(self) -> list[int]:
        # Each has its own indication, which has the number for an id.
        assert all(one.indication.id == one.number for one in self.entries.front)
        return [one.number for one in self.entries.front]

    @property
    def all(self) -> list[int]:
        return self.front + [one.number for one in self.entries.back]

    def take(self, count: int) -> list[int]:
        return [self.entries.popleft().number for _ in range(count)]


def test_only_the_front_is_loaded_and_what_comes_later_stays_behind_it() -> None:
    row = Row(FRONT_ENTRIES + 10)
    assert row.front == list(range(FRONT_ENTRIES))
    row.take(1)
    row.append(500)
    assert row.all == [*range(1, FRONT_ENTRIES + 10), 500]
    assert len(row.front) == FRONT_ENTRIES - 1
    assert len(row.entries) == FRONT_ENTRIES + 10


def test_without_a_journal_that_holds_bodies_all_are_loaded() -> None:
    row = Row(10 * FRONT_ENTRIES, packs=False)
    assert len(row.front) == 10 * FRONT_ENTRIES
    row.entries.keep_loaded(3)
    row.append(9999)
    assert len(row.front) == 10 * FRONT_ENTRIES + 1
    row.take(10 * FRONT_ENTRIES + 1)
    assert not row.journal.loads


def test_more_is_read_once_few_are_left_and_once_only() -> None:
    row = Row(3 * FRONT_ENTRIES)
    row.take(FRONT_ENTRIES - FRONT_LOW - 1)
    assert not row.journal.loads
    row.take(1)
    assert len(row.journal.loads) == 1
    row.take(FRONT_LOW)
    assert len(row.journal.loads) == 1
    assert row.filled == 0
    assert row.journal.read() == list(range(FRONT_ENTRIES, 2 * FRONT_ENTRIES - FRONT_LOW))
    # The front was empty, so that whoever waits for it is told.
    assert row.filled == 1
    assert row.all == list(range(FRONT_ENTRIES, 3 * FRONT_ENTRIES))
    row.take(FRONT_ENTRIES - 2 * FRONT_LOW)
    row.journal.read()
    # It was not.
    assert row.filled == 1


def test_who_needs_more_at_once_has_more_loaded() -> None:
    row = Row(0)
    row.entries.keep_loaded(FRONT_ENTRIES * 2)
    for number in range(FRONT_ENTRIES * 3):
        row.append(number)
    assert len(row.front) == FRONT_ENTRIES * 2
    # Less than what every queue has loaded is not asked for.
    row.entries.keep_loaded(1)
    row.take(FRONT_ENTRIES * 2 - FRONT_LOW)
    assert len(row.journal.read()) == FRONT_ENTRIES - FRONT_LOW


def test_what_was_removed_while_it_was_read_does_not_come_back() -> None:
    row = Row(FRONT_ENTRIES + 20)
    row.take(FRONT_ENTRIES)
    # Its front is empty, and two give way.
    evicted = [row.entries.popleft_packed(), row.entries.popleft_packed()]
    assert [one.number for one in evicted if one] == [FRONT_ENTRIES, FRONT_ENTRIES + 1]
    _, removed = row.entries.remove_subscription(
        lambda entry: entry.subscription.index == 1, subscription=1
    )
    assert [one.number for one in removed] == list(range(FRONT_ENTRIES + 3, FRONT_ENTRIES + 20, 2))
    row.journal.read()
    assert row.front == list(range(FRONT_ENTRIES + 2, FRONT_ENTRIES + 20, 2))
    assert len(row.entries) == 9


def test_a_row_that_was_given_up_while_it_was_read_is_empty() -> None:
    row = Row(FRONT_ENTRIES + 20)
    row.take(FRONT_ENTRIES - 5)
    entries, rest = row.entries.surrender()
    assert [one.number for one in entries] == list(range(FRONT_ENTRIES - 5, FRONT_ENTRIES))
    assert [one.number for one in rest] == list(range(FRONT_ENTRIES, FRONT_ENTRIES + 20))
    row.journal.read()
    assert (row.all, len(row.entries), row.entries.first_number) == ([], 0, None)
    assert row.entries.popleft_packed() is None


def test_what_is_put_back_stands_where_its_number_belongs() -> None:
    row = Row(FRONT_ENTRIES + 20)
    entries = [row.entries.popleft() for _ in range(4)]
    for index in (1, 3, 0, 2):
        row.entries.put_back(entries[index])
    assert row.all == list(range(FRONT_ENTRIES + 20))
    assert len(row.entries) == FRONT_ENTRIES + 20


def test_what_is_taken_out_of_the_middle_lets_more_be_read() -> None:
    row = Row(FRONT_ENTRIES + 20)
    row.take(FRONT_ENTRIES - FRONT_LOW - 1)
    assert row.entries.take_at(3).number == FRONT_ENTRIES - FRONT_LOW + 2
    assert len(row.journal.loads) == 1


def test_the_first_is_known_by_its_number_before_it_is_loaded() -> None:
    row = Row(0)
    assert (row.entries.first(), row.entries.first_number) == (None, None)
    back = CompactEntries()
    for number in (7, 9):
        entry = row.journal.entry(number)
        row.packing.pack(back, EntryColumns(number, [entry.indication], [entry.subscription]))
    row.entries.restore(back, attempts={9: 2})
    assert (row.entries.first(), row.entries.first_number, len(row.entries)) == (None, 7, 2)
    assert row.entries.contains(9)
    assert not row.entries.contains(8)
    row.entries.refill()
    row.journal.read()
    assert [(one.number, one.attempts) for one in row.entries.front] == [(7, 0), (9, 2)]
    assert row.filled == 1
    # There is nothing behind it.
    row.entries.refill()
    assert not row.journal.loads


def test_what_is_copied_forward_is_known_where_it_is() -> None:
    row = Row(FRONT_ENTRIES + 2)
    row.take(1)
    assert row.entries.move(5, 1000, 99)
    assert row.entries.move(FRONT_ENTRIES + 1, 2000, 99)
    assert not row.entries.move(0, 3000, 99)
    assert not row.entries.move(FRONT_ENTRIES + 2, 3000, 99)
    moved = next(one.indication for one in row.entries.front if one.number == 5)
    assert (moved.position, moved.size) == (1000, 99)
    assert [one.position for one in row.entries.back] == [FRONT_ENTRIES, 2000]
