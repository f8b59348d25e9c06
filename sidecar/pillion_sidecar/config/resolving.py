"""Checked resources to a configuration: references, defaults of the service, addresses."""

import difflib
import hashlib
import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pillion_cim.schema import ClassDeclaration, DeclarationError
from pillion_sidecar.config.addresses import AddressPolicy, host_of, parse_host, same_port_and_path
from pillion_sidecar.config.advice import advice
from pillion_sidecar.config.classes import DeclaredClasses
from pillion_sidecar.config.credentials import UNUSABLE, SecretReader, hold_faulty, may_be_built
from pillion_sidecar.config.dead_letters import with_dead_letters
from pillion_sidecar.config.durability import loses_before_alert
from pillion_sidecar.config.parsing import Resource, Resources
from pillion_sidecar.config.problems import (
    ADDRESS_NOT_PERMITTED,
    EMPTY,
    ConfigurationError,
    Problem,
)
from pillion_sidecar.config.queries import Queries
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema import API_VERSION
from pillion_sidecar.config.schema.deliverer import DelivererMode
from pillion_sidecar.config.schema.destination import (
    DeliverThrough,
    ListenerDestination,
    RetryPolicy,
)
from pillion_sidecar.config.schema.filter import IndicationFilter
from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.config.schema.proxy import Proxy, ServiceProxy
from pillion_sidecar.config.schema.replay import IndicationReplay
from pillion_sidecar.config.schema.response_policy import ResponseRule
from pillion_sidecar.config.schema.service import IndicationService
from pillion_sidecar.config.schema.stores import StoresPolicy
from pillion_sidecar.config.schema.subscription import IndicationSubscription
from pillion_sidecar.config.schema.urls import is_loopback
from pillion_sidecar.config.validation import Path
from pillion_sidecar.fields import amount, build
from pillion_sidecar.protocols import FALLBACK, PROTOCOLS, Protocol

#: Values for unset fields if any retry field is set.
DSP1054 = RetryPolicy()
#: Default maximumIntervalSeconds of a destination that sets another retry field.
LONGEST_WAIT_SECONDS = 3600.0


def build_service(
    resource: Resource,
    *,
    classes: tuple[ClassDeclaration, ...] = (),
    stores: StoresPolicy | None = None,
) -> IndicationService:
    limit = resource.spec["deliverer"]["storage"].get("sizeLimit")
    return build(
        IndicationService,
        resource.spec,
        name=resource.name,
        classes=classes,
        storage_bytes=None if limit is None else int(amount(limit)),
        stores=stores,
    )


def build_destination(
    resource: Resource,
    *,
    service: IndicationService,
    uid: str,
    tls: TLSOptions,
    credentials: Credentials | None,
    proxy: Proxy | None,
    secret_url: str | None,
) -> ListenerDestination:
    """Build a destination with the service's defaults. ``secret_url``: from the Secret of
    ``destinationFrom``, if usable."""
    spec = resource.spec
    protocol = spec["protocol"] if resource.sound("protocol") else FALLBACK
    inherited = {
        "queueSize": service.queue_size,
        "queueFullPolicy": service.queue_full_policy,
        "indicationLifetimeSeconds": service.indication_lifetime_seconds,
    }
    return build(
        ListenerDestination,
        {**{name: value for name, value in inherited.items() if value is not None}, **spec},
        name=resource.name,
        uid=uid,
        # A destination with a fault in these is held.
        destination=(spec["destination"] if resource.sound("destination") else secret_url or ""),
        url_is_secret="destinationFrom" in spec,
        protocol=protocol,
        options=_options(resource, PROTOCOLS[protocol]),
        tls=tls,
        credentials=credentials,
        proxy=(
            _proxy(proxy, service.proxy, url=spec.get("destination") or secret_url or "")
            if PROTOCOLS[protocol].takes_proxy
            else None
        ),
        response_policy=(
            *(build(ResponseRule, rule) for rule in spec.get("responsePolicy", ())),
            *service.response_policy,
        ),
        retry=written_retry(
            spec.get("retry", {}),
            attempts=service.delivery_retry_attempts,
            interval_seconds=service.delivery_retry_interval_seconds,
        ),
    )


def _proxy(own: Proxy | None, of_service: ServiceProxy | None, *, url: str) -> Proxy | None:
    if own is not None:
        return None if own.url is None else own
    # What is on this machine is not behind the proxy, and may get credentials without TLS.
    if of_service is None or is_loopback(url):
        return None
    return Proxy(url=of_service.url, connect_to=of_service.connect_to)


def _is_complete(resource: Resource, destination: ListenerDestination) -> bool:
    """Whether the destination has all credentials that are written. A part that its Secret lacks
    is None, and has a problem of its own."""
    credentials = destination.credentials
    if credentials is None:
        return False
    found = {
        "basic": credentials.username and credentials.password,
        "bearer": credentials.bearer_token,
        "apiKey": credentials.api_key,
    }
    return all(found.get(kind, True) for kind in resource.spec["credentials"])


def _options(resource: Resource, protocol: Protocol) -> object:
    name = protocol.options_name
    if protocol.options is None or name in resource.flawed:
        return None
    # A fault in another field hides that they are missing: rules run on valid nodes only.
    if protocol.options_required and name not in resource.spec:
        return None
    return build(protocol.options, resource.spec.get(name, {}))


def written_retry(
    spec: Mapping[str, Any], *, attempts: int | None, interval_seconds: float | None
) -> RetryPolicy | None:
    """Return the written retry; unset fields are DSP1054's (S0.7). None: no field is written."""
    written = dict(spec)
    if attempts is not None:
        written.setdefault("attempts", attempts)
    if interval_seconds is not None:
        written.setdefault("intervalSeconds", interval_seconds)
    if not written:
        return None
    interval = float(written.get("intervalSeconds", DSP1054.interval_seconds))
    written.setdefault("maximumIntervalSeconds", max(LONGEST_WAIT_SECONDS, interval))
    return build(RetryPolicy, written)


DEFAULT_SERVICE = "default"
MOST_WARNINGS = 20
MOST_COMPARED = 1000


def resolve(
    resources: Resources,
    *,
    service: str | None,
    addresses: AddressPolicy,
    queries: Queries,
    revision: str | None = None,
    may_be_held: Collection[str] | None = (),
) -> Configuration:
    """Resolve ``resources`` for one service.

    ``service`` None: the only one, or defaults named ``default``. ``may_be_held``: destinations
    whose faults are warnings, since they are held (None: all). ``revision`` None: computed. The
    result has all destinations and filters, and the subscriptions of the service and those relayed
    or handed over to it.

    Raises:
        ConfigurationError: with all problems, those of ``resources`` included.
    """
    resolver = _Resolver(resources, addresses=addresses, queries=queries)
    resolver.check_namespaces()
    chosen = resolver.service(service)
    destinations = resolver.destinations(chosen)
    filters = resolver.filters()
    subscriptions, relayed = resolver.subscriptions(chosen)
    replays = resolver.replays(chosen)
    faults = hold_faulty(resources, may_be_held)
    if resources.problems:
        problems = sorted(resources.problems, key=lambda p: (p.file, p.line))
        raise ConfigurationError(problems, warnings=resources.warnings)
    sound = [one for name, one in destinations.items() if name not in faults]
    for name, fault in faults.items():
        destinations[name] = replace(destinations[name], fault=fault)
    for warning in (same_port_and_path(sound), loses_before_alert(sound)):
        if warning is not None:
            resources.warnings.append(warning)
    resources.warnings += advice(sound, plugins=_plugins(resources, chosen.name))
    return Configuration(
        revision=_revision(resources, chosen) if revision is None else revision,
        service=chosen,
        destinations=destinations,
        filters=filters,
        subscriptions=subscriptions,
        relayed=relayed,
        replays=replays,
        warnings=tuple(resources.warnings),
        held=frozenset(faults),
    )


class _Resolver:
    def __init__(self, resources: Resources, *, addresses: AddressPolicy, queries: Queries) -> None:
        self._resources = resources
        self._services = resources.by_kind["IndicationService"]
        self._destinations = resources.by_kind["ListenerDestination"]
        self._filters = resources.by_kind["IndicationFilter"]
        self._addresses = addresses
        self._unknown_classes: list[str] = []
        self._queries = queries
        self._check_query = queries.declaring(())
        # An unreadable file may contain the target of a reference.
        self._complete = not resources.unidentified and all(
            problem.reason not in ("Unreadable", EMPTY) for problem in resources.problems
        )

    def check_namespaces(self) -> None:
        named = [
            resource
            for kind in self._resources.by_kind.values()
            for resource in kind.values()
            if resource.namespace is not None
        ]
        first = min(named, key=lambda r: (r.place.document.file, r.place.line(())), default=None)
        for resource in named:
            if first is not None and resource.namespace != first.namespace:
                self._resources.complain(
                    resource.place,
                    ("metadata", "namespace"),
                    resource.namespace,
                    f"is not {first.namespace}, the namespace at {first.place}",
                    "A deliverer serves one namespace: use a separate folder for each.",
                )

    def service(self, name: str | None) -> IndicationService:
        if name is None and len(self._services) == 1:
            name = next(iter(self._services))
        found = self._services.get(name or DEFAULT_SERVICE)
        classes = self._classes(found)
        self._check_callbacks(found)
        if found is not None and found.sound("proxy"):
            self._check_address(found, found.spec["proxy"]["url"], "proxy", "url")
        stores = None
        if found is not None and found.sound("stores"):
            # Late: few services have any.
            from pillion_sidecar.config.stores import build_stores

            stores = build_stores(found, self._resources, addresses=self._addresses)
        if found is not None and found.valid:
            return build_service(found, classes=classes, stores=stores)
        listed = ", ".join(sorted(self._services))
        if found is None and (name is not None or self._services) and self._complete:
            message = f"there is no IndicationService {name or DEFAULT_SERVICE!r} to run as"
            near = difflib.get_close_matches(name or "", self._services, n=1)
            meant = f"Did you mean {near[0]}? " if near else ""
            remedy = f"Choose one with --service: {listed}." if listed else "Add it to the folder."
            problem = Problem(reason="NotFound", message=message, remedy=meant + remedy)
            self._resources.problems.append(problem)
        return IndicationService(name=name or DEFAULT_SERVICE, classes=classes)

    def _classes(self, service: Resource | None) -> tuple[ClassDeclaration, ...]:
        """Return the declared classes; filters are checked against them from now on."""
        declared = DeclaredClasses(service, self._resources.mof)
        self._resources.problems.extend(declared.problems)
        try:
            self._check_query = self._queries.declaring(declared.declarations)
        except DeclarationError as error:
            self._resources.problems.append(
                declared.problem(error.class_name, error.message, error.remedy)
            )
            return ()
        return declared.declarations

    def _check_callbacks(self, service: Resource | None) -> None:
        if service is None or not service.sound("callbacks"):
            return
        for number, prefix in enumerate(service.spec["callbacks"]):
            try:
                parse_host(host_of(prefix))
            except ValueError as error:
                self._resources.complain(
                    service.place,
                    ("spec", "callbacks", number),
                    prefix,
                    str(error),
                    "Write the address, or a host name.",
                )

    def destinations(self, service: IndicationService) -> dict[str, ListenerDestination]:
        built = {}
        for name, resource in self._destinations.items():
            reader = SecretReader(self._resources, resource)
            tls, credentials = reader.tls(), reader.credentials()
            secret_url = reader.url(self._addresses)
            if resource.sound("destination"):
                self._check_address(resource, resource.spec["destination"], "destination")
            if resource.sound("credentials") and "oauth2" in resource.spec["credentials"]:
                url = resource.spec["credentials"]["oauth2"]["tokenURL"]
                self._check_address(resource, url, "credentials", "oauth2", "tokenURL")
            if resource.sound("proxy") and "url" in resource.spec["proxy"]:
                self._check_address(resource, resource.spec["proxy"]["url"], "proxy", "url")
            if may_be_built(resource):
                built[name] = build_destination(
                    resource,
                    service=service,
                    uid=_uid(resource),
                    tls=tls,
                    credentials=credentials,
                    proxy=reader.proxy(),
                    secret_url=secret_url,
                )
                self._check_retry(resource, built[name])
                self._check_options(resource, built[name])
                self._check_credentials(resource, built[name])
        relayed = {name: self._relayed(one, service) for name, one in built.items()}
        return with_dead_letters(
            relayed, service=service, resources=self._resources, check=self._check_reference
        )

    def _relayed(
        self, destination: ListenerDestination, service: IndicationService
    ) -> ListenerDestination:
        """Return the destination with ``relay_to`` set if a gateway delivers it."""
        through_gateway = destination.deliver_through is DeliverThrough.GATEWAY
        if not through_gateway or service.deliverer.mode is DelivererMode.GATEWAY:
            return destination
        return replace(destination, relay_to=service.gateway)

    def _check_address(self, resource: Resource, url: str, *path: str | int) -> None:
        refusal = self._addresses.check_url(url)
        if refusal is not None:
            self._resources.complain(
                resource.place,
                ("spec", *path),
                url,
                refusal,
                "Write the address of a remote listener, or allow this kind of address when you "
                "start the deliverer.",
                reason=ADDRESS_NOT_PERMITTED,
            )

    def _check_retry(self, resource: Resource, destination: ListenerDestination) -> None:
        retry = destination.retry
        given = resource.spec.get("retry", {}).get("maximumIntervalSeconds")
        if given is not None and retry is not None and given < retry.interval_seconds:
            self._resources.complain(
                resource.place,
                ("spec", "retry", "maximumIntervalSeconds"),
                given,
                f"is less than the interval of {retry.interval_seconds:g} s",
                "Raise it, or set retry.intervalSeconds.",
            )

    def _check_options(self, resource: Resource, destination: ListenerDestination) -> None:
        protocol, options = PROTOCOLS[destination.protocol], destination.options
        if options is None:
            return
        for place, url in () if protocol.urls is None else protocol.urls(options):
            self._check_address(resource, url, protocol.options_name, *place)
        fault = None if protocol.check is None else protocol.check(options)
        if fault is not None:
            path: Path = ("spec", protocol.options_name, fault.field)
            self._resources.complain(resource.place, path, None, fault.message, fault.remedy)

    def _check_credentials(self, resource: Resource, destination: ListenerDestination) -> None:
        tell = PROTOCOLS[destination.protocol].check_credentials
        if destination.options is None or tell is None or not _is_complete(resource, destination):
            return
        fault = tell(destination.options, destination.credentials)
        if fault is not None:
            path: Path = ("spec", "credentials", fault.field, "secretRef")
            self._resources.complain(
                resource.place, path, None, fault.message, fault.remedy, reason=UNUSABLE
            )

    def filters(self) -> dict[str, IndicationFilter]:
        built = {}
        for name, resource in self._filters.items():
            if resource.sound("query") and resource.sound("queryLanguage"):
                self._check_filter(resource)
            if resource.valid:
                built[name] = build(IndicationFilter, resource.spec, name=name)
        told = self._unknown_classes
        self._resources.warnings += told[:MOST_WARNINGS]
        if len(told) > MOST_WARNINGS:
            more = len(told) - MOST_WARNINGS
            self._resources.warnings.append(f"{more} more filters name classes that are not known")
        return built

    def _check_filter(self, resource: Resource) -> None:
        query = resource.spec["query"]
        problem = self._check_query(query, resource.spec["queryLanguage"])
        if problem is not None and problem.is_warning:
            self._unknown_classes.append(
                f"{resource.place.resource}: {problem.message}. {problem.remedy}"
            )
        elif problem is not None:
            place = f"line {problem.line}, column {problem.column} of the query"
            message = f"{place}: {problem.message}"
            self._resources.complain(
                resource.place, ("spec", "query"), query, message, problem.remedy
            )

    def subscriptions(
        self, service: IndicationService
    ) -> tuple[dict[str, IndicationSubscription], dict[str, IndicationSubscription]]:
        """Return the service's subscriptions, and those relayed or handed over to it; check all
        references."""
        own: dict[str, IndicationSubscription] = {}
        relayed: dict[str, IndicationSubscription] = {}
        for name, resource in self._resources.by_kind["IndicationSubscription"].items():
            self._check_reference(resource, "filterRef", "IndicationFilter")
            self._check_reference(resource, "destinationRef", "ListenerDestination")
            serves = self._serves(resource, service)
            if serves:
                self._check_gateway(resource, service)
            else:
                self._check_reference(resource, "serviceRef", "IndicationService")
            if resource.valid and (serves or self._comes_to(resource, service)):
                (own if serves else relayed)[name] = build(
                    IndicationSubscription,
                    resource.spec,
                    name=name,
                    uid=_uid(resource),
                    created_at=resource.created_at,
                )
        return own, relayed

    def replays(self, service: IndicationService) -> dict[str, IndicationReplay]:
        """Return the service's replays; check all references."""
        own: dict[str, IndicationReplay] = {}
        for name, resource in self._resources.by_kind["IndicationReplay"].items():
            self._check_reference(resource, "destinationRef", "ListenerDestination")
            if "filterRef" in resource.spec:
                self._check_reference(resource, "filterRef", "IndicationFilter")
            serves = self._serves(resource, service)
            if serves:
                self._check_gateway(resource, service)
            else:
                self._check_reference(resource, "serviceRef", "IndicationService")
            if not resource.valid:
                continue
            built = build(
                IndicationReplay,
                resource.spec,
                name=name,
                uid=_uid(resource),
                created_at=resource.created_at,
            )
            self._check_period(resource, built)
            if serves:
                own[name] = built
        return own

    def _check_period(self, resource: Resource, replay: IndicationReplay) -> None:
        if replay.until is not None and replay.until <= replay.since:
            self._resources.complain(
                resource.place,
                ("spec", "until"),
                resource.spec["until"],
                "is not after from",
                "Write a later time, or remove it.",
            )

    def _check_gateway(self, resource: Resource, service: IndicationService) -> None:
        if service.gateway is not None or service.deliverer.mode is DelivererMode.GATEWAY:
            return
        name = resource.spec["destinationRef"]["name"] if resource.sound("destinationRef") else ""
        if self._through_gateway(name):
            self._resources.complain(
                resource.place,
                ("spec", "destinationRef", "name"),
                name,
                f"says deliverThrough Gateway, and IndicationService {service.name} has no "
                "gatewayRef",
                "Name a gateway there, or set deliverThrough to Deliverer.",
                reason="GatewayMissing",
            )

    def _through_gateway(self, destination: str) -> bool:
        found = self._destinations.get(destination)
        return (
            found is not None
            and found.sound("deliverThrough")
            and found.spec["deliverThrough"] == DeliverThrough.GATEWAY
        )

    def _comes_to(self, resource: Resource, gateway: IndicationService) -> bool:
        """Whether sidecars of another service relay or hand over its indications here."""
        origin = self._services.get(resource.spec["serviceRef"]["name"])
        if gateway.deliverer.mode is not DelivererMode.GATEWAY or origin is None:
            return False
        if not origin.valid:
            return False
        if (origin.spec.get("handOverTo") or {}).get("name") == gateway.name:
            return True
        named = (origin.spec.get("gatewayRef") or {}).get("name") == gateway.name
        return named and self._through_gateway(resource.spec["destinationRef"]["name"])

    def _serves(self, resource: Resource, service: IndicationService) -> bool:
        return resource.sound("serviceRef") and resource.spec["serviceRef"]["name"] == service.name

    def _check_reference(self, resource: Resource, reference: str, kind: str) -> None:
        known = self._resources.by_kind[kind]
        name = resource.spec[reference]["name"] if resource.sound(reference) else None
        if name is None or name in known or not self._complete:
            return
        default = "" if _is_written(resource, reference) else f", the default of {reference}"
        self._resources.complain(
            resource.place,
            ("spec", reference, "name"),
            name,
            f"there is no {kind} of this name{default}",
            self._reference_remedy(kind, name, is_default=bool(default)),
            reason="NotFound",
        )

    def _reference_remedy(self, kind: str, name: str, *, is_default: bool) -> str:
        ignored = self._resources.ignored.get((kind, name))
        if ignored is not None:
            return f"Write apiVersion: {API_VERSION} at {ignored}, which is ignored."
        known = sorted(self._resources.by_kind[kind])
        if not known:
            return f"There is no {kind} at all; add one."
        if is_default and len(known) == 1:
            return f"Write serviceRef: {{name: {known[0]}}}, or name the service {name}."
        listed = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
        near = difflib.get_close_matches(name, known[:MOST_COMPARED], n=1)
        return f"Did you mean {near[0]}? There is: {listed}." if near else f"There is: {listed}."


def _is_written(resource: Resource, field: str) -> bool:
    spec = resource.place.document.value.get("spec")
    return isinstance(spec, dict) and spec.get(field) is not None


def _plugins(resources: Resources, service: str) -> frozenset[str]:
    """Names of the plug-ins that a service declares."""
    resource = resources.by_kind["IndicationService"].get(service)
    if resource is None:
        return frozenset()
    declared = (resource.spec.get("deliverer") or {}).get("plugins") or ()
    return frozenset(one["name"] for one in declared)


def _uid(resource: Resource) -> str:
    if resource.uid is not None:
        return resource.uid
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"pillion.dev/{resource.kind.name}/{resource.name}"))


def _revision(resources: Resources, service: IndicationService) -> str:
    """Return a digest of everything that the configuration was made from."""
    content: dict[str, Mapping[str, Any]] = {
        f"{kind}/{name}": {"uid": resource.uid, "at": resource.created_at, "spec": _spec(resource)}
        for kind, known in resources.by_kind.items()
        for name, resource in known.items()
    }
    for name, secret in resources.secrets.items():
        content[f"Secret/{name}"] = {
            key: hashlib.sha256(value).hexdigest() for key, value in secret.data.items()
        }
        if not secret.permitted:
            content[f"Secret/{name}"] = {"unlabelled": content[f"Secret/{name}"]}
    if resources.mof:
        content["MOF"] = {
            name: hashlib.sha256(text.encode()).hexdigest() for name, text in resources.mof.items()
        }
    text = json.dumps([service.name, content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _spec(resource: Resource) -> Mapping[str, Any]:
    """Return the spec as JSON; an invalid field as its repr."""
    if not resource.flawed:
        return resource.spec
    return {
        name: value if resource.sound(name) else repr(value)
        for name, value in resource.spec.items()
    }
