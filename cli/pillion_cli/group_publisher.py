"""Publishes the input as one message group, and stops at the first fault (S1.10).

:class:`SenderGroup` has the rules of the sender's side in the OASIS WS-Reliability draft; t1 to t4
and d1 to d3 are its names. A group is complete only with all acknowledgements.
"""

import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import chain, pairwise
from typing import Any, NamedTuple

from pillion_cli.client import DelivererClient, Refused, Unreachable
from pillion_cli.exits import CommandError, Exit
from pillion_cli.indications import Batch, Item, Kind, membership
from pillion_cli.publisher import (
    FIRST_WAIT,
    LONGEST_WAIT,
    QUOTED_REFUSALS,
    Fault,
    Publisher,
)


class Moment(NamedTuple):
    """Idle times count by the monotonic clock."""

    monotonic: float
    wall: float


class Termination(StrEnum):
    #: GroupExpiryTime has passed.
    EXPIRED = "t1"
    #: GroupMaxIdleTime passed between two messages.
    IDLE = "t2"
    #: The last message was sent, and all messages are acknowledged.
    COMPLETE = "t3.1"
    #: The same in a group with neither GroupExpiryTime nor GroupMaxIdleTime.
    COMPLETE_UNTIMED = "t4.1"
    #: The same, but the last message was answered and another one is not acknowledged.
    CUT_SHORT = "t4.2"
    #: A delivery has failed, and the application was told.
    FAILED = "failed"


class SenderGroup:
    """One group, whose members are numbered from 0. Pure: the caller passes the time."""

    def __init__(
        self,
        name: str,
        *,
        ordered: bool,
        expires: float | None = None,
        max_idle_seconds: float | None = None,
    ) -> None:
        """``expires`` is GroupExpiryTime in seconds since the epoch."""
        self.name = name
        self.ordered = ordered
        self.expires = expires
        self.max_idle_seconds = max_idle_seconds
        self.sent = 0
        #: The number of the last member, once it is sent.
        self.last: int | None = None
        #: Sent members without an acknowledgement.
        self.missing: set[int] = set()
        self.terminated: Termination | None = None
        self.failure: str | None = None
        self._highest_acknowledged = -1
        self._sent_at: float | None = None
        self._acknowledged_at: float | None = None

    @property
    def timed(self) -> bool:
        return self.expires is not None or self.max_idle_seconds is not None

    @property
    def is_broken(self) -> bool:
        """Whether a message was acknowledged after one that was not. In an ordered group it is
        held, and its fault comes when the receiver abandons the group."""
        return bool(self.missing) and min(self.missing) < self._highest_acknowledged

    # ------------------------------------------------------------------ messages

    def refusal(self, now: Moment) -> str | None:
        """Return why no further message may be sent now; None if one may."""
        self.advance(now)
        if self.failure is not None:
            return self.failure
        if self.terminated is Termination.EXPIRED:
            return f"group {self.name} has expired: its remaining lines cannot be sent"
        if self.terminated is Termination.IDLE:
            return (
                f"group {self.name} has ended: more than {self.max_idle_seconds:g} s passed between"
                " two of its messages"
            )
        if self.last is not None:
            return f"group {self.name} has ended with its last message"
        if self.ordered and not self.timed and self.missing:
            # The SHOULD of d3: a message out of order would be discarded with its group.
            return f"group {self.name} waits for an acknowledgement"
        return None

    def send(self, count: int, *, last: bool, now: Moment) -> range:
        """Record sent messages; return their numbers. Only without a :meth:`refusal`. ``last``:
        they end the group."""
        numbers = range(self.sent, self.sent + count)
        self.sent = numbers.stop
        self.missing.update(numbers)
        if last:
            self.last = numbers.stop - 1
        self._sent_at = now.monotonic
        if self._acknowledged_at is None:
            # Before an acknowledgement, GroupMaxIdleTime counts from the first message.
            self._acknowledged_at = now.monotonic
        return numbers

    def send_again(self, now: Moment) -> str | None:
        """Record that messages are sent again; return why they may not be."""
        self.advance(now)
        if self.terminated is not None:
            return self.failure or f"group {self.name} has ended ({self.terminated.value})"
        self._sent_at = now.monotonic
        return None

    def acknowledge(self, numbers: Iterable[int], now: Moment) -> None:
        """Record acknowledgements (S1.9: by response, callback or poll)."""
        acknowledged = list(numbers)
        self.missing.difference_update(acknowledged)
        self._highest_acknowledged = max(self._highest_acknowledged, *acknowledged, -1)
        self._acknowledged_at = now.monotonic
        self.advance(now)

    def end(self) -> None:
        """Record that no further acknowledgement will come."""
        if self.terminated is None and self.last is not None and self.missing and not self.timed:
            self.terminated = Termination.CUT_SHORT

    def fail(self, why: str) -> None:
        """No message may be sent after a failed delivery."""
        if self.failure is None:
            self.failure = why
            self.terminated = Termination.FAILED

    # ------------------------------------------------------------------ time

    def advance(self, now: Moment) -> Termination | None:
        """Return how the group has ended; None if it has not. With both times, only GroupExpiryTime
        counts, as at the receiver."""
        if self.terminated is None:
            self.terminated = self._ending(now)
        return self.terminated

    def _ending(self, now: Moment) -> Termination | None:
        if self.last is not None and not self.missing:
            return Termination.COMPLETE if self.timed else Termination.COMPLETE_UNTIMED
        if self.expires is not None:
            return Termination.EXPIRED if now.wall >= self.expires else None
        if self.max_idle_seconds is None or self._sent_at is None:
            return None
        idle = now.monotonic - self._sent_at
        return Termination.IDLE if idle > self.max_idle_seconds else None

    def poll_in(self, now: Moment) -> float | None:
        """Return the seconds until the poll for the fault of a broken ordered group, if any.

        d1: GroupExpiryTime has passed, and acknowledgements are missing. d2: GroupMaxIdleTime since
        the last acknowledgement has passed, and some are missing.
        """
        if not self.ordered or not self.missing:
            return None
        if self.expires is not None:
            return max(0.0, self.expires - now.wall)
        if self.max_idle_seconds is None or self._acknowledged_at is None:
            return None
        return max(0.0, self._acknowledged_at + self.max_idle_seconds - now.monotonic)


_FAULTS_TO_A_POLL = 1000


class GroupPublisher:
    def __init__(
        self,
        publisher: Publisher,
        client: DelivererClient,
        group: SenderGroup,
        *,
        now: Callable[[], Moment],
        sleep: Callable[[float], None],
    ) -> None:
        """``publisher`` must have an ID."""
        self._publisher = publisher
        self._client = client
        self._group = group
        self._now = now
        self._sleep = sleep
        # The input line of each member, by its number in the group.
        self._lines = array("Q")
        self._faults_seen = 0
        publisher.watch = self

    def publish(self, batches: Iterable[Batch]) -> None:
        """The summary has the result, also after an exception."""
        summary = self._publisher.summary
        # One batch is read ahead, since the last line must be marked.
        for batch, following in pairwise(chain(batches, (None,))):
            assert batch is not None
            why = self._group.refusal(self._now())
            if why is not None:
                summary.failure, summary.unsettled_from = why, batch.items[0].number
                break
            if not self._publisher.publish_batch(self._number(batch, is_last=following is None)):
                break
            if self._poll_faults():
                summary.unsettled_from = following.items[0].number if following else None
                break
        self._group.end()
        self._poll_when_due()
        self._report()

    def flush(self) -> None:
        """Wait until everything is delivered or discarded, and poll for its faults."""
        self._publisher.flush()
        self._poll_faults()
        self._report()

    # ------------------------------------------------------------------ what goes out

    def _number(self, batch: Batch, *, is_last: bool) -> Batch:
        group = self._group
        if batch.kind is not Kind.NDJSON:
            raise CommandError(
                f"--group needs indications in JSON, not {batch.kind.value}",
                code=Exit.USAGE,
            )
        numbers = group.send(len(batch.items), last=is_last, now=self._now())
        self._lines.extend(item.number for item in batch.items)
        return batch.of(
            [
                Item(item.number, with_members(item.body, members_of(group, number)), number)
                for item, number in zip(batch.items, numbers, strict=True)
            ]
        )

    # ------------------------------------------------------------------ the publisher's calls

    def sending(self, batch: Batch) -> None:
        why = self._group.send_again(self._now())
        if why is not None:
            raise Refused(why)

    def answered(self, acknowledged: Sequence[Item], wrong: Sequence[Item]) -> None:
        """A refused member of an ordered group leaves a gap for ever."""
        self._group.acknowledge(
            (item.sequence for item in acknowledged if item.sequence is not None), self._now()
        )
        if wrong and self._group.ordered:
            self._group.fail(
                f"group {self._group.name} has failed: line {wrong[0].number} was refused, so later"
                " lines cannot be delivered"
            )

    # ------------------------------------------------------------------ what comes back

    def _poll_faults(self) -> bool:
        """Return whether the group has failed."""
        if self._lines:
            try:
                while self._poll_once():
                    pass
            except (Unreachable, Refused) as failure:
                self._group.fail(f"group {self._group.name}: its faults are unknown: {failure}")
            if self._publisher.summary.forgotten:
                why = self._publisher.summary.failure
                self._group.fail(f"group {self._group.name}: its faults are unknown: {why}")
        return self._group.failure is not None

    def _poll_once(self) -> bool:
        """Poll one page of faults; return whether there are more."""
        answer = self._client.get(
            "/v1/faults",
            {
                "publisher": self._publisher.options.publisher,
                "after": self._faults_seen,
                "limit": _FAULTS_TO_A_POLL,
                "instance": self._publisher.instance,
            },
        )
        if self._publisher.is_forgotten(answer):
            raise Refused(self._publisher.summary.failure or "")
        content = answer.document()
        if "faults" not in content:
            raise answer.refusal()
        dropped = content.get("dropped", 0)
        self._publisher.summary.faulted += dropped
        if dropped:
            self._group.fail(
                f"group {self._group.name} has failed: {dropped} faults without detail"
            )
        faults = content["faults"]
        for entry in faults:
            self._take(entry)
        self._faults_seen = faults[-1]["number"] if faults else self._faults_seen
        return self._faults_seen < content["last"] and bool(faults)

    def _take(self, entry: dict[str, Any]) -> None:
        sequence = entry.get("sequence")
        line = None
        if sequence is not None and 0 <= sequence < len(self._lines):
            line = self._lines[sequence]
        fault = Fault(line, str(entry["destination"]), str(entry["reason"]))
        summary = self._publisher.summary
        summary.faulted += 1
        if len(summary.faults) < QUOTED_REFUSALS:
            summary.faults.append(fault)
        self._group.fail(f"group {self._group.name} has failed: {fault}")

    def _poll_when_due(self) -> None:
        """If acknowledgements are missing, wait until the deliverer abandons the sequence (d1, d2)
        or the timeout ends, and poll its faults."""
        seconds = self._group.poll_in(self._now())
        if seconds is None or seconds > self._publisher.options.timeout:
            return
        deadline = self._now().monotonic + self._publisher.options.timeout
        self._sleep(seconds)
        wait = FIRST_WAIT
        self._poll_faults()
        # Held messages will be discarded, but by the deliverer's clock.
        while self._group.is_broken and not self._publisher.summary.faulted:
            if self._now().monotonic + wait > deadline:
                return
            self._sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait)
            self._poll_faults()

    def _report(self) -> None:
        group, summary = self._group, self._publisher.summary
        if group.failure is not None and summary.failure is None:
            summary.failure = group.failure
        ended = group.advance(self._now())
        summary.group = {
            "name": group.name,
            "sent": group.sent,
            "unacknowledged": len(group.missing),
            "termination": None if ended is None else ended.value,
        }


def members_of(group: SenderGroup, number: int) -> dict[str, object]:
    members = membership(
        sequence=number,
        last=number == group.last,
        ordered=group.ordered,
        expires=group.expires,
        max_idle_seconds=group.max_idle_seconds,
    )
    return {"group": group.name, **members}


def with_members(body: bytes, members: dict[str, object]) -> bytes:
    """Add members to a line without changing its text. The deliverer refuses a line that is no
    object."""
    if not body.startswith(b"{"):
        return body
    rest = body[1:].lstrip()
    comma = b"" if rest.startswith(b"}") else b","
    return json.dumps(members).encode()[:-1] + comma + rest
