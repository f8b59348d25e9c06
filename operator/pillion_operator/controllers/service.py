"""The reconcile of an IndicationService: renders and applies the objects of its deliverers."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

from pillion_operator.certificates.gateways import ServingCertificates, Trust, standing
from pillion_operator.cluster.api import FAILURES, ApiError
from pillion_operator.cluster.applier import Applied
from pillion_operator.cluster.scaling import scaler
from pillion_operator.cluster.types import STATEFUL_SET, Object, being_deleted, labels_of
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.readiness import level_known
from pillion_operator.controllers.relay_retention import Lingering
from pillion_operator.controllers.replay_remains import Remains
from pillion_operator.controllers.states import ServiceState, status_of
from pillion_operator.desired.configuration import operator_token
from pillion_operator.desired.objects import desired_objects
from pillion_operator.evaluation.dead_letters import letters_to, marked_in
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.lastgood import filters_in, rendered_objects, was_rendered
from pillion_operator.evaluation.namespace import Namespace, draining
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    REPLAY,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    is_gateway,
)
from pillion_operator.evaluation.relaying import delivered_alone, gateways_named, relayed_to
from pillion_operator.evaluation.replaying import carried_at, is_under_way
from pillion_operator.evaluation.service import (
    FILTER_NOT_ACCEPTED,
    ServiceEvaluation,
    Surroundings,
    evaluate_service,
    fitted,
)
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.names import SERVICE_LABEL
from pillion_operator.store import Change, Key, key_of
from pillion_operator.watching import CHILDREN
from pillion_sidecar.config.rendered import Rendered, TooLarge, pack, render_items

#: Minimum seconds between two revisions of a service: frequent changes share a few revisions.
PAUSE = 0.25
#: A service is not evaluated again for this many times the duration of its evaluation, so that a
#: large one leaves time for the others.
REST = 3.0
#: Seconds to the next attempt after a refused object.
REFUSED_AGAIN = 30.0
#: Seconds of failing writes before statuses report it. A forbidden write (quota, policy, missing
#: right) is reported at once.
FAILING_FOR = 10.0
FORBIDDEN = 403
#: Characters of configuration above which it is packed in a thread.
LARGE = 200_000
#: Subscriptions and replays, also of guests, above which a service is evaluated in a thread. On the
#: event loop the first evaluation of so many takes some 50 ms, for which nothing else would run.
MANY = 200
#: Seconds to the next attempt while the thread evaluates another service.
BUSY = 0.05


class DesiredState(NamedTuple):
    objects: tuple[Object, ...]
    #: A digest of the certificates, authorities and keys in them.
    digest: str
    #: Seconds to the next check without a change; None: none.
    requeue_after: float | None


class _Evaluated(NamedTuple):
    body: Object
    #: Fit for the deliverers' schema level.
    evaluation: ServiceEvaluation
    #: The fields left out for that.
    left_out: tuple[str, ...]
    #: The objects of which it says something else than the evaluation before.
    changed: set[Key]


def desired_state(
    context: Context,
    certificates: ServingCertificates,
    body: Object,
    *,
    rendered: Rendered,
    level: int,
    live: Sequence[Object],
) -> DesiredState:
    """``live`` are the existing objects of the service ``body``, and ``level`` is the schema level
    of ``rendered``."""
    service = key_of(body)
    # What is unknown right now stays as it is: a new leader may not have an answer yet.
    current = standing(body, live)
    trust = Trust(gateway_ca=context.authority.bundle() or current.gateway_ca)
    requeue_after = None
    if is_gateway(body):
        serving = certificates.of(service, body, current.serving)
        keys = context.issuer.token_keys(service.namespace) or current.token_keys
        trust = replace(trust, token_keys=keys, serving=serving.pair)
        requeue_after = serving.again
    else:
        certificates.forget(service)
    objects = desired_objects(
        body,
        rendered,
        token=operator_token(context.token_key, service.namespace, service.name),
        defaults=context.settings.deliverer,
        trust=trust,
        level=level,
        scaled=any(scaler(one) for one in live if one["kind"] == STATEFUL_SET.kind),
    )
    return DesiredState(objects, trust.mark, requeue_after)


class ConfigurationReconciler:
    def __init__(self, context: Context, *, ended: Callable[[Object], bool]) -> None:
        """``ended`` returns whether nothing more is delivered for a subscription."""
        self._context = context
        self._ended = ended
        #: The thread's; None until the first large service.
        self._judge: Judge | None = None
        #: Whether the thread evaluates one: only one at a time, to leave CPU for the event loop.
        self._is_busy = False
        self._certificates = ServingCertificates(
            authority=context.authority, clock=context.clock, recorder=context.recorder
        )
        self._lingering = Lingering(context)
        self._remains = Remains(context)
        #: Missing services, as their users have been told.
        self._absent: set[Key] = set()

    def follow(self, change: Change) -> None:
        self._absent.discard(change.key)
        service = self._certificates.follow(change)
        if service is not None:
            self._context.queue.add(service)

    async def reconcile(self, service: Key) -> None:
        """Apply the objects of a service, and enqueue the statuses that depend on it."""
        body = self._context.store.get(service)
        if body is None:
            # A new user sees it for itself; notifying all others each time would be quadratic.
            if service not in self._absent or not self._context.references.naming(service):
                self._forget(service)
            return
        known = self._context.states.get(service)
        began = self._context.clock.monotonic()
        pause = 0.0 if known is None else known.rests_until - began
        if pause > 0:
            self._context.requeue(service, pause)
            return
        before = known.evaluation if known is not None else None
        level = level_known(self._context, service)
        found = await self._evaluate(service, body, before=before, level=level)
        if found is None:
            return
        body, evaluation, changed = found.body, found.evaluation, found.changed
        state = self._context.states.put(body, evaluation)
        state.level, state.left_out = level, found.left_out
        ended = self._context.clock.monotonic()
        state.rests_until = max(state.rests_until, ended + REST * (ended - began))
        if evaluation.letters != (before.letters if before is not None else frozenset()):
            for gateway in sorted(self._context.references.gateways_of(service)):
                self._context.queue.add(gateway)
        try:
            # The garbage collector deletes the objects of a service that is being deleted, and its
            # namespace may refuse new ones.
            if evaluation.verdict.accepted and not being_deleted(body):
                changed |= await self._roll_out(service, body, state)
        except FAILURES as error:
            changed |= self._failed(state, error)
            raise
        finally:
            # Also after a failure, because the next evaluation shows no change. Without the service
            # itself, which is in its own configuration (an endless loop), and without the others in
            # a gateway's.
            dependents = changed | draining(self._context.store, service.namespace)
            for key in sorted(key for key in dependents if key.kind != SERVICE):
                self._context.queue.add(key)
            self._context.queue.add(status_of(service))

    def _changed(
        self, service: Key, before: ServiceEvaluation | None, after: ServiceEvaluation
    ) -> set[Key]:
        """The objects of which ``after`` says something else."""
        changed = judged_otherwise(before, after, service.namespace)
        if before is None or before.verdict != after.verdict:
            changed |= self._context.references.served_by(service)
        changed |= _statuses(service, after.retained)
        return changed | (set() if before is None else _statuses(service, before.retained))

    def _forget(self, service: Key) -> None:
        state = self._context.states.pop(service, None)
        self._context.deliverers.service_gone(service.namespace, service.name)
        self._context.applier.forget(service.namespace, service.name)
        self._lingering.forget(service)
        self._remains.forget(service)
        self._certificates.forget(service)
        served = self._context.references.served_by(service)
        rendered = set[Key]()
        if state is not None:
            retained = state.evaluation.retained
            rendered = _statuses(service, retained) | state.rollout.content.keys()
        for key in sorted(served | rendered | draining(self._context.store, service.namespace)):
            self._context.queue.add(key)
        (self._absent.add if served else self._absent.discard)(service)

    async def _evaluate(
        self, service: Key, body: Object, *, before: ServiceEvaluation | None, level: int
    ) -> "_Evaluated | None":
        """Return None if the service is gone, or comes again later."""
        context = self._context
        references = context.references
        users = sum(len(references.naming(one)) for one in (service, *references.guests(service)))
        if users <= MANY:
            namespace = context.namespace(service.namespace)
            rendered = self._rendered_before(service)()
            evaluate = self._evaluation(service, body, namespace, rendered=rendered)
            return self._fitted(body, evaluate(context.judge), before=before, level=level)
        if self._is_busy:
            context.requeue(service, BUSY)
            return None
        self._is_busy = True
        try:
            rendered = await asyncio.to_thread(self._rendered_before(service))
            found = context.store.get(service)
            if found is None:
                return None
            # Nothing changes in it meanwhile. A change evaluates the service again.
            namespace = context.namespace(service.namespace).copied()
            evaluate = self._evaluation(service, found, namespace, rendered=rendered)
            judge = self._judge = self._judge or context.judge.another()
            with context.parsing.beside():
                return await asyncio.to_thread(
                    lambda: self._fitted(found, evaluate(judge), before=before, level=level)
                )
        finally:
            self._is_busy = False

    def _fitted(
        self,
        body: Object,
        evaluation: ServiceEvaluation,
        *,
        before: ServiceEvaluation | None,
        level: int,
    ) -> "_Evaluated":
        fit, left_out = fitted(evaluation, level=level)
        return _Evaluated(body, fit, left_out, self._changed(key_of(body), before, fit))

    def _rendered_before(self, service: Key) -> Callable[[], Sequence[Object]]:
        """Return what reads the configuration in force, where this operator has none to remember:
        at the first evaluation, or the first since the service was not accepted."""
        known = self._context.states.get(service)
        if known is not None and known.evaluation.content:
            return tuple
        secrets = [one for one in self._live(service) if one["kind"] == SECRET]
        return partial(rendered_objects, secrets)

    def _evaluation(
        self, service: Key, body: Object, namespace: Namespace, *, rendered: Sequence[Object]
    ) -> Callable[[Judge], ServiceEvaluation]:
        """Return the evaluation, which reads only ``namespace`` and references; ``rendered`` is
        what ``_rendered_before`` has read."""
        subscriptions = [key.name for key in self._context.references.subscriptions_to(service)]
        surroundings = self._surroundings(service, body, namespace)
        replays = sorted(
            key.name
            for key in self._context.references.replays_to(service)
            if is_under_way(self._context.store.get(key))
        )
        known = self._context.states.get(service)
        if known is not None and known.evaluation.content:
            content = known.evaluation.content
        else:
            filters = filters_in(rendered, namespace=service.namespace)
            content = {**filters, **marked_in(rendered, namespace=service.namespace)}
        surroundings = replace(
            surroundings,
            rendered=content,
            replays=replays,
            lingering=self._remains.of(
                service, replays=(*replays, *surroundings.carried), before=rendered
            ),
        )

        def evaluate(judge: Judge) -> ServiceEvaluation:
            bodies = namespace.bodies(SUBSCRIPTION)
            evaluation = evaluate_service(
                service.name,
                namespace=namespace,
                judge=judge,
                subscriptions=subscriptions,
                ended={
                    name
                    for name in (*subscriptions, *surroundings.relayed)
                    if name in bodies and self._ended(bodies[name])
                },
                surroundings=surroundings,
            )
            return replace(evaluation, retained=surroundings.retained)

        return evaluate

    def _surroundings(self, service: Key, body: Object, namespace: Namespace) -> Surroundings:
        if not is_gateway(body):
            return Surroundings(gateways=gateways_named(body, namespace=namespace))
        relayed = relayed_to(service, namespace=namespace, references=self._context.references)
        by_service = self._lingering.of(service, relayed=relayed)
        retained = set[str]().union(*by_service.values())
        drained_last = self._lingering.draining(service)
        requeue_after = self._lingering.again(service, kept=bool(retained or drained_last))
        if requeue_after is not None:
            self._context.requeue(service, requeue_after)
        return Surroundings(
            relayed=relayed | retained,
            carried=carried_at(service, namespace=namespace, references=self._context.references),
            letters=self._letters(service, namespace),
            retained=by_service,
            draining=drained_last,
            # Once for each URL: many destinations may share one.
            sole_deliverer=cache(
                partial(
                    delivered_alone,
                    service.name,
                    namespace=namespace,
                    references=self._context.references,
                )
            ),
        )

    def _letters(self, gateway: Key, namespace: Namespace) -> set[str]:
        references, states = self._context.references, self._context.states
        rendered = {
            guest: states[guest].evaluation.letters
            for guest in references.guests(gateway)
            if guest in states
        }
        return letters_to(gateway, namespace=namespace, references=references, rendered=rendered)

    async def _roll_out(self, service: Key, body: Object, state: ServiceState) -> set[Key]:
        """Write the configuration; return the objects of which it now says something else."""
        content = state.evaluation.content
        live = self._live(service)
        lost = earlier_filter_lost(body, state, live)
        if lost is not None:
            state.unwritten = lost
            return content.keys() | state.rollout.content.keys()
        try:
            rendered = await packed(content.values())
        except TooLarge as error:
            # What is in force stays in force.
            state.unwritten = Verdict(False, "ConfigurationTooLarge", f"{error}.")
            return content.keys() | state.rollout.content.keys()
        desired = desired_state(
            self._context, self._certificates, body, rendered=rendered, level=state.level, live=live
        )
        applied = await self._context.applier.sync(body, desired=desired.objects, live=live)
        state.rival = applied.rival
        for pause in (applied.retry_after, applied.rival_for, desired.requeue_after):
            if pause is not None:
                self._context.requeue(service, pause)
        if applied.refused:
            # The obstacle may be invisible, such as an unlabelled Secret of that name.
            self._context.requeue(service, REFUSED_AGAIN)
            message = " ".join(str(refused) for refused in applied.refused)
            state.unwritten = Verdict(False, type(applied.refused[0]).__name__, message)
            return content.keys() | state.rollout.content.keys()
        return self._record_rollout(service, state, rendered, desired, applied)

    def _record_rollout(
        self,
        service: Key,
        state: ServiceState,
        rendered: Rendered,
        desired: DesiredState,
        applied: Applied,
    ) -> set[Key]:
        was_unwritten = state.unwritten is not None
        state.unwritten, state.failing_since, state.written = None, None, True
        first = state.rollout.revision is None
        changed = state.rollout.advance(rendered.revision, state.evaluation.content)
        pending = (state.pending | changed) & state.rollout.content.keys()
        state.pending = {key for key in pending if key.kind != SERVICE}
        if changed:
            self._context.deliverers.rendered(service.namespace, service.name, rendered.revision)
        annotation = None
        # An earlier leader's rollout is not reported again. This leader's may have been written by
        # an attempt that failed later.
        if changed and (applied.written or not first):
            state.rolled_out_at = self._context.clock.monotonic()
            state.rests_until = max(state.rests_until, state.rolled_out_at + PAUSE)
            annotation = rendered.revision
        elif not first and desired.digest != state.digest:
            # New authorities, keys or a certificate at the same revision: the kubelet reacts only
            # to another annotation.
            annotation = f"{rendered.revision}.{desired.digest}"
        if annotation is not None:
            # The pods older than the revision: later ones start with it.
            pods = [key_of(pod) for pod in self._context.pods(service)]
            self._context.refresher.refresh(pods, annotation)
        state.digest = desired.digest
        if changed:
            # A deliverer may report the revision before its write is known here; what was judged in
            # between gets no other notification.
            changed |= state.pending
        return changed | state.evaluation.content.keys() if was_unwritten else changed

    def _failed(self, state: ServiceState, error: Exception) -> set[Key]:
        """Record a failed write; return the objects whose statuses report it."""
        now = self._context.clock.monotonic()
        if state.failing_since is None:
            state.failing_since = now
        forbidden = isinstance(error, ApiError) and error.status == FORBIDDEN
        if not forbidden and now - state.failing_since < FAILING_FOR:
            return set()
        verdict = not_written(error)
        if state.unwritten == verdict:
            return set()
        state.unwritten = verdict
        return state.evaluation.content.keys() | state.rollout.content.keys()

    def _live(self, service: Key) -> list[Object]:
        return [
            body
            for kind in CHILDREN
            for body in self._context.store.all(kind, service.namespace).values()
            if labels_of(body).get(SERVICE_LABEL) == service.name
        ]


def _statuses(gateway: Key, services: Iterable[str]) -> set[Key]:
    return {status_of(Key(SERVICE, gateway.namespace, name)) for name in services}


def earlier_filter_lost(
    body: Object, state: ServiceState, live: Iterable[Object]
) -> Verdict | None:
    """Why the configuration must not be written: the accepted version of a filter, which deliverers
    still use, was only in a Secret that is lost. Without it its queues would be discarded."""
    if state.rollout.revision is not None or not was_rendered(body):
        return None
    verdicts = chain(state.evaluation.subscriptions.values(), state.evaluation.relayed.values())
    wrong = [one.message for one in verdicts if one.reason == FILTER_NOT_ACCEPTED]
    if not wrong or rendered_objects(one for one in live if one["kind"] == SECRET):
        return None
    return Verdict(
        False,
        "EarlierGenerationLost",
        f"{wrong[0]} Its accepted version was in the Secret of the configuration, which was "
        "deleted. Deliverers continue with it; new pods have no configuration. Correct the filter, "
        "or delete the subscriptions that name it.",
    )


def judged_otherwise(
    before: ServiceEvaluation | None, after: ServiceEvaluation, namespace: str
) -> set[Key]:
    return {
        Key(kind, namespace, name)
        for kind, old, new in (
            (SUBSCRIPTION, before.subscriptions if before else {}, after.subscriptions),
            (SUBSCRIPTION, before.relayed if before else {}, after.relayed),
            (REPLAY, before.replays if before else {}, after.replays),
            (REPLAY, before.carried if before else {}, after.carried),
            (REPLAY, before.waiting if before else {}, after.waiting),
            (DESTINATION, before.destinations if before else {}, after.destinations),
            (DESTINATION, before.held if before else {}, after.held),
            (FILTER, before.last_good if before else {}, after.last_good),
            (FILTER, before.unknown_classes if before else {}, after.unknown_classes),
            (DESTINATION, before.same_places if before else {}, after.same_places),
        )
        for name in old.keys() | new.keys()
        if old.get(name) != new.get(name)
    }


def not_written(error: Exception) -> Verdict:
    if not isinstance(error, ApiError):
        why = "the API server does not answer. The operator tries again"
    elif error.status == FORBIDDEN:
        why = f"the API server forbids it: {error.message}. Correct the role or the policy"
    else:
        # Its text may quote a secret value.
        answer = f"{error.status} {error.reason}".rstrip()
        why = f"the API server answers {answer}. The operator tries again"
    return Verdict(False, "NotWritten", f"The configuration cannot be written: {why}.")


async def packed(items: Iterable[str]) -> Rendered:
    """Raises TooLarge."""
    text = render_items(list(items))
    if len(text) > LARGE:
        return await asyncio.to_thread(pack, text)
    return pack(text)
