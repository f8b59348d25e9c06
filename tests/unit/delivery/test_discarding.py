"""What is being discarded is in no queue any more, and still must know where its record lies."""

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.settlement import DISCARDS_PER_TURN, DiscardTurns
from pillion_sidecar.history.outcome import NoHistory
from pillion_sidecar.indication import DiscardReason, Indication


def test_one_that_is_copied_forward_before_its_turn_is_settled_where_it_lies() -> None:
    soon: deque[Any] = deque()
    settled: list[tuple[int, int]] = []
    turns = DiscardTurns(
        call_soon=soon.append,
        discard=lambda queue, entry, reason: settled.append(
            (entry.indication.position, entry.indication.size)
        ),
        packing=cast(Any, None),
        finished=lambda queue: None,
        pace=NoHistory(),
    )
    entries = [
        QueueEntry(
            Indication(body=b"{}", class_name="C", accepted_at=0.0, position=number, size=10),
            cast(Any, None),
            number,
        )
        for number in range(DISCARDS_PER_TURN + 1)
    ]
    queue = cast(Any, SimpleNamespace(index=7))
    turns.add(queue, entries, DiscardReason.LIFETIME_EXPIRED)
    last = DISCARDS_PER_TURN
    assert turns.contains(7, last)
    turns.move(7, last, 1000, 12)
    turns.move(8, last, 2000, 12)
    while soon:
        soon.popleft()()
    assert settled[-1] == (1000, 12)
    assert len(settled) == len(entries)
