"""Asks a deliverer for outcomes: page by page, or as they come (S0.11)."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pillion_cli.arguments import Options, destination_name, moment, whole_number
from pillion_cli.client import Answer, DelivererClient, NoDeliverer, Unreachable
from pillion_cli.exits import CommandError, Exit
from pillion_cli.tables import Rows
from pillion_cli.terminal import Output
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.history.outcome import OutcomeResult
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.wire.outcomes import (
    HISTORY_HEADER,
    MORE_HEADER,
    NEXT_HEADER,
    OutcomeLine,
    read_outcome,
)
from pillion_sidecar.wire.queues import AnswerError, Moment

PATH = "/v1/outcomes"
#: Outcomes of one request.
PAGE = 1000
#: Seconds for which one request waits for the next outcome.
WAIT = 30
#: Seconds between two tries to reach a deliverer that has gone.
PAUSE = 1.0
MOST = 1_000_000_000
MOST_NUMBER = 10**18
#: Most cells of the columns whose texts publishers choose, in a terminal.
MOST_CELLS = {"source": 30, "identifier": 40}
_NEVER = datetime(9000, 1, 1, tzinfo=UTC)


def add_selection(options: Options, *, has_until: bool = True) -> None:
    """Define the options that select outcomes, as :func:`selected` reads them."""
    options.value("--destination NAME", "only for this destination", destination_name)
    options.choice("--reason", DiscardReason, "only discarded for this reason")
    options.value("--source NAME", "only from this publisher, by its source")
    options.value("--identifier ID", "only with this IndicationIdentifier")
    since = "only since this time: 2026-11-22T09:00:00Z, or 10m for ten minutes ago"
    options.value("--since TIME", since, moment)
    if has_until:
        options.value("--until TIME", "only before this time", moment)


def add_listing(options: Options) -> None:
    """Define what commands have in common that list outcomes of every result."""
    options.choice("--result", OutcomeResult, "only with this result")
    options.value(
        "--after NUMBER", "only with a number larger than this", whole_number(0, MOST_NUMBER)
    )
    options.value(
        "--limit COUNT", "maximum number of outcomes, the oldest first [all]", whole_number(1, MOST)
    )
    options.flag(
        "--indication", "add the indication itself, if the history has it; needs --output json"
    )


def check_listing(args: argparse.Namespace) -> None:
    """Raises CommandError."""
    if args.indication and args.output != "json":
        raise CommandError("--indication: only with --output json", code=Exit.USAGE)


def listed(args: argparse.Namespace) -> dict[str, object]:
    """Return the parameters of a request."""
    shows = "true" if args.indication else None
    return {**selected(args), "result": args.result, "indication": shows}


def selected(args: argparse.Namespace) -> dict[str, object]:
    """Return the parameters of a request."""
    return {
        "destination": args.destination,
        "reason": args.reason,
        "source": args.source,
        "identifier": args.identifier,
        "since": _text(args.since),
        "until": _text(getattr(args, "until", None)),
    }


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


@dataclass(frozen=True, slots=True)
class Page:
    #: JSON objects, as they came.
    lines: list[bytes]
    #: Where numbers begin anew, it is another.
    history: str
    #: The number up to which the history was looked through.
    through: int
    has_more: bool

    @classmethod
    def of(cls, answer: Answer) -> "Page":
        """Raises :class:`Refused`."""
        if answer.status != 200:
            raise answer.refusal()
        through = answer.headers.get(NEXT_HEADER.lower(), "")
        if not (through.isascii() and through.isdecimal()):
            raise NoDeliverer(f"it has no {NEXT_HEADER}")
        return cls(
            # An indication may have a carriage return between two members.
            lines=[line for line in answer.body.split(b"\n") if line],
            history=answer.headers.get(HISTORY_HEADER.lower(), ""),
            through=int(through),
            has_more=answer.headers.get(MORE_HEADER.lower()) == "true",
        )

    def outcomes(self) -> Iterator[OutcomeLine]:
        """Raises :class:`Refused`."""
        return map(outcome_of, self.lines)


def outcome_rows(columns: Sequence[str]) -> Rows:
    """A table whose lines a terminal wraps, and in which no publisher's text is as long as that."""
    output = Output.of_process().widened()
    return Rows(columns, numbers=("number", "attempts"), output=output, most=MOST_CELLS)


def write_lines(lines: Iterable[bytes]) -> None:
    """Write lines of JSON; to a terminal with control characters escaped."""
    is_terminal = sys.stdout.isatty()
    for line in lines:
        shown = escape_controls(line.decode(errors="replace")).encode() if is_terminal else line
        sys.stdout.buffer.write(shown + b"\n")


def show_pages(
    found: Iterable[Page],
    *,
    columns: Sequence[str],
    row: Callable[[OutcomeLine], tuple[str | int | None, ...]],
    output: str,
) -> bool:
    """Write each page as it comes; return whether the reader has seen what there is: False if a
    table has stayed empty. Raises CommandError."""
    rows = outcome_rows(columns)
    for page in found:
        if output == "json":
            write_lines(page.lines)
        else:
            rows.show(map(row, page.outcomes()))
        sys.stdout.flush()
    return output == "json" or rows.has_begun


def outcome_of(line: bytes) -> OutcomeLine:
    """Raises :class:`Refused`."""
    try:
        return read_outcome(line)
    except AnswerError as error:
        raise NoDeliverer(error) from None


def pages(
    client: DelivererClient, query: Mapping[str, Any], *, after: int, limit: int | None
) -> Iterator[Page]:
    """Yield what there is, at most ``limit`` outcomes. Raises CommandError."""
    left = PAGE if limit is None else limit
    while left:
        page = Page.of(client.get(PATH, {**query, "after": after, "limit": min(PAGE, left)}))
        yield page
        if not page.has_more:
            return
        if page.through <= after:
            raise NoDeliverer("its pages do not go on")
        after = page.through
        left -= 0 if limit is None else len(page.lines)


def last_number(client: DelivererClient) -> int:
    """Return the number of the latest outcome; 0 without any. Raises CommandError."""
    # Of those later than all the deliverer reads the headers of blocks alone.
    query = {"since": _text(_NEVER)}
    (*_, last) = pages(client, query, after=0, limit=None)
    return last.through


def check_destination(client: DelivererClient, args: argparse.Namespace) -> None:
    """Raises CommandError with the nearest name if the deliverer does not know the destination. One
    that was removed is not known either, so this is for a selection without outcomes."""
    if args.destination is None:
        return
    answer = client.get(f"/v1/queues/{args.destination}")
    if answer.status == 404:
        raise answer.refusal()


class Follower:
    """Waits for outcomes, also over restarts of the deliverer."""

    def __init__(
        self,
        client: DelivererClient,
        *,
        sleep: Callable[[float], None],
        tell: Callable[[str], None],
    ) -> None:
        """``tell``: what the user should know, a line each."""
        self._client = client
        self._sleep = sleep
        self._tell = tell
        self._history: str | None = None
        self._has_answered = self._is_lost = False

    def pages(self, query: Mapping[str, Any], *, after: int, limit: int | None) -> Iterator[Page]:
        """Yield pages without end, or until ``limit`` outcomes. Raises CommandError."""
        left = PAGE if limit is None else limit
        looks_anew = False
        while left:
            # The first request does not wait: its answer tells that there is a deliverer.
            wait = WAIT if self._has_answered and not looks_anew else 0
            begin = 0 if looks_anew else after
            page = self._ask({**query, "after": begin, "limit": min(PAGE, left), "wait": wait})
            if page is None:
                looks_anew = True
            elif page.history == (self._history or page.history):
                # An empty one may be that of a deliverer that starts.
                self._history = page.history if page.through else self._history
                if not looks_anew:
                    yield page
                    after = page.through
                    left -= 0 if limit is None else len(page.lines)
                looks_anew = False
            elif not page.through:
                # Empty, as while the deliverer starts: the known one may come back.
                looks_anew = True
                self._sleep(PAUSE)
            else:
                self._tell("the deliverer has begun another history: its numbers begin at 1")
                self._history, after, looks_anew = page.history, 0, False

    def _ask(self, query: Mapping[str, Any]) -> Page | None:
        """Return the next page; None if it is another history, which has fewer outcomes."""
        while True:
            try:
                answer = self._client.get(PATH, query)
            except Unreachable as failure:
                if not self._has_answered:
                    raise
                self._wait(str(failure), PAUSE)
                continue
            self._has_answered = True
            if answer.status == 503:
                self._wait(str(answer.refusal()), answer.retry_after or PAUSE)
                continue
            self._is_lost = False
            if answer.status == 409 and self._is_other(answer):
                return None
            return Page.of(answer)

    def _is_other(self, answer: Answer) -> bool:
        known = self._history
        return known is not None and answer.headers.get(HISTORY_HEADER.lower()) != known

    def _wait(self, why: str, seconds: float) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._tell(f"{why}; trying again until it answers")
        self._sleep(seconds)


def time_text(time: datetime) -> str:
    return str(Moment(time.timestamp()))
