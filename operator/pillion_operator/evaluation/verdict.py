from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pillion_operator.evaluation.namespace import describe
from pillion_operator.evaluation.references import DESTINATION, FILTER, SERVICE, names_secret
from pillion_operator.store import Key
from pillion_sidecar.config.problems import Problem
from pillion_sidecar.config.schema import CREDENTIALS_LABEL

#: The beginnings of reasons.
_WORDS = {SERVICE: "Service", FILTER: "Filter", DESTINATION: "Destination"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The condition Accepted of one resource."""

    accepted: bool
    #: CamelCase.
    reason: str
    #: A sentence, with the remedy.
    message: str


ACCEPTED = Verdict(True, "Accepted", "It is valid, and all objects that it names exist.")


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """All messages; the first verdict gives the reason."""
    return Verdict(False, verdicts[0].reason, " ".join(one.message for one in verdicts))


def refused(problems: Iterable[Problem]) -> Verdict:
    """The first problem gives the reason."""
    seen = [_as_seen_by_the_operator(problem) for problem in problems]
    return Verdict(False, seen[0].reason, describe(seen))


def missing(kind: str, name: str) -> Verdict:
    message = f"{kind} {name} does not exist in this namespace. Create it."
    return Verdict(False, f"{_WORDS[kind]}NotFound", message)


def being_removed(key: Key) -> Verdict:
    message = f"{key.kind} {key.name} is being deleted. Name another, or recreate it."
    return Verdict(False, f"{_WORDS[key.kind]}BeingDeleted", message)


def not_accepted(key: Key) -> Verdict:
    message = f"{key.kind} {key.name} is not accepted: see its conditions."
    return Verdict(False, f"{_WORDS[key.kind]}NotAccepted", message)


def _as_seen_by_the_operator(problem: Problem) -> Problem:
    """Rewrite a missing Secret: the operator sees only labelled ones, so it may exist."""
    unread = problem.reason in ("NotFound", "CredentialsNotPermitted")
    if not unread or not names_secret(problem.field):
        return problem
    user = "these stores" if problem.resource.startswith(f"{SERVICE}/") else "this destination"
    return replace(
        problem,
        reason="CredentialsNotPermitted",
        message=f'no Secret of this name has the label {CREDENTIALS_LABEL}: "true", or it is '
        "larger than 384 KiB",
        remedy=f"Label it if {user} may use it. The operator reads no other Secret.",
    )
