"""The checks of ``pillion plugin check``: each on a link of its own."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pillion_cli.plugin.peer import CheckFailed, Conversation, Peer, shown
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.handlers.plugin.messages import METHOD_NOT_FOUND, MOST_IN_FLIGHT, VERSION

OUTCOMES = ("success", "error", "fatal")
#: Bytes of the large indication; a line has at most 4 MiB.
LARGE = 3 * 1024 * 1024
UNICODE = 'Grüße, 漢字, العربية, 🦄, e\u0301, \u2028, "quoted", \\, \t, two\nlines'
#: Seconds of the command with a short time-out.
SHORT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    #: Opens a link; raises OSError.
    connect: Callable[[], Peer]
    #: Seconds that each command may take.
    timeout: float
    url: str
    #: Seconds beyond the time-out in which an answer is still taken.
    margin: float = 2.0
    #: Seconds for the end of a plug-in.
    grace: float = 5.0
    #: Seconds in which no further answer may come.
    quiet: float = 0.1


@dataclass(frozen=True, slots=True)
class Result:
    check: str
    passed: bool
    detail: str
    #: Of the deliveries that were answered.
    outcomes: tuple[str, ...] = ()

    def as_text(self) -> str:
        verdict = "pass" if self.passed else "FAIL"
        return f"{verdict}  {self.check}: {escape_controls(self.detail)}"

    def as_json(self) -> str:
        return json.dumps({"check": self.check, "passed": self.passed, "detail": self.detail})


def summary(results: Sequence[Result]) -> str:
    failed = sum(not result.passed for result in results)
    outcomes = [outcome for result in results for outcome in result.outcomes]
    successes = outcomes.count("success")
    checks = f"{failed} of {len(results)} checks failed" if failed else "all checks passed"
    hint = "" if successes == len(outcomes) else ": see the details"
    untried = len(CHECKS) - len(results)
    rest = f"; the other {untried} were not tried" if untried else ""
    return f"{checks}{rest}; {successes} of {len(outcomes)} deliveries were a success{hint}"


class Link:
    """A link that is initialized. All methods raise CheckFailed."""

    def __init__(self, conversation: Conversation, plan: Plan) -> None:
        self.talk = conversation
        self.plan = plan
        #: Without their details.
        self.outcomes: list[str] = []
        self.description = self._initialize()
        self.in_flight = int(self.description.get("inFlight", 1))

    def _initialize(self) -> dict[str, Any]:
        params = {
            "protocolVersions": [VERSION],
            "destination": "check",
            "url": self.plan.url,
            "service": "check",
            "timeout": self.plan.timeout,
        }
        answer = self.talk.answer(self.talk.request("initialize", params))
        result = answer.get("result")
        if not isinstance(result, dict):
            raise CheckFailed(expected="a result of initialize", came=shown(answer))
        _demand(result.get("protocolVersion") == VERSION, f"protocolVersion {VERSION}", answer)
        is_text = all(isinstance(result.get(field, ""), str) for field in ("name", "version"))
        _demand(is_text, "name and version to be strings, or none", answer)
        in_flight = result.get("inFlight", 1)
        _demand(
            type(in_flight) is int and 1 <= in_flight <= MOST_IN_FLIGHT,
            f"inFlight from 1 to {MOST_IN_FLIGHT}, or none",
            answer,
        )
        return result

    def send(self, *, timeout: float | None = None, **properties: Any) -> int:
        """Send one command; return its id."""
        limit = self.plan.timeout if timeout is None else timeout
        return self.talk.request("deliver", _command(limit, properties))

    def outcome(self, *pending: int, timeout: float | None = None) -> tuple[int, str]:
        """Return the id and the outcome of the next answer."""
        limit = self.plan.timeout if timeout is None else timeout
        answer = self.talk.answer(*pending, within=limit + self.plan.margin)
        return answer["id"], self.take(answer)

    def take(self, answer: dict[str, Any]) -> str:
        """Return the outcome of an answer with its detail."""
        outcome = _outcome(answer)
        self.outcomes.append(outcome.partition(" ")[0])
        return outcome

    def deliver(self, **properties: Any) -> str:
        _, outcome = self.outcome(self.send(**properties))
        return outcome


def _result(name: str, check: Callable[[Link], str], plan: Plan) -> Result:
    outcomes: list[str] = []
    try:
        with _linked(plan) as link:
            outcomes = link.outcomes
            detail = check(link)
            link.talk.quiet(plan.quiet)
    except CheckFailed as failure:
        return Result(name, False, str(failure), tuple(outcomes))
    except OSError as failure:
        return Result(name, False, f"expected a link; came {failure.strerror or failure}")
    return Result(name, True, detail, tuple(outcomes))


@contextmanager
def _linked(plan: Plan) -> Iterator[Link]:
    peer = plan.connect()
    try:
        within = plan.timeout + plan.margin
        yield Link(Conversation(peer, within=within), plan)
    finally:
        peer.close()


def _command(timeout: float, properties: dict[str, Any]) -> dict[str, Any]:
    base = {"AlertType": 5, "PerceivedSeverity": 6, "ProbableCause": 94, "Message": "Fan 3 failed"}
    return {
        "timeout": timeout,
        "attempt": 1,
        "indication": {"class": "CIM_AlertIndication", "properties": base | properties},
        "filterName": "check",
        "identifier": "pillion-plugin-check",
        "sequenceContext": "check#1",
        "sequenceNumber": 0,
        "correlated": False,
        "languages": ["en"],
    }


def _outcome(answer: dict[str, Any]) -> str:
    """Return the outcome with its detail. Raises CheckFailed."""
    if "error" in answer:
        return f"error ({_error(answer)['message']})"
    result = answer.get("result")
    if not isinstance(result, dict) or result.get("outcome") not in OUTCOMES:
        raise CheckFailed(expected=f"outcome {', '.join(OUTCOMES)}", came=shown(answer))
    detail = result.get("detail", "")
    _demand(isinstance(detail, str), "detail, a string", answer)
    after = result.get("retryAfter", 0)
    is_number = isinstance(after, int | float) and not isinstance(after, bool)
    _demand(is_number and after >= 0, "retryAfter, seconds from 0", answer)
    _demand(
        isinstance(result.get("refusesIndication", False), bool),
        "refusesIndication, a bool",
        answer,
    )
    return f"{result['outcome']} ({detail})" if detail else str(result["outcome"])


def _error(answer: dict[str, Any]) -> dict[str, Any]:
    error = answer.get("error")
    is_error = (
        isinstance(error, dict)
        and type(error.get("code")) is int
        and isinstance(error.get("message"), str)
    )
    if not is_error:
        raise CheckFailed(expected="an error with code and message", came=shown(answer))
    assert isinstance(error, dict)
    return error


def _demand(holds: bool, expected: str, answer: dict[str, Any]) -> None:
    if not holds:
        raise CheckFailed(expected=expected, came=shown(answer))


# ---------------------------------------------------------------------- the checks


def _initialize(link: Link) -> str:
    found = link.description
    name = f"{found.get('name', '')} {found.get('version', '')}".strip() or "no name"
    return f"{name}, {link.in_flight} in flight"


def _one_delivery(link: Link) -> str:
    return link.deliver()


def _several_in_flight(link: Link) -> str:
    pending = {link.send(Message=f"command {number}") for number in range(link.in_flight)}
    outcomes = []
    while pending:
        answered, outcome = link.outcome(*pending)
        pending.remove(answered)
        outcomes.append(outcome)
    return f"{link.in_flight} at once: {', '.join(sorted(set(outcomes)))}"


def _large_indication(link: Link) -> str:
    return f"{LARGE} bytes: {link.deliver(Message='x' * LARGE)}"


def _unicode(link: Link) -> str:
    return link.deliver(Message=UNICODE)


def _unknown_method(link: Link) -> str:
    answer = link.talk.answer(link.talk.request("check/unknown", {}))
    code = _error(answer)["code"]
    _demand(code == METHOD_NOT_FOUND, f"error {METHOD_NOT_FOUND}", answer)
    return f"error {code}, then {link.deliver()}"


def _unknown_notification(link: Link) -> str:
    link.talk.notify("check/unknown", {})
    return f"no answer, then {link.deliver()}"


def _malformed_line(link: Link) -> str:
    link.talk.send_line(b'{"jsonrpc":"2.0","id":')
    pending = link.send()
    answer = link.talk.answer(pending, None, within=link.plan.timeout + link.plan.margin)
    if answer["id"] is not None:
        return f"no answer, then {link.take(answer)}"
    code = _error(answer)["code"]
    return f"error {code} with id null, then {link.outcome(pending)[1]}"


def _short_timeout(link: Link) -> str:
    pending = link.send(timeout=SHORT)
    return f"{SHORT:g} s: {link.outcome(pending, timeout=SHORT)[1]}"


def _shutdown(link: Link) -> str:
    link.deliver()
    link.talk.notify("shutdown", {})
    return link.talk.end(link.plan.grace)


def _end_of_input(link: Link) -> str:
    link.deliver()
    return link.talk.end(link.plan.grace)


CHECKS: dict[str, Callable[[Link], str]] = {
    "initialize": _initialize,
    "one delivery": _one_delivery,
    "several in flight": _several_in_flight,
    "large indication": _large_indication,
    "Unicode": _unicode,
    "unknown method": _unknown_method,
    "unknown notification": _unknown_notification,
    "malformed line": _malformed_line,
    "short time-out": _short_timeout,
    "shutdown": _shutdown,
    "end of input": _end_of_input,
}
#: The others need what these check.
NEEDED = ("initialize", "one delivery")


def run_checks(
    plan: Plan, checks: Mapping[str, Callable[[Link], str]] = CHECKS
) -> Iterator[Result]:
    """If one of the ``NEEDED`` fails, the following are not made: they would fail by the same."""
    for name, check in checks.items():
        result = _result(name, check, plan)
        yield result
        if name in NEEDED and not result.passed:
            return
