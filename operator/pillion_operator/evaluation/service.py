"""What one IndicationService serves, and the configuration that its deliverers get."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Namespace, being_deleted
from pillion_operator.evaluation.parsing import Parsed, parse
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    secrets_of,
)
from pillion_operator.evaluation.verdict import ACCEPTED, Verdict, refused
from pillion_operator.store import Key
from pillion_sidecar.config.problems import Problem

#: Rounds in which what the deliverer would refuse is taken out. The first finds everything; the
#: second finds nothing, or the bug that this bound keeps from spinning.
_MOST_ROUNDS = 4
#: The fields of a destination that name Secrets.
_OF_SECRETS = ("spec.tls.", "spec.credentials.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEvaluation:
    """One service with everything that it delivers for."""

    verdict: Verdict
    #: The subscriptions that name the service.
    subscriptions: Mapping[str, Verdict] = field(default_factory=dict)
    #: Destinations that this service's settings make impossible.
    destinations: Mapping[str, Verdict] = field(default_factory=dict)
    #: What goes into the configuration, each as one line of JSON; empty where there is none.
    content: Mapping[Key, str] = field(default_factory=dict, repr=False)

    def count(self, kind: str) -> int:
        """How many objects of a kind are in the configuration."""
        return sum(key.kind == kind for key in self.content)


def object_problems(
    kind: str, name: str, *, namespace: Namespace, judge: Judge
) -> tuple[Problem, ...]:
    """What is wrong with a destination, filter or service, whoever uses it."""
    parsed = namespace.parsed(kind, name)
    if parsed is None:
        return ()
    if parsed.resource is None or parsed.problems:
        return parsed.problems
    secrets = {
        secret: found
        for secret, (found, _) in namespace.secrets(secrets_of(parsed.resource.spec)).items()
    }
    return judge.problems([parsed.resource], secrets=secrets)


def evaluate_service(
    name: str,
    *,
    namespace: Namespace,
    judge: Judge,
    subscriptions: Iterable[str],
    ended: Collection[str],
) -> ServiceEvaluation:
    """Work out the configuration of a service.

    ``subscriptions`` names those that refer to it. Those in ``ended`` are judged like the others,
    and left out.
    """
    service = namespace.parsed(SERVICE, name)
    if service is None or service.resource is None or service.problems:
        problems = service.problems if service is not None else ()
        verdict = refused(problems) if problems else _missing(SERVICE, name)
        blocked = Verdict(False, "ServiceNotAccepted", f"IndicationService {name} is not accepted.")
        return ServiceEvaluation(
            verdict=verdict, subscriptions={sub: blocked for sub in subscriptions}
        )
    candidate = _Candidate(namespace, judge, service)
    verdicts = {
        name: candidate.consider(name, chosen=name not in ended) for name in sorted(subscriptions)
    }
    refusals = candidate.settle()
    verdicts.update(refusals.get(SUBSCRIPTION, {}))
    verdict = refusals.get(SERVICE, {}).get(name, ACCEPTED)
    return ServiceEvaluation(
        verdict=verdict,
        subscriptions=verdicts,
        destinations=refusals.get(DESTINATION, {}),
        content=candidate.content() if verdict.accepted else {},
    )


def _missing(kind: str, name: str) -> Verdict:
    word = {SERVICE: "Service", FILTER: "Filter", DESTINATION: "Destination"}[kind]
    return Verdict(
        False, f"{word}NotFound", f"There is no {kind} {name} in this namespace. Make it."
    )


class _Candidate:
    """A configuration in the making."""

    def __init__(self, namespace: Namespace, judge: Judge, service: Parsed) -> None:
        self._namespace = namespace
        self._judge = judge
        assert service.resource is not None
        self._service = service.resource.name
        self._chosen: dict[Key, Parsed] = {self._key(SERVICE, self._service): service}
        #: Of each subscription: its filter and its destination.
        self._needs: dict[str, tuple[Key, Key]] = {}
        #: The destinations that wait for a Secret.
        self._held: set[Key] = set()
        #: Of each filter and destination: whether subscriptions may lead to it.
        self._availability: dict[Key, Verdict] = {}

    def _key(self, kind: str, name: str) -> Key:
        return Key(kind, self._namespace.name, name)

    def consider(self, name: str, *, chosen: bool) -> Verdict:
        """Judge a subscription, and take it in with what it needs if it is ``chosen``."""
        parsed = self._namespace.parsed(SUBSCRIPTION, name)
        assert parsed is not None
        if parsed.resource is None or parsed.problems:
            return refused(parsed.problems)
        spec = parsed.resource.spec
        needed = []
        for kind, reference in ((FILTER, "filterRef"), (DESTINATION, "destinationRef")):
            target = self._key(kind, spec[reference]["name"])
            verdict = self._available(target)
            if not verdict.accepted:
                return verdict
            needed.append(target)
        if not chosen:
            return ACCEPTED
        for key in needed:
            self._choose(key)
        self._needs[name] = (needed[0], needed[1])
        self._chosen[self._key(SUBSCRIPTION, name)] = parsed
        return ACCEPTED

    def _available(self, key: Key) -> Verdict:
        # Many subscriptions share a few filters and destinations.
        known = self._availability.get(key)
        if known is None:
            known = self._availability[key] = self._found(key.kind, key.name)
        return known

    def _found(self, kind: str, name: str) -> Verdict:
        body = self._namespace.body(kind, name)
        if body is None:
            return _missing(kind, name)
        if being_deleted(body):
            message = f"{kind} {name} is being deleted. Name another, or make it anew."
            return Verdict(False, f"{_word(kind)}BeingDeleted", message)
        parsed = self._namespace.parsed(kind, name)
        if parsed is None or parsed.problems:
            return _not_accepted(kind, name)
        return ACCEPTED

    def _choose(self, key: Key) -> None:
        if key in self._chosen:
            return
        parsed = self._namespace.parsed(key.kind, key.name)
        assert parsed is not None
        assert parsed.resource is not None
        self._chosen[key] = parsed
        if key.kind == DESTINATION:
            named = secrets_of(parsed.resource.spec)
            for name, (_, secret) in self._namespace.secrets(named).items():
                self._chosen[self._key(SECRET, name)] = secret

    def settle(self) -> dict[str, dict[str, Verdict]]:
        """Take out what a deliverer would refuse, and say what that was, by kind and name."""
        refusals: dict[str, dict[str, Verdict]] = {}
        for _ in range(_MOST_ROUNDS):
            problems = self._problems()
            if not problems:
                break
            found: dict[Key, list[Problem]] = {}
            for problem in problems:
                kind, _, name = problem.resource.partition("/")
                found.setdefault(self._key(kind, name), []).append(problem)
            for key, told in found.items():
                refusals.setdefault(key.kind, {})[key.name] = refused(told)
                if not self._hold(key, told, refusals):
                    self._take_out(key, refusals)
        self._drop_unneeded()
        return refusals

    def _problems(self) -> tuple[Problem, ...]:
        return self._judge.problems(
            [parsed.resource for parsed in self._chosen.values() if parsed.resource is not None],
            secrets={
                key.name: parsed.secret
                for key, parsed in self._chosen.items()
                if parsed.secret is not None
            },
            service=self._service,
        )

    def _hold(
        self, key: Key, problems: Iterable[Problem], refusals: dict[str, dict[str, Verdict]]
    ) -> bool:
        """Keep a destination of which only a Secret is wrong, suspended; whether that will do.

        Were it left out, its queue would be discarded, and a Secret that is replaced is missing
        for a moment.
        """
        body = self._namespace.body(key.kind, key.name)
        if key.kind != DESTINATION or body is None or key in self._held:
            return False
        if not all(problem.field.startswith(_OF_SECRETS) for problem in problems):
            return False
        self._held.add(key)
        self._chosen[key] = parse(suspended(body))
        for subscription, needed in self._needs.items():
            if key in needed:
                verdict = _not_accepted(key.kind, key.name)
                refusals.setdefault(SUBSCRIPTION, {})[subscription] = verdict
        return True

    def _take_out(self, key: Key, refusals: dict[str, dict[str, Verdict]]) -> None:
        self._chosen.pop(key, None)
        self._needs.pop(key.name, None) if key.kind == SUBSCRIPTION else None
        for subscription, needed in list(self._needs.items()):
            if key in needed:
                del self._needs[subscription]
                self._chosen.pop(self._key(SUBSCRIPTION, subscription), None)
                verdict = _not_accepted(key.kind, key.name)
                refusals.setdefault(SUBSCRIPTION, {})[subscription] = verdict

    def _drop_unneeded(self) -> None:
        needed = {self._key(SERVICE, self._service)}
        for name, keys in self._needs.items():
            needed.update(keys, (self._key(SUBSCRIPTION, name),))
        for key in [key for key in self._chosen if key.kind == DESTINATION and key in needed]:
            resource = self._chosen[key].resource
            assert resource is not None
            needed.update(self._key(SECRET, name) for name in secrets_of(resource.spec))
        self._chosen = {key: parsed for key, parsed in self._chosen.items() if key in needed}

    def content(self) -> dict[Key, str]:
        """What is left, as it is rendered."""
        return {key: self._chosen[key].item for key in sorted(self._chosen)}


def suspended(destination: Object) -> Object:
    """The destination as it is rendered while a Secret of it cannot be used: nothing is sent."""
    spec = {
        name: value
        for name, value in destination["spec"].items()
        if name not in ("tls", "credentials")
    }
    return {**destination, "spec": {**spec, "suspended": True}}


def _word(kind: str) -> str:
    return "Filter" if kind == FILTER else "Destination"


def _not_accepted(kind: str, name: str) -> Verdict:
    message = f"{kind} {name} is not accepted; its own conditions say why."
    return Verdict(False, f"{_word(kind)}NotAccepted", message)
