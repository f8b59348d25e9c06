"""How much a journal may hold, and snapshots that are too long for one record."""

import msgspec
import pytest

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.journal.limits import IDENTITY_BYTES, MIB, JournalSettings
from pillion_sidecar.journal.ports import QueueState, SubscriptionRecord
from pillion_sidecar.journal.records import (
    MAXIMUM_RECORD,
    Kind,
    Names,
    Snapshot,
    decode_names,
    decode_queue,
    decode_snapshot,
    decode_subscriptions,
    encode_whole_snapshot,
    read_frame,
)


@pytest.mark.parametrize(
    ("maximum", "segment"),
    [(8 * MIB, MIB), (16 * MIB, MIB), (64 * MIB, 4 * MIB), (1024 * MIB, 16 * MIB)],
)
def test_twice_what_is_pending_and_what_stands_beside_it_fits(maximum: int, segment: int) -> None:
    settings = JournalSettings(durability=Durability.DISK, maximum_bytes=maximum)
    assert settings.roll_at == segment
    identities = settings.identity_entries * IDENTITY_BYTES
    assert 2 * settings.live_bound + 2 * segment + identities <= maximum
    assert settings.live_bound > maximum // 3
    assert 2 * settings.step <= segment


def test_a_folder_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="the journal may take 1000 bytes, and needs 8388608"):
        JournalSettings(durability=Durability.DISK, maximum_bytes=1000)


def snapshot(*states: QueueState) -> Snapshot:
    names = Names(((1, "u-south", "south"),), ((2, "u-mail", "mail", "alerts"),))
    return Snapshot(
        time=5.0,
        next_id=9,
        next_epoch=3,
        commit=7,
        names=names,
        queues=states,
        groups=b"groups",
    )


def state(listener: str) -> QueueState:
    return QueueState(
        destination=1, listener=listener, sends_identifiers=True, epoch=0, base=0, next_number=4
    )


def test_a_snapshot_is_one_record_where_it_can_be() -> None:
    whole = snapshot(state("http://south/"))
    (record,) = encode_whole_snapshot(whole)
    frame = read_frame(record, 0, len(record))
    assert frame is not None
    assert decode_snapshot(record, 0, frame) == whole


def test_a_longer_one_is_several_that_say_the_same() -> None:
    states = [state(str(number) * MIB) for number in range(10)] * (MAXIMUM_RECORD // MIB // 10 + 1)
    ended = SubscriptionRecord(uid="s", end="Expired", cause="Expired")
    whole = msgspec.structs.replace(snapshot(*states), subscriptions=(ended,))
    *records, last = encode_whole_snapshot(whole)
    frame = read_frame(last, 0, len(last))
    assert frame is not None
    assert decode_subscriptions(last, 0, frame) == (ended,)
    frames = [read_frame(record, 0, len(record)) for record in records]
    kinds = [frame.kind for frame in frames if frame is not None]
    assert kinds == [Kind.SNAPSHOT, Kind.NAMES, *[Kind.QUEUE] * len(states)]
    head, names, *queues = [
        (record, frame) for record, frame in zip(records, frames, strict=True) if frame is not None
    ]
    said = decode_snapshot(head[0], 0, head[1])
    assert (said.next_id, said.groups, said.queues) == (9, b"groups", ())
    assert said.subscriptions == ()
    assert decode_names(names[0], 0, names[1]) == whole.names
    assert [decode_queue(record, 0, frame) for record, frame in queues] == states
