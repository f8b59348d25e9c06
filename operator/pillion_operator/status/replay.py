"""The status of an IndicationReplay, from what deliverers report. Pure. Each deliverer carries out
its part, by its own history. Counts never go back: a deliverer that is gone keeps its last ones."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pillion_operator.polling.reports import ReplayReport
from pillion_operator.status.conditions import (
    OUR_TYPES,
    Condition,
    find_condition,
    rfc3339,
    some_of,
)
from pillion_sidecar.config.schema.replay import ReplayState
from pillion_sidecar.wire.queues import LARGEST_COUNT

COUNTS = ("selected", "replayed", "delivered", "discarded", "leftOut")
_FINISHED = (ReplayState.COMPLETE, ReplayState.FAILED)
_NOT_KEPT = "not-kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one deliverer has done."""

    pod: str
    #: The latest report; None: it has not reported it.
    progress: ReplayReport | None = None
    #: Whether its last answer was missing.
    unreachable: bool = False

    @property
    def finished(self) -> bool:
        return self.progress is not None and self.progress.state in _FINISHED

    @property
    def failed(self) -> bool:
        return self.progress is not None and self.progress.state == ReplayState.FAILED

    @property
    def counts(self) -> Counter[str]:
        one = self.progress
        if one is None:
            return Counter()
        return Counter(
            selected=one.selected,
            replayed=one.replayed,
            delivered=one.delivered,
            discarded=one.discarded,
            leftOut=sum(one.left_out.values()),
        )


def advanced(before: ReplayReport | None, after: ReplayReport) -> ReplayReport:
    """Return the later of two reports of one deliverer, with the greater of each count: without a
    disk, a restarted process begins at 0."""
    if before is None:
        return after
    reasons = before.left_out.keys() | after.left_out.keys()
    counts = {
        name: max(getattr(before, name), getattr(after, name))
        for name in ("selected", "replayed", "delivered", "discarded")
    }
    left_out = {
        reason: max(before.left_out.get(reason, 0), after.left_out.get(reason, 0))
        for reason in reasons
    }
    last = before if before.state in _FINISHED else after
    return replace(last, left_out=left_out, **counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What the status has of deliverers that were gone before this operator led."""

    counts: Mapping[str, int] = field(default_factory=dict)
    finished: int = 0
    gone: int = 0


def earlier(live: Mapping[str, Any], parts: Sequence[Part]) -> Earlier:
    """``live`` is the status that another leader has written, ``parts`` those of today."""
    now = _total(parts)
    lost = max(0, _number(live, "deliverers") - len(parts))
    finished_there = _number(live, "finishedDeliverers") - sum(part.finished for part in parts)
    finished = min(lost, max(0, finished_there))
    return Earlier(
        counts={name: max(0, _number(live, name) - now[name]) for name in COUNTS},
        finished=finished,
        gone=max(_number(live, "goneDeliverers"), lost - finished),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts:
    #: The deliverers that have the history, and those that had it and are gone.
    parts: Sequence[Part]
    gone: Sequence[Part] = ()
    before: Earlier = Earlier()
    suspended: bool = False
    #: Why deliverers do not know it: reason and message. None: they do, or will soon.
    waits: tuple[str, str] | None = None
    #: Whether all deliverers of the time that is replayed are known.
    over: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVerdict:
    conditions: tuple[Condition, ...]
    #: Besides ``conditions`` and ``observedGeneration``.
    fields: Mapping[str, Any]


def judge_replay(facts: ReplayFacts, *, live: Mapping[str, Any], now: float) -> ReplayVerdict:
    """``live`` is the status so far, ``now`` in seconds since the epoch."""
    everyone = [*facts.parts, *facts.gone]
    failed = _failed(everyone, live)
    done = facts.waits is None and facts.over and all(part.finished for part in facts.parts)
    state = _state(facts, done=done, failed=failed is not None)
    counts = _total(everyone) + Counter(facts.before.counts)
    ended = sum(part.finished for part in facts.gone)
    numbers = {
        "deliverers": len(everyone) + facts.before.finished + facts.before.gone,
        "finishedDeliverers": sum(part.finished for part in everyone) + facts.before.finished,
        "goneDeliverers": len(facts.gone) - ended + facts.before.gone,
    }
    fields: dict[str, Any] = {
        "state": state.value,
        **{name: min(counts[name], LARGEST_COUNT) for name in COUNTS},
        **numbers,
    }
    started = _started(everyone, live)
    if started is not None:
        fields["startTime"] = started
    if done:
        fields["completionTime"] = live.get("completionTime") or rfc3339(now)
    complete = _complete(facts, numbers, state=state, failed=failed)
    return ReplayVerdict(conditions=(complete, failed or _NOT_FAILED), fields=fields)


def refused_verdict(message: str, live: Mapping[str, Any]) -> ReplayVerdict:
    """For a replay that is not accepted; what it has done stays."""
    kept = {
        name: value for name, value in live.items() if name not in ("conditions", *_OF_GENERATION)
    }
    fields = {**dict.fromkeys(COUNTS, 0), **kept, "state": ReplayState.WAITING.value}
    complete = Condition("Complete", "False", "NotAccepted", f"It is not accepted: {message}")
    failed = find_condition(live.get("conditions"), "Failed")
    if failed is None or failed.get("status") != "True":
        return ReplayVerdict(conditions=(complete, _NOT_FAILED), fields=fields)
    return ReplayVerdict(conditions=(complete, _as_before(failed)), fields=fields)


_OF_GENERATION = ("observedGeneration",)
_NOT_FAILED = Condition("Failed", "False", "NoFailure", "No deliverer has ended it early.")


def _as_before(condition: Mapping[str, Any]) -> Condition:
    return Condition(
        condition["type"], condition["status"], condition["reason"], condition["message"]
    )


def kept_verdict(live: Mapping[str, Any]) -> ReplayVerdict:
    """For a finished replay: its status stays."""
    return ReplayVerdict(
        conditions=tuple(
            _as_before(one) for one in live.get("conditions") or () if one["type"] in OUR_TYPES
        ),
        fields={
            name: value
            for name, value in live.items()
            if name not in ("conditions", *_OF_GENERATION)
        },
    )


def _state(facts: ReplayFacts, *, done: bool, failed: bool) -> ReplayState:
    if done:
        return ReplayState.FAILED if failed else ReplayState.COMPLETE
    if facts.suspended:
        return ReplayState.SUSPENDED
    states = {part.progress.state for part in facts.parts if part.progress is not None}
    if ReplayState.RUNNING in states:
        return ReplayState.RUNNING
    return ReplayState.WAITING


def _complete(
    facts: ReplayFacts,
    numbers: Mapping[str, int],
    *,
    state: ReplayState,
    failed: Condition | None,
) -> Condition:
    kind = "Complete"
    of, finished, gone = numbers.values()
    told = f"{finished} of {of} deliverers have finished."
    if gone:
        told += (
            f" {gone} ended before they had finished: what only their history had is not replayed."
        )
    told += _left_out([*facts.parts, *facts.gone]) + _not_covered([*facts.parts, *facts.gone])
    if state is ReplayState.COMPLETE:
        if not of:
            message = "No deliverer has a history of this time, so nothing is replayed."
            return Condition(kind, "True", "NoDeliverers", message)
        return Condition(kind, "True", "DeliverersGone" if gone else "Finished", told)
    if state is ReplayState.FAILED and failed is not None:
        return Condition(kind, "False", "DelivererFailed", f"{failed.message} {told}")
    if facts.waits is not None:
        reason, message = facts.waits
        return Condition(kind, "False", reason, message)
    silent = sum(part.unreachable and not part.finished for part in facts.parts)
    if silent:
        told += f" {silent} do not answer the operator."
    return Condition(kind, "False", "NotFinished", f"{told}{_details(facts.parts)}")


def _details(parts: Iterable[Part]) -> str:
    """What deliverers wait for, the most frequent first."""
    details = Counter(
        part.progress.detail
        for part in parts
        if part.progress is not None and part.progress.detail and not part.finished
    )
    listed = sorted(details, key=lambda detail: (-details[detail], detail))
    return f" Deliverers wait: {some_of(listed, '; ')}." if listed else ""


def _left_out(parts: Iterable[Part]) -> str:
    reasons: Counter[str] = Counter()
    for part in parts:
        reasons.update(part.progress.left_out if part.progress is not None else {})
    listed = [f"{count} {reason}" for reason, count in sorted(reasons.items()) if count]
    if not listed:
        return ""
    kept = " Content is kept by spec.history.bodies of the service." if reasons[_NOT_KEPT] else ""
    return f" Left out: {some_of(listed)}.{kept}"


def _not_covered(parts: Sequence[Part]) -> str:
    short = [
        part.progress
        for part in parts
        if part.progress is not None and not part.progress.covers_from
    ]
    if not short:
        return ""
    oldest = [one.oldest_outcome_time for one in short if one.oldest_outcome_time is not None]
    since = f": the latest begins at {rfc3339(max(oldest))}" if oldest else ""
    return f" The history of {len(short)} deliverer(s) does not go back to spec.from{since}."


def _failed(parts: Sequence[Part], live: Mapping[str, Any]) -> Condition | None:
    """The condition Failed if any deliverer has failed, now or for an earlier leader."""
    failed = [part for part in parts if part.failed]
    if not failed:
        before = find_condition(live.get("conditions"), "Failed")
        told = before is not None and before.get("status") == "True"
        return _as_before(before) if before is not None and told else None
    why = [
        f"{part.pod}: {part.progress.detail or 'it does not say why'}"
        for part in sorted(failed, key=lambda part: part.pod)
        if part.progress is not None
    ]
    message = (
        f"{len(failed)} deliverer(s) ended it early: {some_of(why, '; ')}. What they have queued "
        "is delivered. Repair the cause, and create another replay for the rest."
    )
    return Condition("Failed", "True", "DelivererFailed", message)


def _started(parts: Iterable[Part], live: Mapping[str, Any]) -> str | None:
    if live.get("startTime"):
        return str(live["startTime"])
    times = [
        part.progress.started
        for part in parts
        if part.progress is not None and part.progress.started is not None
    ]
    return rfc3339(min(times)) if times else None


def _total(parts: Iterable[Part]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.counts)
    return total


def _number(live: Mapping[str, Any], name: str) -> int:
    """0 for what is no number: users may write statuses, too."""
    found = live.get(name)
    return found if isinstance(found, int) else 0
