"""The publisher: the service account that a token was issued to."""

import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from aiohttp import web

#: The form of ``sub`` in Kubernetes: the namespace is a DNS label, the service account a DNS
#: subdomain (RFC 1123).
_SUBJECT = re.compile(
    r"system:serviceaccount:(?P<namespace>[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)"
    r":(?P<service_account>[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?)"
)


@dataclass(frozen=True, slots=True)
class Principal:
    """A service account. At a gateway its namespace is the scope of all names."""

    namespace: str
    service_account: str

    def __str__(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.service_account}"

    @classmethod
    def of_subject(cls, subject: object) -> "Principal | None":
        """Return the service account in a token's ``sub``."""
        found = _SUBJECT.fullmatch(subject) if isinstance(subject, str) else None
        return None if found is None else cls(found["namespace"], found["service_account"])


#: The sender of a request, if tokens are required.
PRINCIPAL = web.RequestKey("principal", Principal)

#: Whether it is of the gateway's own namespace.
IS_OF_GATEWAY = web.RequestKey("is_of_gateway", bool)


#: Whether it is of a gateway of the gateway's own namespace.
IS_FROM_GATEWAY = web.RequestKey("is_from_gateway", bool)
#: Begins the service accounts that the operator makes for gateways.
_GATEWAY_ACCOUNT = "pillion-"


def own_principal(token: bytes) -> Principal | None:
    """Return whose token this process sends itself. The token is not verified."""
    try:
        _, claims, _ = token.split(b".")
        said = msgspec.json.decode(urlsafe_b64decode(claims + b"=="))
    except (ValueError, RecursionError):
        return None
    return Principal.of_subject(said.get("sub")) if isinstance(said, dict) else None


def is_gateway(one: Principal, *, namespace: str | None, own: Principal | None) -> bool:
    """Return whether a principal is a gateway of the gateway's own ``namespace``. ``own``: the
    gateway's own principal, whatever its name; None: it is not known."""
    if one == own:
        return True
    return one.namespace == namespace and one.service_account.startswith(_GATEWAY_ACCOUNT)


def may_relay(request: web.BaseRequest) -> bool:
    """Return whether a request may come from a sidecar of this gateway: only its own namespace.

    Relayed indications bypass all filters, so no other publisher may send them.
    """
    return IS_OF_GATEWAY not in request or request[IS_OF_GATEWAY]


def namespace_of(request: web.BaseRequest) -> str | None:
    principal = request.get(PRINCIPAL)
    return None if principal is None else principal.namespace


class Turned(StrEnum):
    """Why a gateway refused a request before it read the body."""

    #: No keys to verify a token: answered 503.
    NO_KEYS = "no-keys"
    #: Answered 401, like the others except the last.
    MISSING = "missing"
    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown-key"
    SIGNATURE = "signature"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    SUBJECT = "subject"
    #: A valid token of a service account that is not among ``publishers``: answered 403.
    FORBIDDEN = "forbidden"
