"""The checks of ``pillion doctor``, from the deliverer's answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from pillion_cli.client import DelivererClient, Refused
from pillion_cli.diagnosis import answer_of
from pillion_cli.findings import Finding, ok, problem, warning
from pillion_cli.queue_states import ORDERS, State, judged, time_of
from pillion_cli.remedies import remedy
from pillion_cli.units import brief
from pillion_sidecar.wire.diagnosis import (
    DelivererStatus,
    HistoryStatus,
    JournalStatus,
    StoresStatus,
    StoreStatus,
)
from pillion_sidecar.wire.queues import QueuePage, QueueStatus

#: Sentences of a check that are shown.
MOST_TOLD = 5
#: Seconds by which clocks may differ, and by which lines expire wrongly.
CLOCK_SECONDS, WRONG_CLOCK_SECONDS = 2.0, 60.0
#: Fractions of the journal's limit, and of the free part of its volume.
HALF_FULL, NEARLY_FULL = 0.5, 0.9
LITTLE_FREE = 0.1
#: Fraction of stores.flightSize.
FLIGHT_FULL = 0.8

_STATES: Mapping[State, tuple[Callable[..., Finding], str]] = {
    State.FAILING: (problem, ""),
    State.HELD: (
        problem,
        "correct the resource: pillion validate or kubectl describe says why",
    ),
    State.PAUSED: (
        problem,
        "correct the cause; `pillion queues NAME` shows it, and the next attempt",
    ),
    State.UNANSWERED: (warning, "check the listener: it has the request and does not answer"),
    State.SUSPENDED: (warning, "pillion resume NAME, when the listener is ready"),
    State.SLOW: (warning, "make the listener faster, or publish less to it"),
    State.BEHIND: (warning, "`pillion queues --watch` shows whether it catches up"),
}
#: For a queue that loses indications, and for one that refuses publishers.
_STOP_LOSS = "stop the loss: docs/runbook.md#stop-the-loss"
_LET_IN = "raise queueSize, or accept losses with another queueFullPolicy"


def status_of(client: DelivererClient) -> DelivererStatus:
    """Raises CommandError."""
    answer = client.get("/v1/status")
    if answer.status == 404:
        text = (
            f"{answer.text()}: it is no administration address, or the deliverer is older than"
            " this command"
        )
        raise Refused(f"HTTP 404: {text}")
    return answer_of(answer, DelivererStatus)


def check_clock(status: DelivererStatus, *, before: float, after: float) -> Finding:
    """``before`` and ``after`` the answer, in seconds since the epoch by this machine's clock."""
    given = status.time.timestamp()
    # Within the time of the request nothing is known.
    ahead = max(0.0, given - after) - max(0.0, before - given)
    if abs(ahead) < CLOCK_SECONDS:
        return ok("clock", "the deliverer's clock is as this machine's")
    way = "ahead of" if ahead > 0 else "behind"
    text = f"the deliverer's clock is {brief(abs(ahead))} {way} this machine's"
    told = problem if abs(ahead) >= WRONG_CLOCK_SECONDS else warning
    return told("clock", text, "synchronize both (NTP): expires and certificates depend on it")


def check_configuration(status: DelivererStatus, page: QueuePage) -> Iterator[Finding]:
    """``page`` is the first one of the queues."""
    check = "configuration"
    if status.starting is not None:
        text = f"nothing is delivered yet: {status.starting}"
        yield problem("start", text, "see docs/on-call.md#pillion-doctor")
    if status.configuration_problem is not None:
        told = status.configuration_problem.strip().splitlines()
        text = "; ".join(told[:MOST_TOLD]) + (" …" if len(told) > MOST_TOLD else "")
        force = (
            f"revision {status.revision} stays in force" if status.revision else "none is loaded"
        )
        where = "kubectl describe" if status.is_rendered else f"pillion validate {status.resources}"
        yield problem(check, f"it is not accepted, so {force}: {text}", where)
    elif status.revision is None and status.starting is not None:
        yield warning(check, "none is in force yet", "see the start")
    elif status.revision is None:
        yield problem(check, "none is loaded", f"put resources into {status.resources}")
    else:
        yield ok(check, f"revision {status.revision} of {status.resources} is in force")
    for text in status.warnings[:MOST_TOLD]:
        yield warning(check, text)
    for kept in (page.kept_filters or [])[:MOST_TOLD]:
        text = f"the last good version of filter {kept.name} is in force: {kept.problem}"
        yield warning(check, text, "correct the filter")
    if ended := page.ended_subscriptions_count:
        names = ", ".join(one.name for one in (page.ended_subscriptions or [])[:MOST_TOLD])
        text = f"{ended:,} subscriptions have ended by themselves, such as {names}"
        yield warning(check, text, "change the resource, or delete it")


def check_journal(status: DelivererStatus) -> Finding:
    journal = status.journal
    if journal is None and status.starting is not None:
        return warning("journal", "it is not read yet", "see the start")
    if journal is None:
        return ok("journal", f"none on disk (durability {status.durability})")
    share = journal.pending_bytes / max(1, journal.maximum_pending_bytes)
    text = f"{share:.0%} of its limit is pending{_space(journal)}"
    if journal.is_full:
        return problem(
            "journal",
            f"its volume is full; {text}",
            f"free space at {journal.folder}, or enlarge its volume",
        )
    if share >= NEARLY_FULL:
        return problem(
            "journal",
            text,
            "repair the failing destinations (`pillion queues --failing`), or stop publishers",
        )
    if journal.damaged:
        text = f"{journal.damaged:,} records are damaged; {text}"
        return warning("journal", text, f"`pillion journal verify {journal.folder}` lists them")
    if share >= HALF_FULL:
        return warning(
            "journal",
            text,
            "repair the failing destinations: `pillion queues --failing` lists them",
        )
    free, volume = journal.free_bytes, journal.volume_bytes
    if free is not None and volume and free < LITTLE_FREE * volume:
        return warning("journal", text, f"free space at {journal.folder}, or enlarge its volume")
    return ok("journal", text)


def _space(journal: JournalStatus) -> str:
    if journal.free_bytes is None or not journal.volume_bytes:
        return "; the space of its volume is unknown"
    free = journal.free_bytes / journal.volume_bytes
    return f"; {journal.free_bytes / 1e9:,.1f} GB ({free:.0%}) of its volume are free"


def check_stores(stores: StoresStatus) -> Finding:
    """Without stores there is nothing to check."""
    members = stores.members
    text = (
        f"{stores.unstable_bytes / 1e6:,.1f} MB of the journal are in too few stores,"
        f" {stores.flight_size_bytes / 1e6:,.1f} MB may be"
    )
    do = "see to these gateways: docs/runbook.md#pillionstoremissed"
    if stores.lease_seconds == 0:
        told = _told([one for one in members if not one.is_up])
        text = f"nothing is delivered, since too few stores answer (fencing Lease): {told}; {text}"
        return problem("stores", text, do)
    if missed := [one for one in members if one.is_missed]:
        return problem("stores", f"nothing becomes stable without {_told(missed)}; {text}", do)
    if down := [one for one in members if not one.is_up]:
        return warning("stores", f"enough are up, but not {_told(down)}; {text}", do)
    if stores.unstable_bytes >= FLIGHT_FULL * stores.flight_size_bytes:
        return warning("stores", text, "see docs/runbook.md#pillionstoreflightfull")
    if stores.is_changed:
        do = "start the deliverer again; the log tells of stores that it would miss"
        return warning("stores", f"the service names others since the start; {text}", do)
    lacking = [
        f"{one.name} lacks {one.behind_bytes:,} bytes" for one in members if one.behind_bytes
    ]
    told = f"{', '.join(lacking[:MOST_TOLD])}; " if lacking else ""
    return ok("stores", f"all {len(members)} are up; {told}{text}")


def _told(stores: Sequence[StoreStatus]) -> str:
    names = [f"{one.name} ({one.problem or 'no answer yet'})" for one in stores[:MOST_TOLD]]
    return ", ".join(names) + (" …" if len(stores) > MOST_TOLD else "")


def check_history(history: HistoryStatus) -> Finding:
    text = f"{history.last:,} outcomes so far, {'on disk' if history.is_on_disk else 'in memory'}"
    if history.is_behind:
        return warning(
            "history", f"{text}; some wait for the disk", "check the disk: it is slow, or fails"
        )
    do = "raise history.maximumBytes or maximumAgeSeconds"
    if history.given_way:
        text += f"; {history.given_way:,} were dropped, since its disk was full"
        do = "free space on the disk of the history, or enlarge it"
    if history.unkept_discards:
        text += f"; {history.unkept_discards:,} discards are not in it any more"
    if history.problem is not None:
        text += f"; {history.waiting:,} wait in memory, since it cannot be written: "
        text += history.problem
        do = "free space on the disk of the history, or repair it; they are written by themselves"
    is_whole = not history.unkept_discards and not history.given_way and history.problem is None
    return ok("history", text) if is_whole else warning("history", text, do)


def check_queue(queue: QueueStatus, *, now: float) -> Finding:
    one = judged(queue, now=now)
    check = f"queue of {queue.name}"
    depth = f"{queue.depth:,} pending"
    is_urgent = one.loses_now or one.refuses
    known = _STATES.get(one.state) or ((problem, "") if is_urgent else None)
    if known is None:
        return ok(check, f"{one.state}, {depth}")
    told, do = known
    since = "" if one.since is None else f" for {brief(one.since)}"
    last = queue.last_result
    do = do.replace("NAME", queue.name)
    if not do and last is not None:
        do = remedy(last.cause, last.detail)
    do = do or f"`pillion test {queue.name}` shows why"
    why = "; ".join(filter(None, (one.why_and_lost, depth, one.first_loss)))
    text = f"{one.state}{since}: {why}"
    if not is_urgent:
        return told(check, text, do)
    return problem(check, text, f"{do}; until then {_STOP_LOSS if one.loses_now else _LET_IN}")


def check_queues(queues: Sequence[QueueStatus], *, now: Callable[[], float]) -> Iterator[Finding]:
    """Yield the worst first."""
    at = time_of(queues, {}, now=now)
    ordered = sorted(queues, key=lambda queue: ORDERS["trouble"](judged(queue, now=at)))
    yield from (check_queue(queue, now=at) for queue in ordered)
