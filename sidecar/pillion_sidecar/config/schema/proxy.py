"""HTTP proxies between a deliverer and its listeners (RFC 9110 9.3.6, RFC 9112 3.2.2)."""

from enum import StrEnum

from pillion_sidecar.config.schema.common import reference
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.schema.urls import HTTP, url_rules
from pillion_sidecar.fields import (
    Rule,
    Text,
    declared,
    matching,
    resource,
    structure,
)

_SCHEMES = tuple(scheme for scheme in HTTP if not scheme.is_secure)
PROXY_URL = Text(
    min_length=1,
    max_length=2048,
    rules=(
        *url_rules(
            _SCHEMES,
            credentials="Put them into a Secret, and name it in proxy.secretRef of a destination.",
        ),
        matching(
            "[^/]*//[^/?#]*/?",
            when=r"(?i:http)://[^/?#@]*([/?][A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]*)?",
            message="holds a path or a query, which a proxy does not have",
            remedy="Write scheme, host and port alone.",
        ),
    ),
)


class ConnectTo(StrEnum):
    ADDRESS = "Address"
    NAME = "Name"


_ABOUT_CONNECT_TO = (
    "What a tunnel to an https listener (CONNECT) leads to. Address: an address of the listener "
    "that the deliverer has resolved and found allowed. Name: the listener's host name, for "
    "proxies that permit names only. The proxy then resolves it again, so a forbidden address is "
    "for the proxy to refuse."
)


@resource
class ServiceProxy:
    url: str = declared(
        type=PROXY_URL,
        description="The URL of the proxy: http://host:port.",
    )
    connect_to: ConnectTo = declared(
        default=ConnectTo.ADDRESS,
        description=_ABOUT_CONNECT_TO,
    )


@resource
class Proxy:
    """Of one destination."""

    #: None: no proxy.
    url: str | None = declared(
        default=None,
        type=PROXY_URL,
        assumed="no proxy, even if the service has one",
        description="The URL of the proxy: http://host:port.",
    )
    connect_to: ConnectTo = declared(
        default=ConnectTo.ADDRESS,
        description=_ABOUT_CONNECT_TO,
    )
    #: User name and password.
    credentials: Credentials | None = declared(
        default=None,
        name="secretRef",
        type=reference("Secret"),
        assumed="no credentials",
        description='The Secret, labelled pillion.dev/credentials: "true", with the keys username '
        "and password for the proxy.",
    )


SERVICE_PROXY = structure(ServiceProxy)
PROXY = structure(
    Proxy,
    rules=(
        Rule(
            cel="has(self.url) || !has(self.secretRef)",
            holds=lambda proxy: "url" in proxy or "secretRef" not in proxy,
            field="secretRef",
            message="has no effect without url",
            remedy="Write the URL of the proxy, or remove it.",
        ),
    ),
)
