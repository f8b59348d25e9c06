"""What ``pillion publish`` says in the end: for people, and for programs."""

from collections.abc import Iterator

from pillion_cli.publisher import UNREACHED, Summary


def summary_lines(summary: Summary) -> Iterator[str]:
    """Yield what became of the input, for people; all but why it ended before its end."""
    yield ", ".join(_counts(summary))
    yield from (f"  {fault}" for fault in summary.faults)
    if summary.faulted > len(summary.faults) > 0:
        yield f"  … and {summary.faulted - len(summary.faults):,} more faults"
    for refusal in summary.refusals:
        yield f"  line {refusal.number}: {refusal.reason}"
    if summary.refused > len(summary.refusals):
        yield f"  … and {summary.refused - len(summary.refusals):,} more"
    for name, counted in (summary.flush or {}).get("destinations", {}).items():
        yield f"  {name}: {_destination(counted)}"
    if summary.failure is not None and summary.unsettled_from is not None:
        yield _stopped(summary, summary.unsettled_from)


def _stopped(summary: Summary, line: int) -> str:
    if not (summary.accepted or summary.duplicate or summary.refused):
        return "nothing was accepted"
    return f"stopped at line {line}: no line from there on is known to be accepted"


def _counts(summary: Summary) -> Iterator[str]:
    yield f"{summary.accepted:,} accepted"
    yield f"{summary.duplicate:,} duplicate"
    yield f"{summary.refused:,} refused"
    if summary.not_durable:
        yield f"{summary.not_durable:,} not known to be on disk"
    if summary.delivered or summary.pending or summary.discarded.total():
        yield f"{summary.delivered:,} delivered"
        yield f"{summary.pending:,} pending"
        yield from (f"{n:,} discarded ({reason})" for reason, n in summary.discarded.items() if n)
    if summary.unreached.total():
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in summary.unreached.items() if n)
        yield f"{summary.unreached.total():,} for no listener ({reasons})"
    if summary.faulted:
        yield f"{summary.faulted:,} {'fault' if summary.faulted == 1 else 'faults'}"
    if summary.forgotten:
        yield f"{summary.forgotten:,} not known any more"


def _destination(counted: dict[str, object]) -> str:
    parts = [f"{counted.get('delivered', 0):,} delivered", f"{counted.get('pending', 0):,} pending"]
    discarded = counted.get("discarded")
    if isinstance(discarded, dict):
        parts += [f"{number:,} discarded ({reason})" for reason, number in discarded.items()]
    return ", ".join(parts)


def summary_document(summary: Summary) -> dict[str, object]:
    """Return what became of the input, for programs."""
    return {
        "accepted": summary.accepted,
        "duplicate": summary.duplicate,
        "refused": summary.refused,
        "refusals": [
            {"line": refusal.number, "reason": refusal.reason} for refusal in summary.refusals
        ],
        "notDurable": summary.not_durable,
        "delivered": summary.delivered,
        **{reason: summary.unreached[reason] for reason in UNREACHED},
        "pending": summary.pending,
        "discarded": dict(+summary.discarded),
        "resent": summary.resent,
        "failure": summary.failure,
        "unsettledFrom": summary.unsettled_from,
        "flush": summary.flush,
        "forgotten": summary.forgotten,
        "faulted": summary.faulted,
        "faults": [
            {"line": fault.number, "destination": fault.destination, "reason": fault.reason}
            for fault in summary.faults
        ],
        "group": summary.group,
    }
