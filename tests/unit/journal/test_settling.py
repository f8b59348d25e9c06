"""Settlements in as few records as may be."""

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.disk import SettlementBatch
from pillion_sidecar.journal.ports import Place, QueueState
from pillion_sidecar.journal.records import (
    DELIVERED,
    REASON_CODES,
    THROUGH,
    Kind,
    decode_queue,
    decode_settlements,
    read_frame,
)


def taken(settling: SettlementBatch) -> list[tuple[Kind, list[tuple[int, int, int]]]]:
    found = []
    for record in settling.take():
        frame = read_frame(record, 0, len(record))
        assert frame is not None
        entries = list(decode_settlements(record, 0, frame))
        assert frame.entries == len(entries)
        found.append((Kind(frame.kind), entries))
    return found


def test_deliveries_in_order_are_one_entry_for_each_destination() -> None:
    settling = SettlementBatch()
    for number in range(100):
        settling.settle(Place(1, 7, number), None, through=True)
        settling.settle(Place(2, 7, number), None, through=True)
    assert taken(settling) == [(Kind.SETTLED, [(1, THROUGH, 99), (2, THROUGH, 99)])]
    assert settling.is_empty
    assert taken(settling) == []


def test_what_is_out_of_order_and_what_is_discarded_is_explicit() -> None:
    settling = SettlementBatch()
    purged = REASON_CODES[DiscardReason.PURGED]
    settling.settle(Place(1, 7, 5), None, through=False)
    settling.settle(Place(1, 7, 3), DiscardReason.PURGED, through=True)
    settling.settle(Place(1, 7, 4), None, through=True)
    assert taken(settling) == [(Kind.SETTLED, [(1, DELIVERED, 5), (1, purged, 3), (1, THROUGH, 4)])]


def test_ended_holds_have_a_record_of_their_own() -> None:
    settling = SettlementBatch()
    settling.end_hold(12, DiscardReason.OUT_OF_ORDER)
    code = REASON_CODES[DiscardReason.OUT_OF_ORDER]
    assert taken(settling) == [(Kind.HOLD_ENDED, [(0, code, 12)])]


def test_of_a_queue_the_last_state_is_kept() -> None:
    settling = SettlementBatch()
    states = [
        QueueState(
            destination=1,
            listener="http://south/",
            sends_identifiers=True,
            epoch=0,
            base=0,
            next_number=number,
        )
        for number in range(3)
    ]
    for state in states:
        settling.note(state)
    (record,) = settling.take()
    frame = read_frame(record, 0, len(record))
    assert frame is not None
    assert decode_queue(record, 0, frame) == states[-1]


def test_a_purge_of_many_makes_no_endless_record() -> None:
    settling = SettlementBatch()
    for number in range(40_000):
        settling.settle(Place(1, 7, number), DiscardReason.PURGED, through=False)
    records = taken(settling)
    assert [len(entries) for _, entries in records] == [16_384, 16_384, 7_232]
    assert [number for _, entries in records for _, _, number in entries] == list(range(40_000))
