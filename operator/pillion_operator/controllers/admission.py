"""Validates a resource before it is stored. Refuses what no change elsewhere can fix: a query, an
address, a service's classes. A missing reference, which may still come, is only a warning."""

from collections.abc import Iterator

from pillion_operator.cluster.types import Object
from pillion_operator.controllers.selector_overlap import pod_selector
from pillion_operator.evaluation.dead_letters import dead_letter_verdict
from pillion_operator.evaluation.judging import Judge, Judgement
from pillion_operator.evaluation.mof import (
    MOFRefused,
    rendered,
    with_mof,
    with_sources,
    without_mof_from,
)
from pillion_operator.evaluation.namespace import Namespace, Parsing, describe, parse
from pillion_operator.evaluation.references import (
    SERVICE,
    SUBSCRIPTION,
    named_by,
    names_secret,
    secrets_of,
    secrets_of_stores,
    service_of,
)
from pillion_operator.evaluation.relaying import gateways_named
from pillion_operator.evaluation.verdict import missing, refused
from pillion_operator.injection.selectors import covers
from pillion_operator.injection.webhook import Opinion
from pillion_operator.status.retry import retry_condition
from pillion_operator.store import Store
from pillion_sidecar.config.parsing import Resource
from pillion_sidecar.config.problems import INTERNAL_ERROR, Problem
from pillion_sidecar.config.resolving import DEFAULT_SERVICE
from pillion_sidecar.config.schema.history import HistoryBodies
from pillion_sidecar.config.schema.replay import Replayable

#: Bounds, for the sake of the waiting client: services that a filter is checked with, subscriptions
#: read for a destination, and services compared with one.
_MOST_SERVICES = 20
_MOST_SUBSCRIPTIONS = 1_000
#: Fields under which problems of ConfigMaps' classes are reported.
_OF_CLASSES = ("spec.mof", "spec.classes")


class Admission:
    def __init__(self, *, store: Store, parsing: Parsing, judge: Judge) -> None:
        self._store = store
        self._parsing = parsing
        self._judge = judge

    def of(self, body: Object, namespace: str) -> Opinion:
        around = Namespace(namespace, store=self._store, parsing=self._parsing)
        parsed = parse(body)
        if parsed.problems or parsed.resource is None:
            return _sorted_out(parsed.problems)
        match body["kind"]:
            case "IndicationFilter":
                return self._of_filter(parsed.resource, around)
            case "ListenerDestination":
                return self._of_destination(body, parsed.resource, around)
            case "IndicationSubscription":
                return Opinion(warnings=tuple(_absent(body, around)))
            case "IndicationReplay":
                return self._of_replay(body, parsed.resource, around)
            case _:
                return self._of_service(body, parsed.resource, around)

    def _of_filter(self, resource: Resource, around: Namespace) -> Opinion:
        """A filter is valid if any service accepts it: its classes may be declared there."""
        judgements = [
            self._judge.judge([resource]),
            *(
                self._judge.judge([service, resource], service=service.name)
                for service in _services(around)
            ),
        ]
        problems = [_about(resource, one) for one in judgements]
        if all(problems):
            return _sorted_out(problems[0])
        unknown = [
            one.unknown_classes.get(resource.name)
            for one, wrong in zip(judgements, problems, strict=True)
            if not wrong
        ]
        return Opinion(warnings=(unknown[0],) if unknown[0] and all(unknown) else ())

    def _of_replay(self, body: Object, resource: Resource, around: Namespace) -> Opinion:
        # Alone, so its references do not resolve.
        judged = self._judge.judge([resource]).problems
        opinion = _sorted_out([one for one in judged if one.field == "spec.until"])
        service = around.body(SERVICE, service_of(body))
        return _with(opinion, *_absent(body, around), _not_kept(resource, service))

    def _of_destination(self, body: Object, resource: Resource, around: Namespace) -> Opinion:
        secrets = (one.secret for one in around.secrets(secrets_of(resource.spec)))
        opinion = _sorted_out(self._judge.judge([resource, *secrets]).problems)
        names = set(_serving(body["metadata"]["name"], around)) or {DEFAULT_SERVICE}
        services = {name: (around.body(SERVICE, name) or {}).get("spec") or {} for name in names}
        return _with(
            opinion,
            _short_retry(body.get("spec") or {}, services),
            _wrong_dead_letter(body, around),
        )

    def _of_service(self, body: Object, resource: Resource, around: Namespace) -> Opinion:
        opinion = self._of_its_classes(body, resource, around)
        gateways = gateways_named(body, namespace=around).values()
        wrong = (one.message for one in gateways if not one.accepted)
        opinion = _with(opinion, *wrong, *_overlaps(body, around), _wrong_dead_letter(body, around))
        return _with(opinion, _short_retry({}, {resource.name: body.get("spec") or {}}))

    def _of_its_classes(self, body: Object, resource: Resource, around: Namespace) -> Opinion:
        spec = resource.spec
        elsewhere = bool(spec["mofFrom"])
        lacking = None
        if elsewhere:
            try:
                parsed = parse(rendered(body, spec, namespace=around))
            except MOFRefused as error:
                parsed, lacking = parse(without_mof_from(body)), error.verdict.message
            if parsed.resource is None:
                return _sorted_out(parsed.problems)
            resource = parsed.resource
        secrets = (one.secret for one in around.secrets(secrets_of_stores(body)))
        judged = self._judge.judge([resource, *secrets], service=resource.name)
        opinion = _sorted_out(_about(resource, judged), soft=_OF_CLASSES if elsewhere else ())
        opinion = _with(opinion, lacking)
        if not elsewhere:
            return opinion
        warnings = tuple(with_sources(warning, spec) for warning in opinion.warnings)
        return Opinion(opinion.refusal, warnings)


def _services(around: Namespace) -> Iterator[Resource]:
    for name in sorted(around.bodies(SERVICE))[:_MOST_SERVICES]:
        parsed = around.parsed(SERVICE, name)
        if parsed is None or parsed.resource is None or parsed.problems:
            continue
        try:
            if parsed.resource.spec["mofFrom"]:
                parsed = with_mof(name, parsed.resource.spec, namespace=around)
        except MOFRefused:
            continue
        if parsed.resource is not None and not parsed.problems:
            yield parsed.resource


def _absent(body: Object, around: Namespace) -> Iterator[str]:
    for one in named_by(body):
        if around.body(one.kind, one.name) is None:
            yield missing(one.kind, one.name).message


def _not_kept(resource: Resource, service: Object | None) -> str | None:
    if service is None:
        return None
    bodies = ((service.get("spec") or {}).get("history") or {}).get(
        "bodies", HistoryBodies.DISCARDED
    )
    if bodies == HistoryBodies.NONE:
        kept = "no indication"
    elif bodies == HistoryBodies.DISCARDED and resource.spec["results"] == [Replayable.DELIVERED]:
        kept = "no delivered indication"
    else:
        return None
    return (
        f"IndicationService {service['metadata']['name']} keeps {kept} (spec.history.bodies: "
        f"{bodies}), so nothing of it can be replayed. Set it to All for later replays."
    )


def _about(resource: Resource, judgement: Judgement) -> list[Problem]:
    named = f"{resource.kind.name}/{resource.name}"
    return [problem for problem in judgement.problems if problem.resource == named]


def _sorted_out(
    problems: tuple[Problem, ...] | list[Problem], *, soft: tuple[str, ...] = ()
) -> Opinion:
    """Divide problems into refusals and warnings: what can be fixed elsewhere, and internal errors,
    refuse nothing. ``soft`` are the prefixes of further fields that can be fixed elsewhere."""
    mendable = [
        problem
        for problem in problems
        if problem.reason == INTERNAL_ERROR
        or names_secret(problem.field)
        or problem.field.startswith(soft)
    ]
    hard = [problem for problem in problems if problem not in mendable]
    return Opinion(describe(hard), tuple(refused([problem]).message for problem in mendable))


def _with(opinion: Opinion, *warnings: str | None) -> Opinion:
    return Opinion(opinion.refusal, (*opinion.warnings, *filter(None, warnings)))


def _serving(destination: str, around: Namespace) -> Iterator[str]:
    for subscription in list(around.bodies(SUBSCRIPTION).values())[:_MOST_SUBSCRIPTIONS]:
        if subscription["spec"]["destinationRef"]["name"] == destination:
            yield service_of(subscription)


def _short_retry(destination: Object, services: dict[str, Object]) -> str | None:
    condition = retry_condition(destination, services)
    short = condition is not None and condition.reason == "ShorterThanAlert"
    return condition.message if condition is not None and short else None


def _wrong_dead_letter(body: Object, around: Namespace) -> str | None:
    verdict = dead_letter_verdict(body, namespace=around)
    return None if verdict.accepted else verdict.message


def _overlaps(body: Object, around: Namespace) -> Iterator[str]:
    own = pod_selector(body)
    for name, other in list(around.bodies(SERVICE).items())[:_MOST_SUBSCRIPTIONS]:
        theirs = pod_selector(other)
        if own is None or theirs is None or name == body["metadata"]["name"]:
            continue
        if covers(own, theirs) or covers(theirs, own):
            yield (
                f"spec.deliverer.podSelector selects pods of IndicationService {name}, too. "
                "The oldest service serves them. Make the selectors exclusive."
            )
