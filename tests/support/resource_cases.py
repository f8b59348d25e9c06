"""For every rule of the schema a resource that it refuses, and the same one mended as its remedy
says. Unit tests put them to our own validation, cluster tests to a real API server."""

from collections.abc import Mapping
from typing import Any

from support.broker_cases import BROKER_CASES
from support.credential_cases import CREDENTIAL_CASES
from support.deliverer_cases import DELIVERER_CASES
from support.kafka_cases import KAFKA_CASES
from support.mail_cases import MAIL_CASES
from support.oauth2_cases import OAUTH2_CASES
from support.proxy_cases import PROXY_CASES
from support.replay_cases import REPLAY_CASES
from support.resource_rules import Case
from support.resources import JSON
from support.response_policy_cases import RESPONSE_POLICY_CASES
from support.snmp_cases import SNMP_CASES
from support.store_cases import STORE_CASES, stores
from support.template_cases import TEMPLATE_CASES
from support.webhook_cases import WEBHOOK_CASES


def _service(path: str, says: str, refused: JSON, mended: JSON) -> Case:
    return Case(
        kind="IndicationService",
        field=path,
        says=says,
        refused=refused,
        mended=mended,
    )


def _callback(says: str, refused: str, mended: str) -> Case:
    first = "https://first.example/"
    return _service(
        "spec.callbacks[1]", says, {"callbacks": [first, refused]}, {"callbacks": [first, mended]}
    )


_BY_ITSELF = {"mode": "Gateway"}


def _gateway_names(field: str) -> tuple[Case, ...]:
    refused = (
        ("is not the name of an object", "Shared"),
        ("holds a dot", "sha.red"),
        ("ends in -headless", "shared-headless"),
    )
    names = (
        _service(f"spec.{field}.name", says, {field: {"name": name}}, {field: {"name": "shared"}})
        for says, name in refused
    )
    beside = _service(
        f"spec.{field}",
        "has no effect unless deliverer.mode is Sidecar",
        {"deliverer": _BY_ITSELF, field: {"name": "shared"}},
        {field: {"name": "shared"}},
    )
    return (*names, beside)


def _class(says: str, refused: JSON, mended: JSON, *, field: str) -> Case:
    first = {"name": "HP_AlertIndication", "superclass": "CIM_AlertIndication"}
    return _service(
        f"spec.classes[1].{field}",
        says,
        {"classes": [first, refused]},
        {"classes": [first, mended]},
    )


def _mof_from(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    given, instead = ({"mofFrom": [{"configMapRef": one}]} for one in (refused, mended))
    return _service(f"spec.mofFrom[0].configMapRef.{field}", says, given, instead)


def _copies(size: str, *, mode: str = "Gateway", **deliverer: JSON) -> JSON:
    return {"journalCopies": {"maximumBytes": size}, "deliverer": {"mode": mode, **deliverer}}


_CLASS_CASES = (
    _mof_from("name", "is not the name", {"name": "A_b"}, {"name": "a-b"}),
    _mof_from("key", "is not a key", {"name": "a", "key": "a/b"}, {"name": "a", "key": "a.b"}),
    _class(
        "is not the name of a class",
        {"name": "HP Alert", "superclass": "CIM_AlertIndication"},
        {"name": "HP_Alert", "superclass": "CIM_AlertIndication"},
        field="name",
    ),
    _class(
        "is not the name of a class",
        {"name": "HP_Alert", "superclass": "1"},
        {"name": "HP_Alert", "superclass": "CIM_AlertIndication"},
        field="superclass",
    ),
    _class(
        "is missing, and only a class of the CIM schema may have none",
        {"name": "HP_Fan"},
        {"name": "CIM_Fan"},
        field="superclass",
    ),
)

_SERVICE_CASES = (
    _service(
        "spec.history.maximumBytes",
        "is too small for a history",
        {"history": {"maximumBytes": "1023Ki"}},
        {"history": {"maximumBytes": "1Mi"}},
    ),
    _service(
        "spec.history",
        "has maximumBytes of more than a seventh",
        {"history": {"maximumBytes": "151Mi"}, "deliverer": {"storage": {"sizeLimit": "1050Mi"}}},
        {"history": {"maximumBytes": "150Mi"}, "deliverer": {"storage": {"sizeLimit": "1050Mi"}}},
    ),
    _service(
        "spec.journalCopies.maximumBytes",
        "is too small for copies",
        _copies("65535Ki"),
        _copies("64Mi"),
    ),
    _service(
        "spec.journalCopies",
        "has maximumBytes of more than half",
        _copies("501Mi", storage={"sizeLimit": "1000Mi"}),
        _copies("500Mi", storage={"sizeLimit": "1000Mi"}),
    ),
    _service(
        "spec.journalCopies",
        "has no effect unless",
        _copies("64Mi", mode="Sidecar"),
        _copies("64Mi"),
    ),
    _service(
        "spec.journalCopies",
        "needs a disk",
        {**_copies("64Mi"), "durability": "StateOnly"},
        {**_copies("64Mi"), "durability": "Disk"},
    ),
    *_CLASS_CASES,
    Case(
        kind="IndicationService",
        field="metadata.name",
        says="holds a dot",
        refused={},
        mended={},
        names=("a.b", "a-b"),
    ),
    Case(
        kind="IndicationService",
        field="metadata.name",
        says="ends in -headless",
        refused={},
        mended={},
        names=("a-headless", "headless"),
    ),
    _service(
        "spec.acknowledgement",
        "is Durable",
        {"acknowledgement": "Durable", "durability": "Memory"},
        {"acknowledgement": "Durable", "durability": "Disk"},
    ),
    _service(
        "spec.acknowledgement",
        "is Durable",
        {"acknowledgement": "Durable", "durability": "StateOnly"},
        {"acknowledgement": "Durable"},
    ),
    _service(
        "spec.acknowledgement",
        "is Stable",
        {"acknowledgement": "Stable"},
        {"acknowledgement": "Stable", "stores": stores("a")},
    ),
    *STORE_CASES,
    _service(
        "spec.stores",
        "has no effect unless",
        {"stores": stores("a"), "deliverer": {"mode": "Gateway"}},
        {"stores": stores("a")},
    ),
    _service(
        "spec.stores",
        "keeps copies of a journal",
        {"stores": stores("a"), "durability": "StateOnly"},
        {"stores": stores("a"), "durability": "Disk"},
    ),
    _callback("holds a character", "https://host/a b/", "https://host/a%20b/"),
    _callback("does not begin with", "ftp://host/", "http://host/"),
    _callback("holds a user name", "https://user:pw@host/", "https://host/"),
    _callback("holds a fragment", "https://host/#x", "https://host/%23x"),
    _callback("names no host", "https://:443/", "https://[::1]:443/"),
    _callback("names a port", "https://host:0/", "https://host:1/"),
    _callback("holds a query", "https://host/?job=1", "https://host/jobs"),
    _callback("holds a dot segment", "https://host/a/../b/", "https://host/b/"),
    _callback("holds a dot segment", "https://host/a%2Fb", "https://host/a/.b/..c/d.."),
    *_gateway_names("gatewayRef"),
    _service(
        "spec.deadLetterRef.name",
        "is not the name of an object",
        {"deadLetterRef": {"name": "Grave"}},
        {"deadLetterRef": {"name": "grave"}},
    ),
    *_gateway_names("handOverTo"),
    _service(
        "spec.publishers[0].namespace",
        "is not the name of an object",
        {"deliverer": _BY_ITSELF, "publishers": [{"namespace": "A"}]},
        {"deliverer": _BY_ITSELF, "publishers": [{"namespace": "a"}]},
    ),
    _service(
        "spec.publishers[0].serviceAccount",
        "is not the name of an object",
        {"deliverer": _BY_ITSELF, "publishers": [{"namespace": "a", "serviceAccount": "a/b"}]},
        {"deliverer": _BY_ITSELF, "publishers": [{"namespace": "a", "serviceAccount": "a-b"}]},
    ),
    _service(
        "spec.publishers",
        "has no effect unless deliverer.mode is Gateway",
        {"publishers": [{"namespace": "a"}]},
        {"publishers": []},
    ),
)

_HTTP = {"destination": "http://host/", "protocol": "CIM-XML"}
_HTTPS = {"destination": "https://host/", "protocol": "CIM-XML"}
_NOWHERE = {"protocol": "CIM-XML"}
_BASIC = {"secretRef": {"name": "account"}}


def _url_in(name: str, **key: str) -> JSON:
    return {"secretKeyRef": {"name": name, **key}}


def _destination(
    path: str, says: str, refused: JSON, mended: JSON, *, of: Mapping[str, Any] = _HTTPS
) -> Case:
    return Case(
        kind="ListenerDestination",
        field=f"spec.{path}",
        says=says,
        refused={**of, **refused},
        mended={**of, **mended},
    )


def _url(says: str, refused: str, mended: str) -> Case:
    return _destination("destination", says, {"destination": refused}, {"destination": mended})


def _tls(path: str, says: str, refused: JSON, mended: JSON) -> Case:
    return _destination(f"tls.{path}", says, {"tls": refused}, {"tls": mended})


def _scheme(protocol: str, refused: str, mended: str) -> Case:
    return _destination(
        "destination",
        f"has a scheme that {protocol} does not have",
        {"protocol": protocol, "destination": refused},
        {"protocol": protocol, "destination": mended},
    )


_PLUGIN_CASES = (
    _destination(
        "destination",
        "names nothing",
        {"protocol": "Plugin", "destination": "plugin://?a=b"},
        {"protocol": "Plugin", "destination": "plugin://a?a=b"},
    ),
    _scheme("CIM-XML", "plugin://a", "http://a"),
    _scheme("CloudEvents", "plugin://a", "http://a"),
    _scheme("Plugin", "http://a", "plugin://a"),
)

_DESTINATION_CASES = (
    _url("holds a character", "http://host/a b", "http://host/a%20b"),
    _url("does not begin with", "host/path", "https://host/path"),
    _url("holds a user name", "http://user:pw@host/", "http://host/"),
    _url("holds a fragment", "http://host/#x", "http://host/%23x"),
    _url("names no host", "http://:80/", "http://[::1]:80/"),
    _url("names a port", "http://host:65536/", "http://host:65535/"),
    *_PLUGIN_CASES,
    _tls("serverName", "is not a host", {"serverName": "a b"}, {"serverName": "a.b"}),
    _tls(
        "caSecretRef.name",
        "is not the name",
        {"caSecretRef": {"name": "CA"}},
        {"caSecretRef": {"name": "ca"}},
    ),
    _tls(
        "caSecretRef.key",
        "is not a key",
        {"caSecretRef": {"name": "ca", "key": "ca/crt"}},
        {"caSecretRef": {"name": "ca", "key": "ca.crt"}},
    ),
    _tls(
        "clientCertificateSecretRef.name",
        "is not the name",
        {"clientCertificateSecretRef": {"name": "-me"}},
        {"clientCertificateSecretRef": {"name": "me"}},
    ),
    _tls(
        "insecureSkipVerify",
        "is true, so allowCommonName",
        {"insecureSkipVerify": True, "allowCommonName": True},
        {"insecureSkipVerify": True, "allowCommonName": False},
    ),
    _tls(
        "insecureSkipVerify",
        "is true, so caSecretRef",
        {"insecureSkipVerify": True, "caSecretRef": {"name": "ca"}},
        {"insecureSkipVerify": False, "caSecretRef": {"name": "ca"}},
    ),
    _destination("tls", "has no effect", {"tls": {}}, {}, of=_HTTP),
    _destination(
        "deadLetterRef.name",
        "is not the name of an object",
        {"deadLetterRef": {"name": "Grave"}},
        {"deadLetterRef": {"name": "grave"}},
    ),
    _destination("destination", "is missing", {}, {"destination": "http://host/"}, of=_NOWHERE),
    _destination("destinationFrom", "names a second URL", {"destinationFrom": _url_in("a")}, {}),
    _destination(
        "destinationFrom.secretKeyRef.name",
        "is not the name",
        {"destinationFrom": _url_in("A")},
        {"destinationFrom": _url_in("a")},
        of=_NOWHERE,
    ),
    _destination(
        "destinationFrom.secretKeyRef.key",
        "is not a key",
        {"destinationFrom": _url_in("a", key="a b")},
        {"destinationFrom": _url_in("a", key="a_b")},
        of=_NOWHERE,
    ),
    _destination(
        "credentials.basic.secretRef.name",
        "is not the name",
        {"credentials": {"basic": {"secretRef": {"name": "a_b"}}}},
        {"credentials": {"basic": {"secretRef": {"name": "a-b"}}}},
    ),
    _destination(
        "credentials.bearer.secretRef.name",
        "is not the name",
        {"credentials": {"bearer": {"secretRef": {"name": "a..b"}}}},
        {"credentials": {"bearer": {"secretRef": {"name": "a.b"}}}},
    ),
    _destination(
        "credentials.bearer.secretRef.key",
        "is not a key",
        {"credentials": {"bearer": {"secretRef": {"name": "a", "key": "a b"}}}},
        {"credentials": {"bearer": {"secretRef": {"name": "a", "key": "a_b"}}}},
    ),
    _destination(
        "credentials", "holds none", {"credentials": {}}, {"credentials": {"basic": _BASIC}}
    ),
    _destination(
        "credentials",
        "holds more than one",
        {"credentials": {"basic": _BASIC, "bearer": _BASIC}},
        {"credentials": {"bearer": _BASIC}},
    ),
    _destination(
        "credentials",
        "would be sent unencrypted",
        {"credentials": {"basic": _BASIC}},
        {"credentials": {"basic": _BASIC}, "destination": "http://localhost:5990/x"},
        of=_HTTP,
    ),
    _destination(
        "credentials",
        "would be sent unencrypted",
        {"credentials": {"bearer": _BASIC}, "destination": "http://localhost.evil/"},
        {"credentials": {"bearer": _BASIC}, "destination": "http://127.0.0.1"},
        of=_HTTP,
    ),
    _destination(
        "retry.maximumIntervalSeconds",
        "is less than intervalSeconds",
        {"retry": {"intervalSeconds": 60, "maximumIntervalSeconds": 59}},
        {"retry": {"intervalSeconds": 60, "maximumIntervalSeconds": 60}},
    ),
    _destination(
        "maxInFlight",
        "is more than 1",
        {"maxInFlight": 2},
        {"maxInFlight": 2, "ordering": "Group"},
    ),
    _destination(
        "sequenceIdentifiers",
        "is Send",
        {"sequenceIdentifiers": "Send", "ordering": "None"},
        {"sequenceIdentifiers": "Send"},
    ),
    _destination(
        "cloudEvents",
        "has options of protocol CloudEvents",
        {"protocol": "CIM-XML", "cloudEvents": {"maxBatch": 2}},
        {"protocol": "CloudEvents", "cloudEvents": {"maxBatch": 2}},
    ),
    _destination(
        "cloudEvents.maxDelaySeconds",
        "needs a maxBatch greater than 1",
        {"protocol": "CloudEvents", "cloudEvents": {"maxDelaySeconds": 2}},
        {"protocol": "CloudEvents", "cloudEvents": {"maxDelaySeconds": 2, "maxBatch": 2}},
    ),
)

_SYSLOG = {"destination": "syslogs://host", "protocol": "Syslog"}
_FILE = {"destination": "file:///alerts.ndjson", "protocol": "File"}


def _form(says: str, of: JSON, refused: str, mended: str) -> Case:
    return _destination(
        "destination", says, {"destination": refused}, {"destination": mended}, of=of
    )


def _syslog(field: str, says: str, refused: str, mended: str) -> Case:
    return _destination(
        f"syslog.{field}",
        says,
        {"syslog": {field: refused}},
        {"syslog": {field: mended}},
        of=_SYSLOG,
    )


#: Of the protocols that are not HTTP.
_PROTOCOL_CASES = (
    *(
        _form(f"has a scheme that {name} does not have", {"protocol": name}, wrong, right)
        for name, wrong, right in (
            ("CIM-XML", "syslog://host", "http://host"),
            ("CloudEvents", "file:///alerts.ndjson", "https://host"),
            ("Syslog", "https://host", "syslogs://host"),
            ("File", "https://host", "file:///alerts.ndjson"),
        )
    ),
    _form("has a path or a query, which syslog", _SYSLOG, "syslog://host/a", "syslog://host:601/"),
    _form("names nothing", _FILE, "file:////etc", "file:///etc"),
    _form("names no file", _FILE, "file:///a/b", "file:///a.b"),
    _form("names no file", _FILE, "file:///alerts.1", "file:///alerts.1b"),
    _form("names a file with more", _FILE, f"file:///{201 * 'a'}", f"file:///{200 * 'a'}"),
    _syslog("appName", "is not an APP-NAME", "a b", "a-b"),
    _syslog("structuredDataId", "is not NAME@NUMBER", "alerts", "alerts@12345"),
    _destination("syslog", "has options of protocol Syslog", {"syslog": {}}, {}),
    _destination("file", "has options of protocol File", {"file": {}}, {}),
)

_QUERY = {"query": "SELECT * FROM CIM_AlertIndication"}

_FILTER_CASES = (
    Case(
        kind="IndicationFilter",
        field="spec.sourceNamespaces[1]",
        says="is not the name of a CIM namespace",
        refused={**_QUERY, "sourceNamespaces": ["root", "/root/cimv2"]},
        mended={**_QUERY, "sourceNamespaces": ["root", "root/cimv2"]},
    ),
)

_SUBSCRIPTION = {"filterRef": {"name": "f"}, "destinationRef": {"name": "d"}}
_REPEATS = {
    "repeatNotificationIntervalSeconds": 60,
    "repeatNotificationCount": 3,
    "repeatNotificationGapSeconds": 0,
}


def _subscription(
    path: str, says: str, refused: JSON, mended: JSON, before: JSON | None = None
) -> Case:
    return Case(
        kind="IndicationSubscription",
        field=f"spec.{path}",
        says=says,
        refused={**_SUBSCRIPTION, **refused},
        mended={**_SUBSCRIPTION, **mended},
        before=None if before is None else {**_SUBSCRIPTION, **before},
    )


def _lacks(field: str, policy: str) -> Case:
    given = {**_REPEATS, "repeatNotificationPolicy": policy}
    needed = "Delay" if field.endswith("GapSeconds") else "Suppress or Delay"
    return _subscription(
        "repeatNotificationPolicy",
        f"is {needed} without {field}",
        {name: value for name, value in given.items() if name != field},
        given,
    )


_SUBSCRIPTION_CASES = (
    _subscription(
        "serviceRef.name",
        "is not the name",
        {"serviceRef": {"name": "Default"}},
        {"serviceRef": {"name": "default"}},
    ),
    _subscription(
        "serviceRef.name",
        "holds a dot",
        {"serviceRef": {"name": "a.b"}},
        {"serviceRef": {"name": "a-b"}},
    ),
    _subscription(
        "serviceRef.name",
        "ends in -headless",
        {"serviceRef": {"name": "a-headless"}},
        {"serviceRef": {"name": "a-headless-1"}},
    ),
    _subscription(
        "filterRef.name",
        "is not the name",
        {"filterRef": {"name": "f."}},
        {"filterRef": {"name": "f.f"}},
    ),
    _subscription(
        "destinationRef.name",
        "is not the name",
        {"destinationRef": {"name": "d/d"}},
        {"destinationRef": {"name": "d"}},
    ),
    _subscription(
        "repeatKey[0]",
        "is not the name of a CIM property",
        {"repeatKey": ["2nd"]},
        {"repeatKey": ["Second"]},
    ),
    _lacks("repeatNotificationIntervalSeconds", "Suppress"),
    _lacks("repeatNotificationIntervalSeconds", "Delay"),
    _lacks("repeatNotificationCount", "Suppress"),
    _lacks("repeatNotificationCount", "Delay"),
    _lacks("repeatNotificationGapSeconds", "Delay"),
    _subscription(
        "serviceRef",
        "cannot be changed",
        {"serviceRef": {"name": "other"}},
        {"serviceRef": {"name": "default"}, "filterRef": {"name": "other"}},
        before={},
    ),
    _subscription(
        "destinationRef",
        "cannot be changed",
        {"destinationRef": {"name": "other"}},
        {"subscriptionState": "Disabled"},
        before={},
    ),
)

CASES = (
    *DELIVERER_CASES,
    *TEMPLATE_CASES,
    *_SERVICE_CASES,
    *_DESTINATION_CASES,
    *_PROTOCOL_CASES,
    *CREDENTIAL_CASES,
    *BROKER_CASES,
    *KAFKA_CASES,
    *WEBHOOK_CASES,
    *OAUTH2_CASES,
    *PROXY_CASES,
    *RESPONSE_POLICY_CASES,
    *SNMP_CASES,
    *MAIL_CASES,
    *_FILTER_CASES,
    *_SUBSCRIPTION_CASES,
    *REPLAY_CASES,
)
