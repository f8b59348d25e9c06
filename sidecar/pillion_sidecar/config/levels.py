"""Schema levels: fields that older deliverers do not know. A deliverer refuses a configuration with
an unknown field. So each new field belongs to a level, deliverers report their level, and the
operator omits what the oldest deliverer of a service does not know."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pillion_cim.filters import FilterError, without_list
from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.destination import WITHHELD_URL, RemovalPolicy
from pillion_sidecar.config.schema.filter import QueryLanguage
from pillion_sidecar.config.schema.service import Acknowledgement
from pillion_sidecar.protocols import FALLBACK, PROTOCOLS

#: The first release; also of a deliverer that reports no level.
FIRST_LEVEL = 1
#: From here on a filter's query may list properties. An older deliverer refuses a list, and with it
#: the configuration; it gets ``SELECT *``, and delivers all properties.
LISTS = 3
#: From here on there is removalPolicy DeadLetter; for an older deliverer it is Discard.
DEAD_LETTERS = 3
#: From here on there is acknowledgement Stable; for an older deliverer it is Durable.
STORES = 3
#: Fields of ``spec`` added by level and kind. Without one, an older deliverer keeps its own
#: behavior, or follows ``_INSTEAD``.
ADDED: Mapping[int, Mapping[str, Sequence[tuple[str, ...]]]] = {
    2: {
        "IndicationService": (("classes",), ("mof",), ("mofFrom",)),
        "IndicationSubscription": (("failureTriggerTimeIntervalSeconds",),),
        "ListenerDestination": (("destinationFrom",), ("tls", "allowCommonName")),
    },
    3: {
        # No field: see ``_without_list``.
        "IndicationFilter": (),
        # The whole kind: see ``FIRST_OF_KIND``.
        "IndicationReplay": (),
        "IndicationService": (
            ("deadLetterRef",),
            ("history",),
            ("journalCopies",),
            ("proxy",),
            ("publisherRateLimit",),
            ("responsePolicy",),
            ("stores",),
        ),
        "ListenerDestination": (
            ("circuitBreaker",),
            ("deadLetterRef",),
            ("responsePolicy",),
            ("credentials", "apiKey"),
            ("credentials", "oauth2"),
            ("credentials", "signing"),
            ("credentials", "snmp"),
            ("proxy",),
            ("rateLimit",),
            *((one.options_name,) for one in PROTOCOLS.values() if one.options is not None),
        ),
    },
}
#: The level that a kind came with, if not the first. An older deliverer refuses a configuration
#: that has a resource of it.
FIRST_OF_KIND: Mapping[str, int] = {"IndicationReplay": 3}
#: Replacements where omission would be invalid or harmful: the destination waits, and no
#: subscription ends. The first release acts on ``onFatalErrorPolicy`` at once.
_INSTEAD: Mapping[str, Mapping[tuple[str, ...], Mapping[str, Any]]] = {
    "ListenerDestination": {
        ("destinationFrom",): {"destination": WITHHELD_URL, "suspended": True},
        ("credentials", "oauth2"): {"suspended": True},
        ("proxy",): {"suspended": True},
    },
    "IndicationSubscription": {
        ("failureTriggerTimeIntervalSeconds",): {"onFatalErrorPolicy": RemovalAction.IGNORE.value},
    },
}
#: For a destination whose protocol an older deliverer does not know.
_OF_UNKNOWN_PROTOCOL = {"protocol": FALLBACK, "destination": WITHHELD_URL, "suspended": True}
#: Fields of ``spec`` whose meaning depends on the protocol.
_OF_PROTOCOL = ("destinationFrom", "tls", "credentials")
LEVEL = max(ADDED)


def without_newer(
    resource: Mapping[str, Any], *, level: int
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return a resource for a deliverer of a level, and the omitted or replaced fields."""
    spec: Mapping[str, Any] = resource.get("spec") or {}
    left_out, omitted = [], False
    protocol = PROTOCOLS.get(spec.get("protocol", FALLBACK))
    if protocol is not None and protocol.level > level:
        kept = {name: value for name, value in spec.items() if name not in _OF_PROTOCOL}
        spec = {**kept, **_OF_UNKNOWN_PROTOCOL}
        left_out = [f"spec.{name}" for name in _OF_UNKNOWN_PROTOCOL]
    kind = str(resource["kind"])
    for path in _newer(kind, level):
        spec, found = _without(spec, path)
        if found:
            if path == ("proxy",) and not (resource["spec"]["proxy"] or {}).get("url"):
                # Without a proxy: as it does without the field.
                omitted = True
                continue
            instead = _INSTEAD.get(kind, {}).get(path, {})
            left_out.append(f"spec.{'.'.join(path)}")
            left_out += [
                f"spec.{name}" for name, value in instead.items() if spec.get(name, value) != value
            ]
            spec = {**spec, **instead}
    if level < LISTS and kind == "IndicationFilter":
        spec, found = _without_list(spec)
        if found:
            left_out.append("the list of properties in spec.query")
    if level < DEAD_LETTERS and spec.get("removalPolicy") == RemovalPolicy.DEAD_LETTER:
        spec = {**spec, "removalPolicy": RemovalPolicy.DISCARD.value}
        left_out.append("removalPolicy DeadLetter")
    if level < STORES and spec.get("acknowledgement") == Acknowledgement.STABLE:
        spec = {**spec, "acknowledgement": Acknowledgement.DURABLE.value}
        left_out.append("acknowledgement Stable")
    if not (left_out or omitted):
        return resource, ()
    return {**resource, "spec": spec}, tuple(left_out)


def suspends(kind: str, left_out: Collection[str]) -> bool:
    """Whether a resource without these fields is suspended."""
    if kind != "ListenerDestination":
        return False
    waiting = _INSTEAD[kind]
    return any(f"spec.{'.'.join(path)}" in left_out for path in (("protocol",), *waiting))


def _newer(kind: str, level: int) -> Iterator[tuple[str, ...]]:
    for added, kinds in ADDED.items():
        if added > level:
            yield from kinds.get(kind, ())


def _without(spec: Mapping[str, Any], path: tuple[str, ...]) -> tuple[Mapping[str, Any], bool]:
    name, *rest = path
    if name not in spec:
        return spec, False
    if not rest:
        return {key: value for key, value in spec.items() if key != name}, True
    inner, found = _without(spec[name] or {}, tuple(rest))
    if found and not inner:
        # An empty object may be invalid, as credentials are.
        return {key: value for key, value in spec.items() if key != name}, True
    return {**spec, name: inner}, found


def _without_list(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    language = spec.get("queryLanguage", QueryLanguage.CQL.value)
    try:
        query = without_list(spec["query"], language=language)
    except FilterError:
        # Only an accepted query is written; what a wrong one lists is not known.
        return spec, False
    return {**spec, "query": query}, query != spec["query"]
