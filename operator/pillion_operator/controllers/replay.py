"""The reconcile of replays: their status, and their deletion after ``ttlSecondsAfterFinished``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pillion_operator.cluster.scaling import replicas_of
from pillion_operator.cluster.types import STATEFUL_SET, Object, being_deleted, our_type
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.filter_and_subscription import MissingReferenceDelay
from pillion_operator.controllers.readiness import accepted_condition
from pillion_operator.evaluation.namespace import TTL
from pillion_operator.evaluation.references import REPLAY, SERVICE, is_gateway, named_by, service_of
from pillion_operator.evaluation.replaying import carried_at, is_finished
from pillion_operator.evaluation.verdict import Verdict, missing, refused, together
from pillion_operator.names import gateway
from pillion_operator.polling.reports import Answer, Unreachable, last_report
from pillion_operator.status.conditions import seconds_of
from pillion_operator.status.replay import (
    Earlier,
    Part,
    ReplayFacts,
    advanced,
    earlier,
    judge_replay,
    kept_verdict,
    refused_verdict,
)
from pillion_operator.store import Key, identity_of, key_of, uid_of

#: Seconds after the creation of a replay in which an older pod may yet become known.
LATE = 5.0


@dataclass(slots=True)
class _Known:
    """The deliverers of one replay, by pod."""

    name: str
    uid: str
    #: The status when this operator first saw it.
    live: Mapping[str, Any]
    #: None until each deliverer that is there has reported: what one has done is in ``live``, too.
    before: Earlier | None = None
    parts: dict[str, Part] = field(default_factory=dict)


class ReplayReconciler:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[Key, _Known] = {}
        self._delay = MissingReferenceDelay(clock=context.clock)
        context.store.subscribe(self._delay.follow)

    async def reconcile(self, key: Key) -> None:
        body = self._context.store.get(key)
        if body is None or being_deleted(body):
            self._known.pop(key, None)
            return
        live = body.get("status") or {}
        if is_finished(body):
            self._known.pop(key, None)
            if not await self._deleted(body):
                kept = kept_verdict(live)
                await self._context.statuses.write(body, kept.conditions, kept.fields)
            return
        carriers = self._carriers(body)
        verdict = self._verdict(body, carriers)
        if verdict is None:
            return
        if (wait := self._delay.wait(key, verdict)) > 0:
            self._context.requeue(key, wait)
            return
        if not self._context.has_synced(carriers):
            # The first round notifies.
            return
        if verdict.accepted or self._is_rendered(key, carriers):
            found = judge_replay(
                self._facts(body, carriers), live=live, now=self._context.clock.time()
            )
        else:
            found = refused_verdict(verdict.message, live)
        await self._context.statuses.write(
            body, [accepted_condition(verdict), *found.conditions], found.fields
        )

    async def _deleted(self, body: Object) -> bool:
        """Delete a finished replay once its time is over; or look again then."""
        seconds = (body.get("spec") or {}).get(TTL)
        finished = seconds_of((body.get("status") or {}).get("completionTime"))
        if seconds is None or finished is None:
            return False
        remaining = finished + float(seconds) - self._context.clock.time()
        key = key_of(body)
        if remaining > 0:
            self._context.requeue(key, remaining)
            return False
        kind = our_type(REPLAY)
        await self._context.api.delete(kind, key.namespace, key.name, uid=uid_of(body))
        return True

    def _verdict(self, body: Object, carriers: set[Key]) -> Verdict | None:
        """None until the reconciles of its service and gateways have run."""
        problems = self._context.parsing.parse(body).problems
        if problems:
            return refused(problems)
        key = key_of(body)
        service = Key(SERVICE, key.namespace, service_of(body))
        store = self._context.store
        if store.get(service) is None:
            others = (one for one in named_by(body) if one != service and store.get(one) is None)
            return together([missing(one.kind, one.name) for one in (service, *others)])
        state = self._context.states.get(service)
        verdict = state.evaluation.replays.get(key.name) if state is not None else None
        if verdict is None or not verdict.accepted:
            return verdict
        for other in sorted(carriers - {service}):
            there = self._context.states.get(other)
            if there is None:
                return None
            found = there.evaluation.carried.get(key.name)
            if found is None and there.evaluation.verdict.accepted:
                return None
            if found is not None and not found.accepted:
                return found
        return verdict

    def _carriers(self, body: Object) -> set[Key]:
        """The services whose deliverers carry it out: its own, and gateways with a part of the
        history."""
        key = key_of(body)
        service = Key(SERVICE, key.namespace, service_of(body))
        found = {service}
        namespace = self._context.namespace(key.namespace)
        for other in self._context.references.gateways_of(service):
            there = self._context.store.get(other)
            if there is None or not is_gateway(there):
                continue
            carried = carried_at(other, namespace=namespace, references=self._context.references)
            if key.name in carried and carried[key.name].destinations:
                found.add(other)
        return found

    def _is_rendered(self, key: Key, carriers: set[Key]) -> bool:
        states = (self._context.states.get(service) for service in carriers)
        return any(state is not None and key in state.evaluation.content for state in states)

    def _facts(self, body: Object, carriers: set[Key]) -> ReplayFacts:
        key, spec = key_of(body), body.get("spec") or {}
        created = seconds_of(identity_of(body).get("creationTimestamp")) or 0.0
        until = min(created, seconds_of(spec.get("until")) or created)
        rest = created + LATE - self._context.clock.time()
        if rest > 0:
            self._context.requeue(key, rest)
        uid = str(identity_of(body).get("uid") or "")
        known = self._known.get(key)
        if known is None or known.uid != uid:
            known = self._known[key] = _Known(key.name, uid, body.get("status") or {})
        there = {
            pod: part
            for service in sorted(carriers)
            for pod, part in self._parts(service, known, until=until)
        }
        known.parts.update(there)
        before = known.before
        if before is None:
            before = earlier(known.live, list(known.parts.values()))
            if all(part.progress is not None for part in there.values()):
                known.before = before
        return ReplayFacts(
            parts=list(there.values()),
            gone=[part for pod, part in known.parts.items() if pod not in there],
            before=before,
            suspended=bool(spec.get("suspended")),
            waits=self._waits(key, carriers),
            over=rest <= 0,
        )

    def _waits(self, key: Key, carriers: set[Key]) -> tuple[str, str] | None:
        for service in sorted(carriers):
            state = self._context.states.get(service)
            if state is None:
                continue
            if state.unwritten is not None:
                return state.unwritten.reason, state.unwritten.message
            if key.name in state.evaluation.waiting:
                message = (
                    f"A deliverer of IndicationService {service.name} is of an older version and "
                    "does not know replays. Recreate the pods that the condition OlderDeliverers "
                    "of the service names."
                )
                return "OlderDeliverers", message
        return None

    def _parts(self, service: Key, known: _Known, *, until: float) -> Iterator[tuple[str, Part]]:
        """The deliverers of a service that may have a history of the time, by a key that lasts as
        long as the history does."""
        answers = {answer.pod: answer for answer in self._context.answers(service)}
        lasting = self._lasting(service)
        pods = self._context.pods(service, terminating=True)
        found = {}
        for pod in pods:
            name = pod["metadata"]["name"]
            created = seconds_of(pod["metadata"].get("creationTimestamp"))
            if name not in lasting and (created is None or created <= until):
                found[uid_of(pod)] = name
        found.update({f"{service.name}/{name}": name for name in lasting})
        for pod_key, name in found.items():
            part = known.parts.get(pod_key) or Part(pod=name)
            yield pod_key, _updated(part, answers.get(name), known)

    def _lasting(self, service: Key) -> set[str]:
        """The pods whose journal outlasts them, those of a gateway with claims; also while they are
        missing."""
        body = self._context.store.get(service)
        name = gateway(service.name)
        stateful_set = self._context.store.get(Key(STATEFUL_SET.kind, service.namespace, name))
        if body is None or not is_gateway(body) or stateful_set is None:
            return set()
        if not (stateful_set.get("spec") or {}).get("volumeClaimTemplates"):
            return set()
        return {f"{name}-{number}" for number in range(replicas_of(body, stateful_set))}


def _updated(part: Part, answer: Answer | None, known: _Known) -> Part:
    report = last_report(answer)
    progress = report.replays.get(known.name) if report is not None else None
    if progress is not None and progress.uid == known.uid:
        part = replace(part, progress=advanced(part.progress, progress))
    return replace(part, unreachable=isinstance(answer, Unreachable))
