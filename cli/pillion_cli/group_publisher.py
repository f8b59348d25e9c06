"""Publishes the input as one message group, and stops at the first fault (S1.10)."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from pillion_cli.client import Answer, DelivererClient, Refused, Unreachable
from pillion_cli.exits import CommandError, Exit
from pillion_cli.indications import Batch, Item, Kind
from pillion_cli.publisher import (
    FIRST_WAIT,
    LONGEST_WAIT,
    QUOTED_REFUSALS,
    Fault,
    Publisher,
)
from pillion_cli.sender_group import Moment, SenderGroup

#: The most faults of one poll.
_FAULTS_TO_A_POLL = 1000


class Time(Protocol):
    def now(self) -> Moment: ...

    def sleep(self, seconds: float) -> None: ...


class GroupPublisher:
    def __init__(
        self,
        publisher: Publisher,
        client: DelivererClient,
        group: SenderGroup,
        *,
        time: Time,
    ) -> None:
        """``publisher`` must have an ID and :attr:`watch` set to what is made here."""
        self._publisher = publisher
        self._client = client
        self._group = group
        self._time = time
        # The line of each member in the input, by its number in the group.
        self._lines = array("Q")
        self._faults_seen = 0
        publisher.watch = self

    def publish(self, batches: Iterable[Batch]) -> None:
        """Publish; what came of it is in the publisher's summary, also after an exception.

        The last line is known as such only once the input has ended, so one batch is read ahead.
        """
        summary = self._publisher.summary
        for batch, following in look_ahead(batches):
            why = self._group.refusal(self._time.now())
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
                f"--group numbers indications in JSON alone, not {batch.kind.value}",
                code=Exit.USAGE,
            )
        numbers = group.send(len(batch.items), last=is_last, now=self._time.now())
        self._lines.extend(item.number for item in batch.items)
        return batch.of(
            [
                Item(item.number, with_members(item.body, members_of(group, number)), number)
                for item, number in zip(batch.items, numbers, strict=True)
            ]
        )

    # ------------------------------------------------------------------ the publisher's calls

    def sending(self, batch: Batch) -> None:
        """See ``Watch``."""
        why = self._group.send_again(self._time.now())
        if why is not None:
            raise Refused(why)

    def answered(self, acknowledged: Sequence[Item], wrong: Sequence[Item]) -> None:
        """See ``Watch``. Where a member of an ordered group is refused for good, nothing will ever
        fill the gap."""
        self._group.acknowledge(
            (item.sequence for item in acknowledged if item.sequence is not None), self._time.now()
        )
        if wrong and self._group.ordered:
            self._group.fail(
                f"group {self._group.name} has failed: line {wrong[0].number} was refused, and what"
                " follows it cannot be delivered"
            )

    # ------------------------------------------------------------------ what comes back

    def _poll_faults(self) -> bool:
        """Poll the faults so far; return whether the group has failed."""
        if self._lines:
            try:
                while self._poll_once():
                    pass
            except (Unreachable, Refused) as failure:
                self._group.fail(f"group {self._group.name}: its faults are not known: {failure}")
            if self._publisher.summary.forgotten:
                why = self._publisher.summary.failure
                self._group.fail(f"group {self._group.name}: its faults are not known: {why}")
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
        content = _content(answer)
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
        """If acknowledgements are missing, wait until the deliverer abandons the sequence (d1, d2),
        within the timeout, and poll its faults."""
        seconds = self._group.poll_in(self._time.now())
        if seconds is None or seconds > self._publisher.options.timeout:
            return
        deadline = self._time.now().monotonic + self._publisher.options.timeout
        self._time.sleep(seconds)
        wait = FIRST_WAIT
        self._poll_faults()
        # What is held is discarded for certain, but by the deliverer's clock.
        while self._group.is_broken and not self._publisher.summary.faulted:
            if self._time.now().monotonic + wait > deadline:
                return
            self._time.sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait)
            self._poll_faults()

    def _report(self) -> None:
        group, summary = self._group, self._publisher.summary
        if group.failure is not None and summary.failure is None:
            summary.failure = group.failure
        ended = group.advance(self._time.now())
        summary.group = {
            "name": group.name,
            "sent": group.sent,
            "unacknowledged": len(group.missing),
            "termination": None if ended is None else ended.value,
        }


def _content(answer: Answer) -> dict[str, Any]:
    content = answer.json()
    if answer.status != 200 or content is None or "faults" not in content:
        raise Refused(f"HTTP {answer.status}: {answer.text()}")
    return content


def look_ahead(batches: Iterable[Batch]) -> Iterator[tuple[Batch, Batch | None]]:
    """Yield each batch with the one that follows it, None behind the last."""
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting, batch
        waiting = batch
    if waiting is not None:
        yield waiting, None


def members_of(group: SenderGroup, number: int) -> dict[str, object]:
    """Return what a line says of its place in its group."""
    members: dict[str, object] = {"group": group.name, "sequence": number}
    if group.ordered:
        members["ordered"] = True
    if number == group.last:
        members["last"] = True
    if group.expires is not None:
        date = datetime.fromtimestamp(group.expires, UTC)
        members["groupExpires"] = date.isoformat().replace("+00:00", "Z")
    if group.max_idle_seconds is not None:
        members["groupMaxIdleSeconds"] = group.max_idle_seconds
    return members


def with_members(body: bytes, members: dict[str, object]) -> bytes:
    """Return a line with further members. What it has stays as it is written; a line that is no
    object is left to the deliverer to refuse."""
    if not body.startswith(b"{"):
        return body
    rest = body[1:].lstrip()
    comma = b"" if rest.startswith(b"}") else b","
    return json.dumps(members).encode()[:-1] + comma + rest


class SystemTime:
    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._sleep = sleep

    def now(self) -> Moment:
        return Moment(self._monotonic(), self._wall())

    def sleep(self, seconds: float) -> None:
        self._sleep(seconds)
