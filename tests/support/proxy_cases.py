"""The cases of the rules of HTTP proxies; see ``support.resource_cases``."""

from support.resource_rules import Case
from support.resources import JSON

_EVENTS: JSON = {"destination": "https://host/", "protocol": "CloudEvents"}
_SYSLOG: JSON = {"destination": "syslogs://host", "protocol": "Syslog"}
#: Loopback may get credentials without TLS.
_LOCAL: JSON = {
    "destination": "http://localhost/",
    "protocol": "CloudEvents",
    "credentials": {"basic": {"secretRef": {"name": "a"}}},
}
_PROXY: JSON = {"url": "http://proxy:3128"}
_URLS = (
    ("holds a character", "http://host/a b", "http://host/"),
    ("does not begin with", "https://proxy:3128/", "http://proxy:3128/"),
    ("holds a user name", "http://user:pw@proxy/", "http://proxy/"),
    ("holds a fragment", "http://proxy#x", "http://proxy"),
    ("names no host", "http://:80/", "http://[fd00::1]:80/"),
    ("names a port", "http://proxy:65536", "http://proxy:65535"),
    ("holds a path", "http://proxy/path", "http://proxy/"),
)


def _of_destination(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    given, instead = ({**_EVENTS, "proxy": one} for one in (refused, mended))
    return Case(kind="ListenerDestination", field=field, says=says, refused=given, mended=instead)


PROXY_CASES = (
    *(
        _of_destination("spec.proxy.url", says, {"url": refused}, {"url": mended})
        for says, refused, mended in _URLS
    ),
    *(
        Case(
            kind="IndicationService",
            field="spec.proxy.url",
            says=says,
            refused={"proxy": {"url": refused}},
            mended={"proxy": {"url": mended}},
        )
        for says, refused, mended in _URLS
    ),
    _of_destination(
        "spec.proxy.secretRef",
        "has no effect",
        {"secretRef": {"name": "a"}},
        {**_PROXY, "secretRef": {"name": "a"}},
    ),
    _of_destination(
        "spec.proxy.secretRef.name",
        "is not the",
        {**_PROXY, "secretRef": {"name": "A"}},
        {**_PROXY, "secretRef": {"name": "a"}},
    ),
    Case(
        kind="ListenerDestination",
        field="spec.credentials",
        says="would be sent unencrypted",
        refused={**_LOCAL, "proxy": _PROXY},
        mended={**_LOCAL, "proxy": {}},
    ),
    Case(
        kind="ListenerDestination",
        field="spec.proxy",
        says="has no effect, since",
        refused={**_SYSLOG, "proxy": _PROXY},
        mended=_SYSLOG,
    ),
)
