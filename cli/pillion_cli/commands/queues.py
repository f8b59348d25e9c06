"""``pillion queues``: a deliverer's destination queues (S0.12)."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pillion_cli.arguments import Options, add_deliverer_arguments, add_output_argument
from pillion_cli.client import Access, DelivererClient, Refused
from pillion_cli.exits import CommandError, Exit
from pillion_cli.tables import show_table
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.wire.queues import (
    AnswerError,
    AttemptStatus,
    OutcomeStatus,
    QueueDetails,
    QueuePage,
    QueueStatus,
    RetryStatus,
    converted,
)

HELP = """
Show the destination queues of a deliverer: depth, age, counts of delivered and discarded
indications, the result of the last attempt, the time of the next attempt, and when the first
indication is lost if no delivery succeeds. With NAME: that queue, its retry policy and its last 20
attempts.

--skip discards the indication at the front; --purge discards everything that is pending. An attempt
in progress may still succeed; it is not repeated. The discards are logged, counted with the reason
`purged`, and reported to a publisher that waits for them.

examples:
  pillion queues
  pillion queues siem
  pillion queues --skip siem
  pillion queues --purge siem --yes
  pillion queues --output json | jq '.queues[] | select(.depth > 0)'

exit codes: 0 done, 1 no such queue, nothing to discard, or no deliverer, 2 a wrong command line.
"""

TIMEOUT = 30.0
PAGE = 1000
#: Members of a page that are not about the deliverer.
_OF_A_PAGE = ("queues", "next")

_Answer = TypeVar("_Answer", QueuePage, QueueDetails)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_deliverer_arguments(parser, "the deliverer's administration address, by default its intake")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("name", metavar="NAME", nargs="?", help="show this queue and its attempts")
    Options(what).value("--skip NAME", "discard the indication at the front")
    Options(what).value("--purge NAME", "discard everything that is pending")
    Options(parser).flag("--yes", "do not ask for confirmation")
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    with DelivererClient(args.to, timeout=TIMEOUT, access=Access.of(args)) as client:
        if args.skip is not None or args.purge is not None:
            return _give_up(client, args)
        if args.name is not None:
            return _show_one(client, args)
        return _show_all(client, args)


def _show_all(client: DelivererClient, args: argparse.Namespace) -> int:
    pages = list(_pages(client))
    if args.output == "json":
        # An older deliverer has fewer members.
        told = {name: value for name, value in pages[0].items() if name not in _OF_A_PAGE}
        queues = [queue for page in pages for queue in page["queues"]]
        print(json.dumps({"durability": None, **told, "queues": queues}))
        return Exit.OK
    durability = pages[0].get("durability")
    if durability is not None:
        print(f"durability: {durability}")
    _show_queues([queue for page in pages for queue in _read(page, QueuePage).queues])
    return Exit.OK


def _pages(client: DelivererClient) -> Iterator[dict[str, Any]]:
    after: str | None = ""
    while after is not None:
        page = client.get("/v1/queues", {"limit": PAGE, "after": after}).document()
        yield page
        after = page.get("next")


def _show_one(client: DelivererClient, args: argparse.Namespace) -> int:
    answer = client.get(f"/v1/queues/{args.name}").document()
    if args.output == "json":
        print(json.dumps(answer))
        return Exit.OK
    queue = _read(answer, QueueDetails)
    _show_queues([queue])
    if queue.hold is not None:
        print(f"held since {queue.hold.since}: {escape_controls(queue.hold.message)}")
    if queue.retry is not None:
        print(_retry(queue.retry, lifetime=queue.indication_lifetime_seconds))
    _show_attempts(queue.attempts)
    return Exit.OK


def _give_up(client: DelivererClient, args: argparse.Namespace) -> int:
    verb, name = ("skip", args.skip) if args.skip is not None else ("purge", args.purge)
    if not args.yes:
        depth = client.get(f"/v1/queues/{name}").document()["depth"]
        _confirm(verb, name, depth)
    answer = client.post(f"/v1/queues/{name}/{verb}").document()
    discarded = answer["discarded"]
    if args.output == "json":
        print(json.dumps(answer))
    else:
        empty = "" if discarded else ": no indication is pending"
        print(f"{name}: {discarded:,} discarded{empty}{_which(answer)}")
    return Exit.OK if discarded else Exit.FAILED


def _which(answer: dict[str, Any]) -> str:
    """Name the discarded indications, unless an older deliverer does not."""
    if not answer["discarded"]:
        return ""
    named = [escape_controls(one or "without identifier") for one in answer.get("identifiers", ())]
    if named:
        return f": {', '.join(named)}"
    return f"; GET /v1/discards?destination={answer['name']} lists them"


def _confirm(verb: str, name: str, depth: int) -> None:
    if not sys.stdin.isatty():
        raise CommandError(f"--{verb} without a terminal needs --yes", code=Exit.USAGE)
    what = "the first" if verb == "skip" else "all"
    answer = input(f"Discard {what} of {depth:,} pending for {name}? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was discarded")


def _read(answer: dict[str, Any], kind: type[_Answer]) -> _Answer:
    try:
        return converted(answer, kind)
    except AnswerError as error:
        raise Refused(f"the answer is not from a deliverer: {error}") from None


def _show_queues(queues: Sequence[QueueStatus]) -> None:
    def row(queue: QueueStatus, loss: str) -> tuple[str | int | None, ...]:
        age = queue.oldest_indication_age_seconds
        relay = "" if queue.relay_to is None else f", relay to {queue.relay_to}"
        return (
            f"{queue.name}{relay}",
            _depth(queue),
            queue.high_water,
            None if age is None else duration(age),
            queue.in_flight,
            queue.delivered,
            sum(queue.discarded.values()),
            _result(queue.last_result),
            _next_attempt(queue),
            loss,
        )[: len(columns)]

    numbers = ("depth", "high water", "oldest", "in flight", "delivered", "discarded")
    losses = [_first_loss(queue) for queue in queues]
    columns = ["name", *numbers, "last result", "next attempt"]
    if any(losses):
        columns.append("first loss")
    show_table(columns, map(row, queues, losses), numbers=numbers)


def _depth(queue: QueueStatus) -> str:
    held = f" +{queue.held:,} held" if queue.held else ""
    return f"{queue.depth:,}/{queue.capacity:,}{held}"


def _next_attempt(queue: QueueStatus) -> str:
    if queue.suspended:
        return "suspended"
    if queue.hold is not None:
        return f"held: {queue.hold.cause}"
    return "" if queue.next_attempt_time is None else str(queue.next_attempt_time)


def _first_loss(queue: QueueStatus) -> str:
    """Return the time until the first loss, by the deliverer's clock."""
    due, accepted = queue.first_loss_due_time, queue.oldest_indication_time
    if due is None or accepted is None:
        return ""
    left = due - accepted - (queue.oldest_indication_age_seconds or 0.0)
    return f"in {duration(left)}" if left >= 1 else "now"


def _retry(retry: RetryStatus, *, lifetime: float) -> str:
    wait = f"{duration(retry.interval_seconds)} apart"
    if retry.backoff == "Exponential":
        wait += f", doubling to {duration(retry.maximum_interval_seconds)}"
    if retry.jitter_percent:
        wait += f", jitter {retry.jitter_percent} %"
    number = "no limit of retries" if retry.attempts is None else f"{retry.attempts:,} retries"
    kept = f"lifetime {duration(lifetime)}" if lifetime else "no lifetime"
    return f"retry: {number}, {wait}; {kept}"


def _show_attempts(attempts: Sequence[AttemptStatus]) -> None:
    numbers = ("sequence", "attempt", "ms")
    rows = (
        (
            str(attempt.time),
            attempt.identifier,
            None if attempt.sequence_number is None else str(attempt.sequence_number),
            str(attempt.attempt),
            f"{attempt.seconds * 1000:,.1f}",
            _result(attempt),
        )
        for attempt in attempts
    )
    show_table(("time", "identifier", *numbers, "result"), rows, numbers=numbers)


def _result(outcome: OutcomeStatus | AttemptStatus | None) -> str:
    if outcome is None:
        return ""
    return f"{outcome.result}: {outcome.detail}" if outcome.detail else outcome.result


def duration(seconds: float) -> str:
    """Format seconds as 4 s, 3 min 20 s, 2 h 5 min or 4 d 2 h."""
    left = int(seconds)
    for unit, size, below, part in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if left >= size:
            rest = left % size // part
            return f"{left // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{left} s"
