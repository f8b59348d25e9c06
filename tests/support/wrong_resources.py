"""Wrong resources of all kinds, as people write them, and what has to be said of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.fields import Integer, Number, Struct, Text
from support.cluster_resources import (
    Resource,
    credentials,
    destination,
    filter_,
    service,
    subscription,
)

URL = "https://listener.example.com/events"
LONG = "x" * 300


class Outcome(Enum):
    """Where the author is told."""

    REFUSED = "refused"
    WARNED = "warned"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A wrong resource, and how its author is told."""

    resource: Resource
    outcome: Outcome
    #: In the refusal or in a warning.
    says: str = ""
    #: Type, status and reason of the condition; None for what is refused.
    condition: tuple[str, str, str] | None = None
    #: What is applied right after it, and is right by itself.
    beside: tuple[Resource, ...] = ()

    def __str__(self) -> str:
        spec = str(self.resource["spec"])
        return f"{self.resource['kind']} {self.resource['metadata']['name']}: {spec[:200]}"


def refused(resource: Resource, says: str) -> Wrong:
    return Wrong(resource=resource, outcome=Outcome.REFUSED, says=says)


def warned(
    resource: Resource, says: str, *condition: str, beside: tuple[Resource, ...] = ()
) -> Wrong:
    """``condition``: the type, status and reason that say it later, too."""
    type_, status, reason = condition
    return Wrong(
        resource=resource,
        outcome=Outcome.WARNED,
        says=says,
        condition=(type_, status, reason),
        beside=beside,
    )


def told(resource: Resource, *condition: str) -> Wrong:
    type_, status, reason = condition
    return Wrong(resource=resource, outcome=Outcome.CONDITION, condition=(type_, status, reason))


# ---------------------------------------------------------------- by the schema


def _dug(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy of a spec with another value at a path."""
    head, *rest = path
    inner = _dug(spec.get(head) or {}, tuple(rest), value) if rest else value
    return {**spec, head: inner}


def _fields(struct: Struct, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for field in struct.fields:
        yield (*path, field.name), field.type
        if isinstance(field.type, Struct) and field.name not in ("template", "resources"):
            yield from _fields(field.type, (*path, field.name))


def out_of_range() -> Iterator[Wrong]:
    """Each number below and above its bounds, each enumeration with another word."""
    right: dict[str, dict[str, Any]] = {
        "IndicationService": {"deliverer": {"tracing": {"endpoint": URL}}},
        "ListenerDestination": {"destination": URL, "protocol": "CloudEvents"},
        "IndicationFilter": {"query": "SELECT * FROM CIM_AlertIndication"},
        "IndicationSubscription": {
            "filterRef": {"name": "alerts"},
            "destinationRef": {"name": "operations"},
        },
        "IndicationReplay": {
            "destinationRef": {"name": "operations"},
            "from": "2026-01-31T12:00:00Z",
        },
    }
    for kind in KINDS:
        for path, type_ in _fields(kind.spec):
            for value in _outside(type_):
                name = f"range-{'-'.join(path)}-{value!s}".lower()
                spec = _dug(right[kind.name], path, value)
                yield refused(_resource(kind.name, _slug(name), spec), path[-1])


def _outside(type_: Any) -> Iterator[Any]:
    if isinstance(type_, Integer):
        yield from (type_.minimum - 1, type_.maximum + 1)
    if isinstance(type_, Number):
        yield from (type_.minimum - 1, type_.maximum + 1)
        if type_.minimum > 0:
            yield 0
    if isinstance(type_, Text) and type_.values:
        yield "Wrong"


def _slug(text: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in text)[:60].strip("-")


def _resource(kind: str, name: str, spec: Any) -> Resource:
    return {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


# ---------------------------------------------------------------- filters

_ALERTS = "SELECT * FROM CIM_AlertIndication"
QUERIES = (
    " ",
    "everything",
    "SELEC * FROM CIM_AlertIndication",
    "SELECT",
    "SELECT *",
    "SELECT * FROM",
    "SELECT FROM CIM_AlertIndication",
    "SELECT * FORM CIM_AlertIndication",
    "SELECT * FROM CIM_AlertIndication,",
    "SELECT * FROM CIM_AlertIndication, CIM_InstIndication",
    "SELECT * FROM 'CIM_AlertIndication'",
    "SELECT * FROM CIM-AlertIndication",
    "SELECT * FROM Größe-Alarm",
    "SELECT * FROM 🚨",
    "SELECT ** FROM CIM_AlertIndication",
    "SELECT PerceivedSeverty FROM CIM_AlertIndication",
    "SELECT COUNT(*) FROM CIM_AlertIndication",
    "SELECT DISTINCT * FROM CIM_AlertIndication",
    "SELECT * FROM CIM_AlertIndication; DROP TABLE listeners",
    "select * from CIM_AlertIndication where",
    f"{_ALERTS} WHERE",
    f"{_ALERTS} WHERE PerceivedSeverity >=",
    f"{_ALERTS} WHERE >= 5",
    f"{_ALERTS} WHERE PerceivedSeverity => 5",
    f"{_ALERTS} WHERE PerceivedSeverity =< 5",
    f"{_ALERTS} WHERE PerceivedSeverity == 5",
    f"{_ALERTS} WHERE PerceivedSeverity 5",
    f"{_ALERTS} WHERE PerceivedSeverity >= 'five'",
    f"{_ALERTS} WHERE PerceivedSeverity >= five",
    f"{_ALERTS} WHERE PerceivedSeverity = TRUE",
    f"{_ALERTS} WHERE PerceivedSeverity LIKE '5'",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5.5.5",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5 AND",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5 OR",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5 AND OR AlertType = 2",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5 && AlertType = 2",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5 XOR AlertType = 2",
    f"{_ALERTS} WHERE (PerceivedSeverity >= 5",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5)",
    f"{_ALERTS} WHERE ()",
    f"{_ALERTS} WHERE NOT",
    f"{_ALERTS} WHERE Severity >= 5",
    f"{_ALERTS} WHERE PercievedSeverity >= 5",
    f"{_ALERTS} WHERE a.PerceivedSeverity >= 5",
    f"{_ALERTS} WHERE PerceivedSeverity.Text = 'x'",
    f"{_ALERTS} WHERE PerceivedSeverity[1] = 5",
    f"{_ALERTS} WHERE SystemName = 5",
    f"{_ALERTS} WHERE SystemName = 'open",
    f'{_ALERTS} WHERE SystemName = "open',
    f"{_ALERTS} WHERE SystemName LIKE",
    f"{_ALERTS} WHERE SystemName LIKE 5",
    f"{_ALERTS} WHERE SystemName LIKE '('",
    f"{_ALERTS} WHERE SystemName LIKE '[a'",
    f"{_ALERTS} WHERE SystemName IN ('a', 'b')",
    f"{_ALERTS} WHERE SystemName BETWEEN 'a' AND 'b'",
    f"{_ALERTS} WHERE SystemName ISA CIM_Fan",
    f"{_ALERTS} WHERE ISA CIM_Fan",
    f"{_ALERTS} WHERE CURRENT_TIME() > 5",
    f"{_ALERTS} ORDER BY PerceivedSeverity",
    f"{_ALERTS} GROUP BY PerceivedSeverity",
    f"{_ALERTS} LIMIT 5",
    f"{_ALERTS} UNION SELECT * FROM CIM_InstIndication",
    f"{_ALERTS} JOIN CIM_InstIndication",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5 -- only grave ones",
    f"{_ALERTS} WHERE PerceivedSeverity >= 5 /* grave */",
    f"{_ALERTS} WHERE PerceivedSeverity ≥ 5",
    f"{_ALERTS} WHERE SystemName = \u201cEWR\u201d",
    f"{_ALERTS} WHERE " + "(" * 2_000 + "AlertType = 2" + ")" * 2_000,
    f"{_ALERTS} WHERE " + "NOT " * 2_000 + "AlertType = 2",
    "SELECT * FROM CIM_InstModification WHERE SourceInstance.EnabledState >",
    "SELECT * FROM CIM_InstModification WHERE SourceInstance = 5",
)
WQL_QUERIES = (
    f"{_ALERTS} a WHERE a.PerceivedSeverity >= 5 AND a.SystemName LIKE 'EWR|JFK'",
    "ASSOCIATORS OF {CIM_Fan}",
    f"{_ALERTS} WITHIN 10",
)
UNKNOWN_CLASSES = ("CIM_Nope", "CIM_AlertIndicaton", "AlertIndication", "ACME_Alert", "CIM_Fan")
NAMESPACES: tuple[Any, ...] = (
    "root/cimv2",
    ["/root"],
    ["root//cimv2"],
    ["räume"],
    [""],
    ["a", "a"],
)


def filters() -> Iterator[Wrong]:
    for number, query in enumerate(QUERIES):
        yield refused(filter_(f"query-{number}", query), "spec.query")
    for number, query in enumerate(WQL_QUERIES):
        yield refused(filter_(f"wql-{number}", query, queryLanguage="WQL"), "spec.query")
    for number, name in enumerate(UNKNOWN_CLASSES):
        yield warned(
            filter_(f"class-{number}", f"SELECT * FROM {name}"),
            name,
            *("ClassUnknown", "True", "NotDeclared"),
            beside=(subscription(f"class-{number}", of=f"class-{number}"),),
        )
    for number, namespaces in enumerate(NAMESPACES):
        yield refused(
            filter_(f"namespaces-{number}", sourceNamespaces=namespaces), "sourceNamespaces"
        )
    no_queries: tuple[Any, ...] = ("", 5, None, ["a"], "x" * 9_000)
    for number, none in enumerate(no_queries):
        yield refused(_resource("IndicationFilter", f"no-query-{number}", {"query": none}), "query")
    yield refused(filter_("unknown-field", where="PerceivedSeverity >= 5"), "spec.where")
    yield refused(_resource("IndicationFilter", "Upper", {"query": _ALERTS}), "metadata.name")


# ---------------------------------------------------------------- destinations

URLS = (
    *("", "listener", "listener.example.com", "//listener.example.com/", "http:/listener/"),
    *("ftp://listener/", "file:///etc/passwd", "https//listener/", "http//listener/", "htp://a/"),
    *("http://", "https://", "http:///events", "http://:80/", "http://a b/", "http://a/\u00fc"),
    *("http://größe.example/", "http://a/ b", "http://a\\b/", "http://user@a/", "http://u:p@a/"),
    *("http://a:0/", "http://a:65536/", "http://a:x/", "http://a:-1/", "http://a:80:80/"),
    *("http://[::1/", "http://::1/", "http://[]/", "http://[g::1]/", "http://[1.2.3.4]/"),
    *("http://[::1::2]/", "http://[:]/", "http://[1:2:3:4:5:6:7:8:9]/", "http://[fe80::1%25eth0]/"),
    *("http://a/#top", "http://a/\n", "http://a/\t", "http://a..b/", "http://.a/", "javascript:1"),
    *(
        "http://%61/",
        "mailto:a@example.com",
        "http://a/" + "x" * 2048,
    ),
    *(
        "HTTP:a",
        "http:\\\\a\\b",
        "http://${HOST}/",
        "http://{{ host }}/",
        "<http://a/>",
        '"http://a/"',
    ),
)
#: They lead to this machine, or to where clouds hand out credentials.
LOCAL = (
    *("http://127.0.0.1/", "http://localhost:8080/", "http://LOCALHOST/", "http://[::1]/"),
    *("http://127.1/", "http://0.0.0.0/", "http://2130706433/", "http://0x7f000001/"),
    *("http://[::ffff:127.0.0.1]/", "http://localhost./", "http://a.localhost/"),
    *("http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/"),
)
_TOKEN = {"bearer": {"secretRef": {"name": "token"}}}
_NOPE = {"secretRef": {"name": "nope"}}


def destinations() -> Iterator[Wrong]:
    for number, url in enumerate(URLS):
        yield refused(destination(url, name=f"url-{number}"), "spec.destination")
    for number, url in enumerate(LOCAL):
        yield refused(destination(url, name=f"local-{number}"), "spec.destination")
    for number, spec in enumerate(_combinations()):
        yield refused(destination(**{"url": URL, **spec}, name=f"combination-{number}"), "spec")
    for number, (spec, reason) in enumerate(_wrong_secrets()):
        yield warned(
            destination(URL, name=f"secret-{number}", **spec), "spec.", "Accepted", "False", reason
        )
    for number, retry in enumerate(({"attempts": 0}, {"attempts": 1, "intervalSeconds": 1})):
        yield warned(
            destination(URL, name=f"short-{number}", retry=retry),
            "retr",
            *("RetryTooShort", "True", "ShorterThanAlert"),
            beside=(subscription(f"short-{number}", to=f"short-{number}"),),
        )


def _combinations() -> Iterator[dict[str, Any]]:
    yield from (
        {"url": "http://a/", "tls": {}},
        {"url": "http://a/", "credentials": _TOKEN},
        {"protocol": "cim-xml"},
        {"protocol": "Gopher"},
        {"protocol": ""},
        {"maxInFlight": 2},
        {"maxInFlight": 2, "ordering": "Destination"},
        {"sequenceIdentifiers": "Send", "ordering": "None"},
        {"sequenceIdentifiers": "Send", "ordering": "Group"},
        {"tls": {"insecureSkipVerify": True, "caSecretRef": {"name": "ca"}}},
        {"tls": {"insecureSkipVerify": True, "allowCommonName": True}},
        {"tls": {"serverName": "größe"}},
        {"tls": {"caSecretRef": {"name": "UPPER"}}},
        {"tls": {"caSecretRef": {}}},
        {"tls": {"caSecretRef": {"name": "ca", "key": "a/b"}}},
        {"credentials": {}},
        {"credentials": {"basic": _NOPE, "bearer": _NOPE}},
        {"credentials": {"bearer": "planted-secret"}},
        {"credentials": {"oauth": {}}},
        {"protocol": "StandardWebhooks"},
        {"protocol": "StandardWebhooks", "credentials": {"signing": {"secretRefs": []}}},
        {"protocol": "StandardWebhooks", "credentials": _TOKEN},
        {"credentials": {"signing": {"secretRefs": [{"name": "token"}]}}},
        {"protocol": "SNMP"},
        {"protocol": "SNMP", "credentials": _TOKEN},
        {"protocol": "SNMP", "snmp": {"version": "v1"}},
        {"protocol": "SNMP", "snmp": {"engineId": "0x8000"}},
        {"credentials": {"snmp": {"secretRef": {"name": "token"}}}},
        {"protocol": "Webhook"},
        {"protocol": "Webhook", "webhook": {}},
        {"protocol": "Webhook", "webhook": {"preset": "Discord"}},
        {"protocol": "Webhook", "webhook": {"preset": "PagerDuty"}},
        {"protocol": "Webhook", "webhook": {"template": "${Message}"}},
        {"protocol": "Webhook", "webhook": {"template": '{"a": "${message}"}'}},
        {"retry": {"intervalSeconds": 60, "maximumIntervalSeconds": 30}},
        {"retry": 3},
        {"timeoutSeconds": "30s"},
        {"timeoutSeconds": 1.5},
        {"suspended": "yes"},
        {"queueSize": "10k"},
        {"urls": [URL]},
    )


def _wrong_secrets() -> Iterator[tuple[dict[str, Any], str]]:
    def bearer(name: str, key: str = "token") -> dict[str, Any]:
        return {"credentials": {"bearer": {"secretRef": {"name": name, "key": key}}}}

    def basic(name: str) -> dict[str, Any]:
        return {"credentials": {"basic": {"secretRef": {"name": name}}}}

    def signing(name: str, key: str) -> dict[str, Any]:
        references = [{"name": name, "key": key}]
        credentials = {"signing": {"secretRefs": references}}
        return {"protocol": "StandardWebhooks", "credentials": credentials}

    def snmp(name: str, **options: Any) -> dict[str, Any]:
        credentials = {"snmp": {"secretRef": {"name": name}}}
        return {
            "protocol": "SNMP",
            "destination": "snmp://snmp.example.com",
            "credentials": credentials,
            "snmp": options,
        }

    yield snmp("nope"), "CredentialsNotPermitted"
    yield snmp("unlabelled"), "CredentialsNotPermitted"
    yield snmp("token"), "CredentialsUnusable"
    yield snmp("token", version="v2c"), "CredentialsUnusable"
    yield signing("nope", "token"), "CredentialsNotPermitted"
    yield signing("unlabelled", "token"), "CredentialsNotPermitted"
    yield signing("token", "tokn"), "CredentialsUnusable"
    yield signing("token", "token"), "CredentialsUnusable"
    yield bearer("nope"), "CredentialsNotPermitted"
    yield basic("nope"), "CredentialsNotPermitted"
    yield {"tls": {"caSecretRef": {"name": "nope"}}}, "CredentialsNotPermitted"
    yield {"tls": {"clientCertificateSecretRef": {"name": "nope"}}}, "CredentialsNotPermitted"
    yield bearer("unlabelled"), "CredentialsNotPermitted"
    yield basic("unlabelled"), "CredentialsNotPermitted"
    yield bearer("token", "tokn"), "CredentialsUnusable"
    yield basic("token"), "CredentialsUnusable"
    yield bearer("two-lines"), "CredentialsUnusable"
    yield {"tls": {"caSecretRef": {"name": "token", "key": "token"}}}, "CredentialsUnusable"
    yield {"tls": {"clientCertificateSecretRef": {"name": "token"}}}, "CredentialsUnusable"
    yield {"tls": {"clientCertificateSecretRef": {"name": "no-pair"}}}, "CredentialsUnusable"


def secrets() -> list[Resource]:
    """The Secrets that the wrong destinations name."""
    pem = "-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n"
    return [
        credentials("token", token="planted-secret"),
        credentials("unlabelled", permitted=False, token="x", username="u", password="p"),
        credentials("two-lines", token="one\ntwo"),
        credentials("no-pair", permitted=True, **{"tls.crt": pem, "tls.key": "no key"}),
    ]


# ---------------------------------------------------------------- subscriptions


def subscriptions() -> Iterator[Wrong]:
    missing = (
        ({"of": "nope"}, "FilterNotFound"),
        ({"to": "nope"}, "DestinationNotFound"),
        ({"by": "nope"}, "ServiceNotFound"),
        ({"of": "nope", "to": "nope"}, "FilterNotFound"),
        ({"of": "operations"}, "FilterNotFound"),
        ({"to": "alerts"}, "DestinationNotFound"),
        ({"of": "nope", "to": "nope", "by": "nope"}, "ServiceNotFound"),
    )
    for number, (names, reason) in enumerate(missing):
        yield warned(
            subscription(f"missing-{number}", **names),
            "nope" if "nope" in names.values() else "is",
            *("Accepted", "False", reason),
        )
    wrong: tuple[dict[str, Any], ...] = (
        {"of": "Upper"},
        {"to": "a/b"},
        {"by": "other.namespace"},
        {"by": "x-headless"},
        {"by": LONG},
        {"of": ""},
        {"subscriptionState": "Paused"},
        {"repeatNotificationPolicy": "Suppress"},
        {"repeatNotificationPolicy": "Delay", "repeatNotificationCount": 1},
        {
            "repeatNotificationPolicy": "Delay",
            "repeatNotificationCount": 1,
            "repeatNotificationIntervalSeconds": 1,
        },
        {"repeatKey": ["a b"]},
        {"repeatKey": ["a", "a"]},
        {"repeatKey": "EventID"},
        {"subscriptionDurationSeconds": "1h"},
        {"filter": "alerts"},
    )
    for number, spec in enumerate(wrong):
        yield refused(subscription(f"wrong-{number}", **spec), "spec")
    halves: tuple[Any, ...] = ({}, {"filterRef": {"name": "a"}}, {"filterRef": "a"}, None)
    for number, half in enumerate(halves):
        yield refused(_resource("IndicationSubscription", f"half-{number}", half), "spec")


# ---------------------------------------------------------------- services

_GATEWAY = {"mode": "Gateway"}
_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
MOFS = (
    "class",
    "class ACME_Alert {",
    "class ACME_Alert : CIM_AlertIndication { string; };",
    "class ACME_Alert : CIM_AlertIndication { nope Bay; };",
    "class ACME_Alert : Nope_Class { };",
    "class ACME_A : ACME_B { }; class ACME_B : ACME_A { };",
    "class ACME_A : ACME_A { };",
    "instance of CIM_Fan { };",
    '#pragma include ("other.mof")',
    "class ACME_Alert : CIM_AlertIndication { string Bay; string Bay; };",
    "[Indication class ACME_Alert : CIM_AlertIndication { };",
    "class ACME_Alert CIM_AlertIndication { };",
    "/* open",
    "Größe",
)


#: Of a service that is there already.
SHARED = {"podSelector": {"matchLabels": {"app": "shared"}}}


def services() -> Iterator[Wrong]:
    for number, mof in enumerate(MOFS):
        yield refused(service(f"mof-{number}", mof=mof), "spec.mof")
    for number, spec in enumerate(_wrong_services()):
        yield refused(service(f"wrong-{number}", **spec), "spec")
    for name in ("with.dot", "x-headless", "Upper", "x" * 45):
        yield refused(service(name), "name")
    for number, (spec, reason) in enumerate(_wrong_gateways()):
        (field,) = spec
        yield warned(
            service(f"gateway-{number}", **spec), f"{field} names", "Ready", "False", reason
        )
    for number, entry in enumerate(
        ({"name": "nope"}, {"name": "alerts"}, {"name": "vendors", "key": "nope.mof"})
    ):
        reason = "ConfigMapKeyNotFound" if entry["name"] == "vendors" else "ConfigMapNotFound"
        yield warned(
            service(f"mof-from-{number}", mofFrom=[{"configMapRef": entry}]),
            f"ConfigMap {entry['name']}",
            *("Accepted", "False", reason),
        )
    not_running: tuple[dict[str, Any], ...] = (
        {"storage": {"sizeLimit": "1Gi", "storageClassName": "nope"}},
        {"template": {"imagePullSecrets": [{"name": "nope"}]}},
        {"template": {"nodeSelector": {"pool": "nope"}}},
        {"template": {"priorityClassName": "nope"}},
        {"image": "registry.example.com/nope:1"},
    )
    for number, deliverer in enumerate(not_running):
        yield told(
            service(f"no-pod-{number}", deliverer={**_GATEWAY, **deliverer}),
            *("Ready", "False", "GatewayNotRunning"),
        )
    yield warned(
        service("overlap", deliverer=SHARED),
        "podSelector",
        *("SelectorsOverlap", "True", "PodsSelectedTwice"),
    )
    yield warned(
        service("short", deliveryRetryAttempts=1, deliveryRetryIntervalSeconds=1),
        "etr",
        *("Ready", "True", "NoDeliverers"),
    )


def _wrong_gateways() -> Iterator[tuple[dict[str, Any], str]]:
    for field in ("gatewayRef", "handOverTo"):
        yield {field: {"name": "nope"}}, "GatewayNotFound"
        yield {field: {"name": "default"}}, "GatewayNotUsable"
    yield {"gatewayRef": {"name": "gateway-4"}}, "GatewayNotUsable"
    yield {"handOverTo": {"name": "gateway-5"}}, "GatewayNotUsable"


def _wrong_services() -> Iterator[dict[str, Any]]:
    yield from (
        {"classes": [{"name": "ACME_Alert"}]},
        {"classes": [{"name": "ACME Alert", "superclass": "CIM_AlertIndication"}]},
        {"classes": [{"name": "A_A", "superclass": "A_B"}, {"name": "A_B", "superclass": "A_A"}]},
        {"classes": [{"name": "A_A", "superclass": "Nope_Class"}]},
        {"classes": ["ACME_Alert"]},
        {"gatewayRef": {"name": "a"}, "deliverer": _GATEWAY},
        {"handOverTo": {"name": "a"}, "deliverer": _GATEWAY},
        {"gatewayRef": {"name": "a.b"}},
        {"publishers": [{"namespace": "payments"}]},
        {"publishers": ["payments"], "deliverer": _GATEWAY},
        {"durability": "Memory", "acknowledgement": "Durable"},
        {"acknowledgement": "Stable"},
        {"deliverer": {"replicas": 2}},
        {"deliverer": {"mode": "gateway"}},
        {"deliverer": {"mode": "DaemonSet"}},
        {"deliverer": {"podSelector": {}}},
        {"deliverer": {"podSelector": {"matchLabels": {"a b": "c"}}}},
        {"deliverer": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
        {"deliverer": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "is"}]}}},
        {"deliverer": {**_GATEWAY, "podSelector": {"matchLabels": {"a": "b"}}}},
        {"deliverer": {"template": {"nodeSelector": {"a": "b"}}}},
        {"deliverer": {"storage": {"storageClassName": "fast"}}},
        {"deliverer": {**_GATEWAY, "storage": {"sizeLimit": "1Mi"}}},
        {"deliverer": {**_GATEWAY, "storage": {"sizeLimit": "ten"}}},
        {"deliverer": {**_GATEWAY, "storage": {"sizeLimit": "-1Gi"}}},
        {"deliverer": {**_GATEWAY, "storage": {"size": "1Gi"}}},
        {"deliverer": {**_GATEWAY, "image": "a b"}},
        {"deliverer": {**_GATEWAY, "resources": {"requests": {"cpu": "lots"}}}},
        {"deliverer": {**_GATEWAY, "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}},
        {"deliverer": {**_GATEWAY, "template": {"tolerations": [{"operator": "Equal"}]}}},
        {"deliverer": {**_GATEWAY, "template": {"volumes": [{"name": "a"}]}}},
        {"deliverer": {**_GATEWAY, "template": {"volumes": [{"name": "a", "hostPath": {}}]}}},
        {
            "deliverer": {
                **_GATEWAY,
                "template": {"volumeMounts": [{"name": "nope", "mountPath": "/mnt"}]},
            }
        },
        {"deliverer": {**_GATEWAY, "template": {"topologySpreadConstraints": [_SPREAD, _SPREAD]}}},
        {"deliverer": {**_GATEWAY, "template": {"hostNetwork": True}}},
        {"deliverer": {**_GATEWAY, "template": {"priorityClassName": "Upper"}}},
        {"deliverer": {**_GATEWAY, "template": {"metadata": {"labels": {"pillion.dev/x": "y"}}}}},
        {"callbacks": ["listener"]},
        {"callbacks": ["http://a/#x"]},
        {"callbacks": ["http://[::1::2]/"]},
        {"callbacks": "http://a/"},
        {"queueFullPolicy": "Drop"},
        {"indicationLifetimeSeconds": "1d"},
        {"mofFrom": [{"secretRef": {"name": "a"}}]},
    )


def wrong_resources() -> list[Wrong]:
    """All, in the order in which they are applied."""
    return [*out_of_range(), *filters(), *destinations(), *subscriptions(), *services()]
