"""Evaluates one IndicationService: its configuration, and the verdicts on what it uses."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from pillion_operator.cluster.types import Object, being_deleted
from pillion_operator.evaluation.dead_letters import DeadLetterChoice, dead_letter_verdict
from pillion_operator.evaluation.judging import Judge, Judgement, same_places
from pillion_operator.evaluation.lastgood import generation_of, has_version, last_good_filter
from pillion_operator.evaluation.mof import MOFRefused, with_mof, with_sources
from pillion_operator.evaluation.namespace import Namespace, Parsed, parse
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    GATEWAY_REF,
    OF_SECRETS,
    REPLAY,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    is_gateway,
    url_of,
)
from pillion_operator.evaluation.relaying import relays
from pillion_operator.evaluation.rendering import (
    guest,
    relayed,
    suspended,
    without_identifiers,
)
from pillion_operator.evaluation.replaying import Carried, at_gateway, too_many
from pillion_operator.evaluation.verdict import (
    ACCEPTED,
    Verdict,
    being_removed,
    missing,
    not_accepted,
    refused,
    together,
)
from pillion_operator.store import Key
from pillion_sidecar.config.addresses import Listener
from pillion_sidecar.config.problems import INTERNAL_ERROR, Problem
from pillion_sidecar.config.schema.destination import SequenceIdentifiers

#: The first round finds everything; the bound stops an endless loop after a bug.
_MOST_ROUNDS = 4
FILTER_NOT_ACCEPTED = "FilterNotAccepted"
#: Why a destination is held: rendered suspended, so that its queue is kept.
CREDENTIALS_MISSING = "CredentialsMissing"
GATEWAY_MISSING = "GatewayMissing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What an evaluation of a part continues from: see ``evaluation.partial``."""

    service: Parsed
    #: What each object of the configuration needs of the others.
    needs: Mapping[Key, tuple[Key, ...]]
    #: How many objects need one.
    users: Mapping[Key, int]
    #: What the subscriptions need that were left out because of it.
    left_out: Mapping[Key, tuple[Key, ...]]
    #: Of destinations: see ``Judgement``.
    listeners: Mapping[str, Listener]


@dataclass(frozen=True, kw_only=True)
class ServiceEvaluation:
    verdict: Verdict
    #: Of its own subscriptions.
    subscriptions: Mapping[str, Verdict] = field(default_factory=dict)
    #: Of other services' subscriptions that are relayed, or handed over, to this one.
    relayed: Mapping[str, Verdict] = field(default_factory=dict)
    #: See ``Surroundings``.
    retained: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: Of its own replays, and of other services' replays that this gateway carries out.
    replays: Mapping[str, Verdict] = field(default_factory=dict)
    carried: Mapping[str, Verdict] = field(default_factory=dict)
    #: The replays that are left out until no older deliverer runs, and the level that they need.
    waiting: Mapping[str, int] = field(default_factory=dict)
    #: The destinations of replays, with those that only linger.
    direct: frozenset[str] = frozenset()
    #: The destinations that get dead letters.
    letters: frozenset[str] = frozenset()
    #: By the field that names them.
    gateways: Mapping[str, Verdict] = field(default_factory=dict)
    #: Of destinations that conflict with this service's settings.
    destinations: Mapping[str, Verdict] = field(default_factory=dict)
    #: The destinations rendered suspended, and why.
    held: Mapping[str, str] = field(default_factory=dict)
    #: The filters with an earlier version in force, and its generation if known.
    last_good: Mapping[str, int | None] = field(default_factory=dict)
    #: See ``Judgement``.
    unknown_classes: Mapping[str, str] = field(default_factory=dict)
    #: See ``judging.same_places``.
    same_places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The configuration: one line of JSON for each object.
    content: Mapping[Key, str] = field(default_factory=dict, repr=False)
    #: The resource's line of each object that is rendered differently.
    sources: Mapping[Key, str] = field(default_factory=dict, repr=False)
    #: A filter's earlier version is in force no more; ended subscriptions may still count on it.
    lapsed: bool = field(default=False, compare=False)
    #: None: a change of one object may concern all others.
    basis: Basis | None = field(default=None, repr=False, compare=False)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Of the objects in the configuration, by kind."""
        return Counter(map(attrgetter("kind"), self.content))

    def holds(self, key: Key, item: str) -> bool:
        """Whether the configuration has the current version of an object."""
        return self.sources.get(key, self.content.get(key)) == item


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The other inputs of a service's configuration."""

    #: The subscriptions of other services that are relayed, or handed over, to it.
    relayed: Collection[str] = ()
    #: Those of ``relayed`` that it only keeps, by the service that relays there no more.
    retained: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: Its own replays that are not finished, and those of other services that it carries out.
    replays: Collection[str] = ()
    carried: Mapping[str, Carried] = field(default_factory=dict)
    #: The destinations of dead letters that are relayed, or handed over, to it.
    letters: Collection[str] = ()
    #: Destinations that still hold what ended replays have queued.
    lingering: Collection[str] = ()
    #: Destinations being deleted that still get what sidecars have left to relay.
    draining: Collection[str] = ()
    #: By the field that names them.
    gateways: Mapping[str, Verdict] = field(default_factory=dict)
    #: What is rendered now.
    rendered: Mapping[Key, str] = field(default_factory=dict)
    #: Whether the service's only deliverer is the only one that delivers to a URL.
    sole_deliverer: Callable[[str], bool] = field(default=lambda url: False)


def evaluate_service(
    name: str,
    *,
    namespace: Namespace,
    judge: Judge,
    subscriptions: Iterable[str],
    ended: Collection[str],
    surroundings: Surroundings | None = None,
) -> ServiceEvaluation:
    """``subscriptions`` are those that name it. Those in ``ended`` get a verdict too, but are not
    in the configuration."""
    around = surroundings or Surroundings()
    service = namespace.parsed(SERVICE, name)
    if service is None or service.resource is None or service.problems:
        problems = service.problems if service is not None else ()
        verdict = refused(problems) if problems else missing(SERVICE, name)
        return _refused_whole(name, verdict, subscriptions, around.replays)
    written = service.resource.spec
    if written["mofFrom"]:
        try:
            service = with_mof(name, written, namespace=namespace)
        except MOFRefused as refusal:
            return _refused_whole(name, refusal.verdict, subscriptions, around.replays)
    body = namespace.body(SERVICE, name)
    assert body is not None
    verdict = dead_letter_verdict(body, namespace=namespace)
    if not verdict.accepted:
        # Deliverers keep their revision, and with it the destination, if it was there.
        return _refused_whole(name, verdict, subscriptions, around.replays)
    candidate = _Candidate(namespace, judge, service, around, body)
    own = {
        name: candidate.consider(name, chosen=name not in ended) for name in sorted(subscriptions)
    }
    others = {
        name: candidate.take_over(name, chosen=name not in ended) for name in sorted(around.relayed)
    }
    replays = {name: candidate.replay(name) for name in sorted(around.replays)}
    carried = {name: candidate.carry(name, around.carried[name]) for name in sorted(around.carried)}
    candidate.take_letters(around.letters)
    candidate.keep(around.lingering)
    evaluation = candidate.evaluation(own, others, replays, carried)
    if written["mofFrom"]:
        message = with_sources(evaluation.verdict.message, written)
        evaluation = replace(evaluation, verdict=replace(evaluation.verdict, message=message))
    return evaluation


def _refused_whole(
    name: str, verdict: Verdict, subscriptions: Iterable[str], replays: Iterable[str]
) -> ServiceEvaluation:
    blocked = Verdict(False, "ServiceNotAccepted", f"IndicationService {name} is not accepted.")
    return ServiceEvaluation(
        verdict=verdict,
        subscriptions={sub: blocked for sub in subscriptions},
        replays={replay: blocked for replay in replays},
    )


class _Candidate:
    def __init__(
        self,
        namespace: Namespace,
        judge: Judge,
        service: Parsed,
        around: Surroundings,
        body: Object,
    ) -> None:
        self._namespace = namespace
        self._judge = judge
        self._around = around
        assert service.resource is not None
        self._written = service
        self._service = service.resource.name
        self._chosen: dict[Key, Parsed] = {
            self._key(SERVICE, self._service): service,
            **namespace.secrets_by_key(service.secrets),
        }
        #: The filter and the destination of each subscription and replay.
        self._needs: dict[Key, tuple[Key, ...]] = {}
        #: The service of each subscription of another service.
        self._origins: dict[Key, Key] = {}
        #: The destinations that neither a subscription nor a replay here leads to.
        self._alone: set[Key] = set()
        self._left_out: dict[Key, tuple[Key, ...]] = {}
        self._held: dict[Key, str] = {}
        #: The filters with an earlier version in force.
        self._kept: dict[Key, Parsed] = {}
        #: Whether subscriptions may lead to a filter or destination.
        self._availability: dict[Key, Verdict] = {}
        self._judgement = Judgement()
        self._dead_letters = DeadLetterChoice(body, namespace=namespace, choose=self._choose)
        self._dead_letters.begin(around.rendered)

    def _key(self, kind: str, name: str) -> Key:
        return Key(kind, self._namespace.name, name)

    def consider(self, name: str, *, chosen: bool, draining: Collection[str] = ()) -> Verdict:
        """Return the verdict on a subscription; add it with all that it names if ``chosen``. It may
        name the ``draining`` destinations although they are being deleted."""
        parsed = self._namespace.parsed(SUBSCRIPTION, name)
        assert parsed is not None
        if parsed.resource is None or parsed.problems:
            return refused(parsed.problems)
        spec = parsed.resource.spec
        destination = self._key(DESTINATION, spec["destinationRef"]["name"])
        needed = (self._key(FILTER, spec["filterRef"]["name"]), destination)
        wrong = [
            self._available(target) for target in needed if not self._is_usable(target, draining)
        ]
        if wrong:
            return together(wrong)
        if chosen:
            self._add(self._key(SUBSCRIPTION, name), parsed, needed)
        elif not has_version(
            needed[0], self._around.rendered, namespace=self._namespace, judge=self._judge
        ):
            # Those that are chosen ``settle`` judges.
            return not_accepted(needed[0])
        # The subscription stays whatever the verdict: without it, its queue would be discarded.
        return self._verdict_of_gateway(destination)

    def _is_usable(self, key: Key, draining: Collection[str]) -> bool:
        verdict = self._available(key)
        drains = key.name in draining and verdict.reason == "DestinationBeingDeleted"
        return verdict.accepted or drains

    def _add(self, user: Key, parsed: Parsed, needed: tuple[Key, ...]) -> None:
        for key in needed:
            self._choose(key)
        self._needs[user] = needed
        self._chosen[user] = parsed

    def _verdict_of_gateway(self, destination: Key) -> Verdict:
        gateway = self._around.gateways.get(GATEWAY_REF, ACCEPTED)
        return gateway if self._relays(destination) else ACCEPTED

    def replay(self, name: str) -> Verdict:
        """Return the verdict on a replay; add it with all that it names."""
        return self._replay(name, self._namespace.parsed(REPLAY, name))

    def carry(self, name: str, carried: Carried) -> Verdict:
        """``replay`` for one of another service that uses this gateway."""
        wrong = too_many(name, self._service, carried)
        if wrong is not None:
            return wrong
        parsed = self._namespace.parsed(
            REPLAY,
            name,
            f"at {self._service}",
            lambda body: at_gateway(body, self._service, carried),
            versions=carried.destinations,
        )
        return self._replay(name, parsed, only_destination=not carried.destinations)

    def _replay(
        self, name: str, parsed: Parsed | None, *, only_destination: bool = False
    ) -> Verdict:
        assert parsed is not None
        if parsed.resource is None or parsed.problems:
            return refused(parsed.problems)
        spec = parsed.resource.spec
        destination = self._key(DESTINATION, spec["destinationRef"]["name"])
        needed = [destination]
        if "filterRef" in spec:
            needed.append(self._key(FILTER, spec["filterRef"]["name"]))
        wrong = [one for one in map(self._available, needed) if not one.accepted]
        if wrong:
            return together(wrong)
        if only_destination:
            self._choose(destination)
            self._alone.add(destination)
        else:
            self._add(self._key(REPLAY, name), parsed, tuple(needed))
        return self._verdict_of_gateway(destination)

    def keep(self, destinations: Iterable[str]) -> None:
        """Add destinations that still hold what ended replays have queued."""
        for name in destinations:
            key = self._key(DESTINATION, name)
            if self._available(key).accepted:
                self._choose(key)
                self._alone.add(key)

    def take_over(self, name: str, *, chosen: bool) -> Verdict:
        """``consider`` for a subscription of another service that uses this gateway."""
        verdict = self.consider(name, chosen=chosen, draining=self._around.draining)
        user = self._key(SUBSCRIPTION, name)
        if user in self._needs:
            parsed = self._chosen[user]
            assert parsed.resource is not None
            origin = self._key(SERVICE, parsed.resource.spec["serviceRef"]["name"])
            self._origins[user] = origin
            if origin not in self._chosen:
                self._chosen[origin] = parse(
                    guest(origin.name, namespace=origin.namespace, gateway=self._service)
                )
        return verdict

    def take_letters(self, destinations: Iterable[str]) -> None:
        """Add destinations for which other services' deliverers may relay dead letters, whether or
        not a subscription is relayed."""
        for name in sorted(destinations):
            key = self._key(DESTINATION, name)
            if self._is_usable(key, self._around.draining):
                self._dead_letters.keep(key)

    def _relays(self, destination: Key) -> bool:
        return relays(
            self._namespace.body(SERVICE, self._service),
            self._namespace.body(DESTINATION, destination.name),
        )

    def _available(self, key: Key) -> Verdict:
        if key not in self._availability:
            self._availability[key] = self._found(key)
        return self._availability[key]

    def _found(self, key: Key) -> Verdict:
        body = self._namespace.body(key.kind, key.name)
        if body is None:
            return missing(key.kind, key.name)
        if being_deleted(body):
            return being_removed(key)
        parsed = self._namespace.parsed(key.kind, key.name)
        if parsed is None or parsed.problems:
            return ACCEPTED if key.kind == FILTER and self._keep(key) else not_accepted(key)
        return ACCEPTED

    def _keep(self, key: Key) -> bool:
        """Keep the version of a filter that is in force, because without it its subscriptions would
        end and their queues be discarded. Return whether there is one; False at a second call."""
        body = self._namespace.body(key.kind, key.name)
        if body is None or key in self._kept:
            return False
        found = last_good_filter(body, self._around.rendered)
        if found is None:
            return False
        self._kept[key] = found
        if key in self._chosen:
            self._chosen[key] = found
        return True

    def _choose(self, key: Key) -> None:
        if key in self._chosen:
            return
        parsed = self._as_rendered(key)
        assert parsed is not None
        assert parsed.resource is not None
        self._chosen[key] = parsed
        self._chosen.update(self._namespace.secrets_by_key(parsed.secrets))
        if key.kind == DESTINATION:
            self._dead_letters.follow(key)

    def _as_rendered(self, key: Key) -> Parsed | None:
        if key in self._kept:
            return self._kept[key]
        body = self._namespace.body(key.kind, key.name)
        if key.kind != DESTINATION or body is None:
            return self._namespace.parsed(key.kind, key.name)
        if self._relays(key):
            return self._namespace.parsed(key.kind, key.name, "relayed", relayed)
        identifiers = body["spec"].get("sequenceIdentifiers", SequenceIdentifiers.AUTO)
        auto = identifiers == SequenceIdentifiers.AUTO
        if auto and not self._around.sole_deliverer(url_of(body)):
            return self._namespace.parsed(key.kind, key.name, "omitting", without_identifiers)
        return self._namespace.parsed(key.kind, key.name)

    def evaluation(
        self,
        own: Mapping[str, Verdict],
        others: Mapping[str, Verdict],
        replays: Mapping[str, Verdict],
        carried: Mapping[str, Verdict],
    ) -> ServiceEvaluation:
        """``own`` and ``others`` are the verdicts on subscriptions so far, ``replays`` and
        ``carried`` those on replays."""
        refusals = self.settle()
        refused_ones, stopped = refusals.get(SUBSCRIPTION, {}), refusals.get(REPLAY, {})
        letters = self._dead_letters
        listeners = {
            name: one
            for name, one in self._judgement.listeners.items()
            if self._key(DESTINATION, name) in self._chosen
        }
        verdict = refusals.get(SERVICE, {}).get(self._service) or letters.verdict(self._chosen)
        result = ServiceEvaluation(
            verdict=verdict,
            subscriptions={name: refused_ones.get(name, found) for name, found in own.items()},
            relayed={name: refused_ones.get(name, found) for name, found in others.items()},
            replays={name: stopped.get(name, found) for name, found in replays.items()},
            carried={name: stopped.get(name, found) for name, found in carried.items()},
            gateways=self._around.gateways,
            destinations={**letters.wrong(self._chosen), **refusals.get(DESTINATION, {})},
        )
        if not verdict.accepted:
            return result
        return replace(
            result,
            held={key.name: reason for key, reason in self._held.items() if key in self._chosen},
            direct=frozenset(key.name for key in self._direct()),
            letters=frozenset(
                key.name for key in letters.needed(self._chosen) if key in self._chosen
            ),
            last_good={
                key.name: generation_of(parsed)
                for key, parsed in self._kept.items()
                if key in self._chosen
            },
            unknown_classes=self.unknown_classes(),
            same_places=same_places(listeners),
            content={key: self._chosen[key].item for key in sorted(self._chosen)},
            sources=self._sources(),
            lapsed=not self._kept.keys() <= self._chosen.keys(),
            basis=self._basis(refusals, listeners),
        )

    def _basis(
        self, refusals: Mapping[str, Mapping[str, Verdict]], listeners: Mapping[str, Listener]
    ) -> Basis | None:
        """None: more than subscriptions decide, or an internal error is to be tried again."""
        told = {one.reason for verdicts in refusals.values() for one in verdicts.values()}
        default = self._dead_letters.needed(())
        if (
            # Of a gateway it counts who else delivers to a URL.
            is_gateway(self._namespace.body(SERVICE, self._service))
            or any((self._around.replays, self._around.lingering))
            or self._dead_letters.among_destinations
            or INTERNAL_ERROR in told.union(self._held.values())
            # A part may have none of its subscriptions, which say so.
            or GATEWAY_MISSING in map(self._held.get, default)
        ):
            return None
        needs = {**self._needs, self._key(SERVICE, self._service): tuple(default)}
        for key, parsed in self._chosen.items():
            if secrets := self._namespace.secrets_by_key(sorted(parsed.secrets)):
                needs[key] = (*needs.get(key, ()), *(one for one in secrets if one in self._chosen))
        return Basis(
            service=self._written,
            needs=needs,
            users=Counter(key for keys in needs.values() for key in keys),
            left_out=self._left_out,
            listeners=listeners,
        )

    def settle(self) -> dict[str, dict[str, Verdict]]:
        """Remove what a deliverer would refuse; return the refusals by kind and name."""
        refusals: dict[str, dict[str, Verdict]] = {}
        for _ in range(_MOST_ROUNDS):
            self._dead_letters.leave_out_unusable(self._chosen)
            chosen = self._chosen.values()
            self._judgement = self._judge.judge(
                [*(one.resource for one in chosen), *(one.secret for one in chosen)],
                service=self._service,
            )
            problems = self._judgement.problems
            if not problems:
                break
            found: dict[Key, list[Problem]] = {}
            for problem in problems:
                kind, _, name = problem.resource.partition("/")
                found.setdefault(self._key(kind, name), []).append(problem)
            users_of = self._users_of(found)
            for key, told in found.items():
                refusals.setdefault(key.kind, {})[key.name] = refused(told)
                if key.kind == FILTER and self._keep(key):
                    continue
                users = [user for user in users_of[key] if user in self._needs]
                for user in users:
                    refusals.setdefault(user.kind, {})[user.name] = not_accepted(key)
                if not self._hold(key, told):
                    self._take_out(key, users)
        self._drop_unneeded()
        return refusals

    def _users_of(self, keys: Collection[Key]) -> dict[Key, list[Key]]:
        """The subscriptions and replays that need each of these."""
        users: dict[Key, list[Key]] = {key: [] for key in keys}
        for user, needed in self._needs.items():
            for key in needed:
                if key in users:
                    users[key].append(user)
        return users

    def _take_out(self, key: Key, users: Iterable[Key]) -> None:
        """Remove an object, and the subscriptions and replays that use it."""
        for one in (key, *users):
            if one in self._needs:
                self._left_out[one] = self._needs.pop(one)
            self._chosen.pop(one, None)
        self._alone.discard(key)

    def _hold(self, key: Key, problems: Iterable[Problem]) -> bool:
        """Suspend a destination with a problem of a Secret, of the operator itself or of a missing
        gatewayRef; return False for any other problem.

        Without the destination its queue would be discarded, and Secrets and gatewayRefs are
        missing for a moment when they are replaced.
        """
        if key in self._needs:
            only = all(problem.reason == GATEWAY_MISSING for problem in problems)
            destination = next(one for one in self._needs[key] if one.kind == DESTINATION)
            return only and self._suspend(destination, GATEWAY_MISSING)
        if key.kind != DESTINATION or key in self._held:
            return False
        if all(problem.field.startswith(OF_SECRETS) for problem in problems):
            return self._suspend(key, CREDENTIALS_MISSING)
        only = all(problem.reason == INTERNAL_ERROR for problem in problems)
        return only and self._suspend(key, INTERNAL_ERROR)

    def _suspend(self, key: Key, reason: str) -> bool:
        parsed = self._namespace.parsed(key.kind, key.name, "suspended", suspended)
        if parsed is None:
            return False
        self._held.setdefault(key, reason)
        self._chosen[key] = parsed
        return True

    def _direct(self) -> Iterator[Key]:
        yield from self._alone
        for user, keys in self._needs.items():
            if user.kind == REPLAY:
                yield from (key for key in keys if key.kind == DESTINATION)

    def _drop_unneeded(self) -> None:
        needed = {self._key(SERVICE, self._service), *self._alone}
        for user, keys in self._needs.items():
            needed.update(keys, (user,))
            if user in self._origins:
                needed.add(self._origins[user])
        needed |= self._dead_letters.needed(needed)
        for key in [key for key in self._chosen if key in needed]:
            needed.update(self._key(SECRET, name) for name in self._chosen[key].secrets)
        self._chosen = {key: parsed for key, parsed in self._chosen.items() if key in needed}

    def unknown_classes(self) -> dict[str, str]:
        """Of the filters that this service's own deliverers apply: sidecars have filtered what is
        relayed."""
        own = {
            key.name
            for user, needs in self._needs.items()
            for key in needs
            if user not in self._origins and key.kind == FILTER
        }
        return {name: why for name, why in self._judgement.unknown_classes.items() if name in own}

    def _sources(self) -> dict[Key, str]:
        sources = {}
        for key, chosen in self._chosen.items():
            found = self._namespace.parsed(key.kind, key.name) if key.kind == DESTINATION else None
            if found is not None and found.item != chosen.item:
                sources[key] = found.item
        return sources
