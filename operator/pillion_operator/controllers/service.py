"""The reconcile of an IndicationService: renders and applies the objects of its deliverers."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from math import inf
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
from pillion_operator.evaluation.adopting import reaches_stores
from pillion_operator.evaluation.comparing import judged_otherwise, named_first
from pillion_operator.evaluation.dead_letters import letters_to, marked_in
from pillion_operator.evaluation.fitting import fitted
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.lastgood import filters_in, rendered_objects, was_rendered
from pillion_operator.evaluation.namespace import Namespace, draining
from pillion_operator.evaluation.partial import ChangeLog, concerned, is_of, with_part
from pillion_operator.evaluation.references import (
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
)
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.names import SERVICE_LABEL
from pillion_operator.store import Change, Key, key_of
from pillion_operator.watching import CHILDREN
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.rendered import Packer, Rendered, TooLarge

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
    #: What ``_rendered_before`` has read.
    rendered: Sequence[Object]
    #: See ``ServiceState``.
    seen: int
    valid_until: float


#: Evaluates the named subscriptions and keeps the rest of the evaluation before; None: all
#: subscriptions. Returns None if a part cannot be evaluated by itself.
_Evaluate = Callable[[Judge, Collection[str] | None], _Evaluated | None]


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
        adopts=reaches_stores(
            body, guests=map(context.store.get, context.references.guests(service)), live=live
        ),
    )
    return DesiredState(objects, trust.mark, requeue_after)


class ConfigurationReconciler:
    def __init__(self, context: Context, *, remaining: Callable[[Object], float]) -> None:
        """``remaining`` returns the seconds until nothing more is delivered for a subscription."""
        self._context = context
        self._remaining = remaining
        self._log = ChangeLog()
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
        self._log.follow(change)
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
        there = self._context.store.get(service)
        if found is None or there is None:
            # Its deletion comes next, if it was deleted while the thread evaluated it.
            return
        body, evaluation, changed = found.body, found.evaluation, found.changed
        state = self._context.states.put(body, evaluation)
        state.level, state.left_out = level, found.left_out
        state.seen, state.valid_until = found.seen, found.valid_until
        ended = self._context.clock.monotonic()
        state.rests_until = max(state.rests_until, ended + REST * (ended - began))
        self._evaluate_next(service, before, evaluation)
        if not evaluation.verdict.accepted:
            # Its deliverers keep their configuration.
            named = ((one["kind"], one["metadata"]["name"]) for one in found.rendered)
            keys = {Key(kind, service.namespace, name) for kind, name in named}
            changed |= state.rollout.recall(keys)
        try:
            # The garbage collector deletes the objects of a service that is being deleted, and its
            # namespace may refuse new ones.
            if evaluation.verdict.accepted and not being_deleted(there):
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

    def _evaluate_next(
        self, service: Key, before: ServiceEvaluation | None, after: ServiceEvaluation
    ) -> None:
        """Have the services evaluated that may be judged otherwise after this evaluation."""
        if after.lapsed:
            self._context.requeue(service, 0.0)
        if after.letters != (before.letters if before is not None else frozenset()):
            for gateway in sorted(self._context.references.gateways_of(service)):
                self._context.queue.add(gateway)

    def _changed(
        self,
        service: Key,
        before: ServiceEvaluation | None,
        after: ServiceEvaluation,
        namespace: Namespace,
    ) -> set[Key]:
        """The objects of which ``after`` says something else."""
        changed = judged_otherwise(before, after, service.namespace)
        if before is None or before.verdict != after.verdict:
            changed |= self._context.references.served_by(service)
        else:
            changed |= named_first(changed, before, after, namespace=namespace)
        changed |= _statuses(service, after.retained)
        return changed | (set() if before is None else _statuses(service, before.retained))

    def _forget(self, service: Key) -> None:
        state = self._context.states.pop(service, None)
        if all(other.namespace != service.namespace for other in self._context.states):
            self._log.forget(service.namespace)
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
    ) -> _Evaluated | None:
        """Return None if the service is gone, or comes again later."""
        context = self._context
        references = context.references
        namespace = context.namespace(service.namespace)
        part = self._part(service, before, level=level)
        if part is not None and len(part) <= MANY:
            evaluate = self._evaluation(service, body, namespace, before=before, level=level)
            found = evaluate(context.judge, part)
            if found is not None:
                return found
        users = sum(len(references.naming(one)) for one in (service, *references.guests(service)))
        if users > MANY:
            return await self._evaluate_in_thread(service, before=before, level=level)
        evaluate = self._evaluation(
            service,
            body,
            namespace,
            before=before,
            level=level,
            subscriptions=self._subscriptions_of(service),
            rendered=self._rendered_before(service)(),
        )
        return evaluate(context.judge, None)

    async def _evaluate_in_thread(
        self, service: Key, *, before: ServiceEvaluation | None, level: int
    ) -> _Evaluated | None:
        context = self._context
        if self._is_busy:
            context.requeue(service, BUSY)
            return None
        self._is_busy = True
        try:
            rendered = await asyncio.to_thread(self._rendered_before(service))
            body = context.store.get(service)
            if body is None:
                return None
            # Nothing changes in it meanwhile. A change evaluates the service again.
            namespace = context.namespace(service.namespace).copied()
            part = self._part(service, before, level=level)
            evaluate = self._evaluation(
                service,
                body,
                namespace,
                before=before,
                level=level,
                subscriptions=self._subscriptions_of(service),
                rendered=rendered,
            )
            judge = self._judge = self._judge or context.judge.another()
            with context.parsing.beside():
                return await asyncio.to_thread(
                    lambda: (part is not None and evaluate(judge, part)) or evaluate(judge, None)
                )
        finally:
            self._is_busy = False

    def _part(
        self, service: Key, before: ServiceEvaluation | None, *, level: int
    ) -> set[str] | None:
        """The subscriptions that changes since the evaluation ``before`` concern; None: evaluate
        all of them."""
        known = self._context.states.get(service)
        if known is None or before is None or before.lapsed or before.basis is None:
            return None
        if min(level, known.level) < LEVEL or self._context.clock.time() >= known.valid_until:
            return None
        changed = self._log.since(known.seen, service.namespace)
        if changed is None:
            return None
        return concerned(
            changed,
            before,
            service=service,
            namespace=self._context.namespace(service.namespace),
            references=self._context.references,
            most=len(before.subscriptions) // 2,
        )

    def _rendered_before(self, service: Key) -> Callable[[], Sequence[Object]]:
        """Return what reads the configuration in force, where this operator has none to remember:
        at the first evaluation, or the first since the service was not accepted."""
        known = self._context.states.get(service)
        if known is not None and known.evaluation.content:
            return tuple
        secrets = [one for one in self._live(service) if one["kind"] == SECRET]
        return partial(rendered_objects, secrets)

    def _evaluation(
        self,
        service: Key,
        body: Object,
        namespace: Namespace,
        *,
        before: ServiceEvaluation | None,
        level: int,
        subscriptions: Sequence[str] = (),
        rendered: Sequence[Object] = (),
    ) -> _Evaluate:
        """Return the evaluation, which reads only ``namespace`` and references. ``subscriptions``
        are all, ``rendered`` is what ``_rendered_before`` has read; a part needs neither."""
        surroundings = self._surroundings(service, body, namespace)
        replays = sorted(
            key.name
            for key in self._context.references.replays_to(service)
            if is_under_way(self._context.store.get(key))
        )
        known = self._context.states.get(service)
        surroundings = replace(
            surroundings,
            rendered=self._in_force(service, rendered),
            replays=replays,
            lingering=self._remains.of(
                service, replays=(*replays, *surroundings.carried), before=rendered
            ),
        )
        seen, began = self._log.latest(service.namespace), self._context.clock.time()

        def evaluate(judge: Judge, part: Collection[str] | None) -> _Evaluated | None:
            own = subscriptions
            if part is not None:
                own = [name for name in part if is_of(name, service, namespace)]
            bodies = namespace.bodies(SUBSCRIPTION)
            remaining = {
                name: self._remaining(bodies[name])
                for name in (*own, *surroundings.relayed)
                if name in bodies
            }
            found = evaluate_service(
                service.name,
                namespace=namespace,
                judge=judge,
                subscriptions=own,
                ended={name for name, seconds in remaining.items() if seconds <= 0},
                surroundings=surroundings,
            )
            valid_until = began + min(filter(None, remaining.values()), default=inf)
            if part is not None and before is not None and known is not None:
                joined = with_part(before, found, part, service.namespace)
                if joined is None:
                    return None
                found, valid_until = joined, min(valid_until, known.valid_until)
            evaluation = replace(found, retained=surroundings.retained)
            fit, left_out = fitted(evaluation, level=level)
            changed = self._changed(service, before, fit, namespace)
            return _Evaluated(body, fit, left_out, changed, rendered, seen, valid_until)

        return evaluate

    def _in_force(self, service: Key, rendered: Sequence[Object]) -> Mapping[Key, str]:
        known = self._context.states.get(service)
        if known is not None and known.evaluation.content:
            return known.evaluation.content
        filters = filters_in(rendered, namespace=service.namespace)
        return {**filters, **marked_in(rendered, namespace=service.namespace)}

    def _subscriptions_of(self, service: Key) -> list[str]:
        return [key.name for key in self._context.references.subscriptions_to(service)]

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
            if state.packed is None or state.packed[0] is not content:
                state.packed = content, await packed(state.packer, content.values())
            rendered = state.packed[1]
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


async def packed(packer: Packer, items: Iterable[str]) -> Rendered:
    """Raises TooLarge."""
    known = list(items)
    if sum(map(len, known)) > LARGE:
        return await asyncio.to_thread(packer.pack, known)
    return packer.pack(known)
