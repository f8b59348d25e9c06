"""Validates resources together with the deliverer's own loader.

The operator thus accepts exactly what a deliverer can load.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pillion_cim.schema import Schema
from pillion_operator.evaluation.dead_letters import resolvable
from pillion_operator.evaluation.namespace import Namespace, defect_of
from pillion_operator.evaluation.references import DESTINATION, SERVICE
from pillion_sidecar.config.addresses import (
    AddressPolicy,
    Listener,
    listener_of,
    pairs_at_one_port_and_path,
)
from pillion_sidecar.config.dead_letters import FIELD
from pillion_sidecar.config.parsing import Resource, Resources, Secret
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.queries import CheckQuery, FilterProblem, Queries, query_checker
from pillion_sidecar.config.resolving import resolve
from pillion_sidecar.config.resources import Configuration

#: Maximum cached queries.
MOST_QUERIES = 20_000


def remembering(check: CheckQuery) -> CheckQuery:
    """Cache ``check``, dropping the least recently used query."""
    known: dict[bytes, FilterProblem | None] = {}

    def remembered(query: str, language: str) -> FilterProblem | None:
        # A digest: the texts of deleted queries would use much memory.
        asked = hashlib.sha256(f"{language}\n{query}".encode(errors="replace")).digest()
        outcome = known.pop(asked) if asked in known else check(query, language)
        known[asked] = outcome
        if len(known) > MOST_QUERIES:
            del known[next(iter(known))]
        return outcome

    return remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    problems: tuple[Problem, ...] = ()
    #: By filter: the unknown class, and the remedy.
    unknown_classes: Mapping[str, str] = field(default_factory=dict)
    #: By destination, unless it cannot share a listener unknowingly.
    listeners: Mapping[str, Listener] = field(default_factory=dict)


class Judge:
    def __init__(self, *, addresses: AddressPolicy, schema: Schema) -> None:
        self._addresses = addresses
        self._schema = schema
        self._queries = Queries(schema, checker=lambda classes: remembering(query_checker(classes)))

    def another(self) -> "Judge":
        """One that judges alike, for another thread: each remembers queries for itself."""
        return Judge(addresses=self._addresses, schema=self._schema)

    def judge(
        self, objects: Iterable[Resource | Secret | None], *, service: str | None = None
    ) -> Judgement:
        """Return what a deliverer of ``service`` would refuse or warn of. An internal error becomes
        a problem of the object that causes it."""
        known = tuple(one for one in objects if one is not None)
        try:
            return self._together(known, service=service)
        except Exception:  # Raised again, unless an object alone causes it.
            blamed = tuple(self._blamed(known))
            if not blamed:
                raise
            return Judgement(problems=blamed)

    def _blamed(self, objects: Iterable[Resource | Secret]) -> Iterator[Problem]:
        secrets = [one for one in objects if isinstance(one, Secret)]
        for resource in (one for one in objects if isinstance(one, Resource)):
            try:
                self._together([resource, *secrets])
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this object's
                yield defect_of(resource.kind.name, resource.name, error)

    def _together(
        self, objects: Iterable[Resource | Secret], *, service: str | None = None
    ) -> Judgement:
        together = Resources()
        for one in objects:
            if isinstance(one, Secret):
                together.secrets[one.name] = one
            else:
                together.by_kind[one.kind.name][one.name] = one
        _without_unknown_dead_letters(together, service)
        try:
            configuration = resolve(
                together,
                service=service,
                addresses=self._addresses,
                queries=self._queries,
                # Not computed: nobody reads it.
                revision="",
            )
        except ConfigurationError as error:
            return Judgement(problems=error.problems)
        return Judgement(
            unknown_classes=self._unknown_classes(configuration),
            listeners={
                one.name: one
                for one in map(listener_of, configuration.destinations.values())
                if one
            },
        )

    def _unknown_classes(self, configuration: Configuration) -> dict[str, str]:
        check = self._queries.declaring(configuration.service.classes)
        return {
            name: f"{problem.message}. {problem.remedy}"
            for name, one in configuration.filters.items()
            if (problem := check(one.query, one.query_language)) is not None
        }


def object_problems(
    kind: str, name: str, *, namespace: Namespace, judge: Judge
) -> tuple[Problem, ...]:
    parsed = namespace.parsed(kind, name)
    if parsed is None:
        return ()
    if parsed.resource is None or parsed.problems:
        return parsed.problems
    secrets = (one.secret for one in namespace.secrets(parsed.secrets))
    return judge.judge([parsed.resource, *secrets]).problems


def _without_unknown_dead_letters(together: Resources, service: str | None) -> None:
    """Leave out each deadLetterRef that names none of these: it is judged by itself."""
    destinations = together.by_kind[DESTINATION]
    services = together.by_kind[SERVICE]
    for name, one in services.items():
        services[name] = resolvable(one, destinations, has_default=False)
    own = services.get(service or "")
    has_default = own is not None and own.sound(FIELD)
    for name, one in destinations.items():
        destinations[name] = resolvable(one, destinations, has_default=has_default)


def same_places(listeners: Mapping[str, Listener]) -> dict[str, tuple[str, ...]]:
    """By destination: others, with URLs, whose hosts may name the same listener."""
    found: dict[str, tuple[str, ...]] = {}
    for one, other in pairs_at_one_port_and_path(listeners[name] for name in sorted(listeners)):
        found[one.name] = (*found.get(one.name, ()), f"{other.name} ({other.url})")
        found[other.name] = (*found.get(other.name, ()), f"{one.name} ({one.url})")
    return found
