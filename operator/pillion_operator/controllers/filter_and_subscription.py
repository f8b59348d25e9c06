"""The reconciles of filters and subscriptions: they write statuses."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from pillion_operator.clock import Clock
from pillion_operator.cluster.types import OURS, Object
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.readiness import (
    accepted_condition,
    conditions,
    gateway_of,
    services_of,
    verdict_of,
)
from pillion_operator.evaluation.references import DESTINATION, SERVICE, destination_ref, service_of
from pillion_operator.evaluation.relaying import GATEWAY_NOT_FOUND
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.status.conditions import Condition
from pillion_operator.status.delivery import failing_since
from pillion_operator.status.subscription import RemovalRule, State, begins_anew, judge_subscription
from pillion_operator.store import Change, Key, key_of
from pillion_sidecar.wire.queues import SubscriptionEnd

#: Seconds without a new object in the namespace before a reference is reported missing.
QUIET = 1.0
#: Maximum seconds until then.
LONGEST = 10.0
_KINDS = frozenset(kind.kind for kind in OURS)
_MISSING = frozenset(
    {"ServiceNotFound", "FilterNotFound", "DestinationNotFound", GATEWAY_NOT_FOUND}
)


class MissingReferenceDelay:
    """Delays the report that a reference of a subscription or replay is missing.

    ``kubectl apply`` of a folder often applies subscriptions before what they name; an immediate
    report would cost each two writes and two Events.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}
        #: When an object last came in each namespace, recent ones only; oldest first.
        self._newest: OrderedDict[str, float] = OrderedDict()

    def follow(self, change: Change) -> None:
        if change.after is None:
            self._since.pop(change.key, None)
        elif change.before is None and change.key.kind in _KINDS:
            now = self._clock.monotonic()
            self._newest[change.key.namespace] = now
            self._newest.move_to_end(change.key.namespace)
            while self._newest and next(iter(self._newest.values())) + QUIET <= now:
                self._newest.popitem(last=False)

    def wait(self, user: Key, verdict: Verdict) -> float:
        """Seconds until ``verdict`` may be reported; 0: now."""
        if verdict.reason not in _MISSING:
            self._since.pop(user, None)
            return 0.0
        now = self._clock.monotonic()
        since = self._since.setdefault(user, now)
        newest = max(since, self._newest.get(user.namespace, since))
        return max(0.0, min(newest + QUIET, since + LONGEST) - now)


async def reconcile_filter(context: Context, key: Key) -> None:
    body = context.store.get(key)
    if body is None:
        return
    services = services_of(context, key)
    verdict = verdict_of(context, body, services)
    found = verdict and conditions(context, body, verdict, services)
    if found:
        evaluations = context.evaluations(services)
        found += [*_last_good(key.name, evaluations), *_unknown(key.name, evaluations)]
        await context.statuses.write(body, found, {})


def _last_good(name: str, services: Mapping[str, ServiceEvaluation]) -> Iterator[Condition]:
    versions = [
        f"{_generation(evaluation.last_good[name])} in the service {service}"
        for service, evaluation in sorted(services.items())
        if name in evaluation.last_good
    ]
    if versions:
        message = f"In force until the filter is corrected: {', '.join(versions)}."
        yield Condition("EarlierGenerationInForce", "True", "EditNotAccepted", message)


def _generation(number: int | None) -> str:
    return "an earlier generation" if number is None else f"generation {number}"


def _unknown(name: str, services: Mapping[str, ServiceEvaluation]) -> Iterator[Condition]:
    messages = [
        f"In the service {service}: {evaluation.unknown_classes[name]}"
        for service, evaluation in services.items()
        if name in evaluation.unknown_classes
    ]
    if messages:
        yield Condition("ClassUnknown", "True", "NotDeclared", " ".join(messages))


class SubscriptionReconciler:
    def __init__(self, context: Context) -> None:
        self._context = context
        #: When subscriptions restarted after an end (seconds since the epoch), and by which
        #: generation.
        self._begun: dict[Key, tuple[int, float]] = {}
        self._delay = MissingReferenceDelay(clock=context.clock)
        context.store.subscribe(self._delay.follow)

    async def reconcile(self, key: Key) -> None:
        context = self._context
        body = context.store.get(key)
        if body is None:
            self._begun.pop(key, None)
            return
        service = Key(SERVICE, key.namespace, service_of(body))
        verdict = verdict_of(context, body, [service])
        if verdict is None:
            return
        if (wait := self._delay.wait(key, verdict)) > 0:
            context.requeue(key, wait)
            return
        gateway = gateway_of(body, store=context.store)
        services = [service] if gateway is None else [service, gateway]
        over = judge_subscription(
            body,
            removal=self._removal(body, service),
            ended=self._ended(services),
            now=context.clock.time(),
        )
        if over.due_again is not None:
            context.requeue(key, over.due_again)
        if verdict.accepted and over.state is not State.ENABLED:
            ready = Condition("Ready", "False", over.reason, over.message)
            found: list[Condition] | None = [accepted_condition(verdict), ready]
        else:
            found = conditions(context, body, verdict, services)
        if found is not None:
            fields = {"subscriptionState": over.state.value}
            await context.statuses.write(body, found, fields)

    def remaining(self, body: Object) -> float:
        """Seconds until nothing is delivered for a subscription: by its spec, time or status.

        An end that a listener caused counts once the status has it. Otherwise no deliverer would
        report it any more, and the subscription would come back.
        """
        verdict = judge_subscription(body, removal=RemovalRule(), now=self._context.clock.time())
        if verdict.state is not State.ENABLED:
            return 0.0
        return inf if verdict.due_again is None else verdict.due_again

    def _removal(self, body: Object, service: Key) -> RemovalRule:
        parsed = self._context.namespace(service.namespace).parsed(SERVICE, service.name)
        resource = None if parsed is None else parsed.resource
        if resource is None or not resource.valid:
            return RemovalRule()
        named = Key(DESTINATION, service.namespace, destination_ref(body))
        return RemovalRule(
            action=resource.spec["subscriptionRemovalAction"],
            interval=resource.spec["subscriptionRemovalTimeIntervalSeconds"],
            failing_since=failing_since(self._context.store.get(named)),
            begun_anew=self._begun_anew(body),
        )

    def _begun_anew(self, body: Object) -> float | None:
        key, generation = key_of(body), body["metadata"]["generation"]
        before = self._begun.get(key)
        if begins_anew(body) and (before is None or before[0] != generation):
            before = self._begun[key] = (generation, self._context.clock.time())
        return None if before is None else before[1]

    def _ended(self, services: Sequence[Key]) -> list[SubscriptionEnd]:
        # An older revision may still report what was fixed meanwhile.
        return [
            ended
            for service in services
            if (state := self._context.states.get(service)) is not None
            for report in self._context.reports(service)
            if report.revision == state.rollout.revision
            for ended in report.ended
        ]
