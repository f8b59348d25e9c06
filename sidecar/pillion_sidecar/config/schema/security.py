"""How a destination is trusted, and told who calls: the ``tls`` and ``credentials`` blocks."""

import operator
from dataclasses import dataclass, field

from pillion_sidecar.config.schema.fields import Field, JSONObject, Rule, Struct, Text
from pillion_sidecar.config.schema.rules import (
    cel_matches,
    matching,
    reference,
    secret_key_reference,
    whole,
)
from pillion_sidecar.config.schema.urls import LOOPBACK, PLAIN
from pillion_sidecar.config.schema.values import declared, resource, structure

_LABELLED = 'labelled pillion.dev/credentials: "true"'


@resource
class TLSOptions:
    """How a TLS listener is met. PEM bytes come from Secrets."""

    verify: bool = declared(
        default=True,
        name="insecureSkipVerify",
        json_default=False,
        convert=operator.not_,
        description="Whether any certificate is accepted. For trials only: an attacker in between "
        "can then read and answer everything.",
    )
    server_name: str | None = declared(
        default=None,
        type=Text(
            min_length=1,
            max_length=253,
            rules=(
                matching(
                    "[A-Za-z0-9.:_-]+",
                    message="is not a host name",
                    remedy="Write the name that the listener's certificate is made out to.",
                ),
            ),
        ),
        assumed="the host of `destination`",
        description="The name that the listener's certificate must be made out to, where that is "
        "not the host of the URL.",
    )
    #: Whether a name in the certificate's subject counts where it has no subjectAltName.
    allow_common_name: bool = declared(
        default=False,
        # No default: deliverers of earlier versions refuse fields that they do not know.
        assumed="false",
        description="Whether a certificate without subjectAltName may name the listener in the "
        "common name (CN) of its subject alone. RFC 9525 forbids it, so such a certificate is "
        "refused unless this is true. A name only: an IP address must stand in subjectAltName.",
    )
    ca_certificates: bytes | None = declared(
        default=None,
        name="caSecretRef",
        type=secret_key_reference("the certificates, in PEM", key="ca.crt"),
        assumed="the authorities that the system trusts",
        description=f"The Secret, {_LABELLED}, with the authorities that the listener's "
        "certificate must come from, instead of those that the system trusts.",
    )
    client_certificate: bytes | None = declared(
        default=None,
        name="clientCertificateSecretRef",
        type=reference("Secret"),
        description=f"The Secret of type kubernetes.io/tls, {_LABELLED}, whose tls.crt and "
        "tls.key the deliverer shows to the listener.",
    )
    client_key: bytes | None = field(default=None, repr=False)


TLS = structure(
    TLSOptions,
    rules=(
        Rule(
            cel="!self.insecureSkipVerify || !has(self.caSecretRef)",
            holds=lambda tls: not tls["insecureSkipVerify"] or "caSecretRef" not in tls,
            field="insecureSkipVerify",
            message="is true, so caSecretRef would have no effect",
            remedy="Remove one of the two.",
        ),
        Rule(
            cel="!self.insecureSkipVerify || !has(self.allowCommonName) || !self.allowCommonName",
            holds=lambda tls: not (tls["insecureSkipVerify"] and tls.get("allowCommonName")),
            field="insecureSkipVerify",
            message="is true, so allowCommonName would have no effect",
            remedy="Remove one of the two.",
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Basic (username and password) or bearer (token) credentials."""

    username: str | None = None
    password: str | None = None
    bearer_token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


CREDENTIALS = Struct(
    fields=(
        Field(
            name="basic",
            type=Struct(
                fields=(
                    Field(
                        name="secretRef",
                        type=reference("Secret"),
                        required=True,
                        description=f"The Secret, {_LABELLED}, with the keys username and "
                        "password.",
                    ),
                )
            ),
            description="A user name and a password (RFC 7617).",
        ),
        Field(
            name="bearer",
            type=Struct(
                fields=(
                    Field(
                        name="secretRef",
                        type=secret_key_reference("the token", key="token"),
                        required=True,
                        description=f"The Secret, {_LABELLED}, with the token.",
                    ),
                )
            ),
            description="A token (RFC 6750).",
        ),
    ),
    rules=(
        Rule(
            cel="has(self.basic) != has(self.bearer)",
            holds=lambda credentials: ("basic" in credentials) != ("bearer" in credentials),
            message="holds both basic and bearer, or neither",
            remedy="Write exactly one of the two.",
        ),
    ),
)

URL_SOURCE = Struct(
    fields=(
        Field(
            name="secretKeyRef",
            type=secret_key_reference("the URL", key="url"),
            required=True,
            description=f"The Secret, {_LABELLED}, with the URL.",
        ),
    )
)

#: A destination has one URL: it is written, or it is in a Secret.
URL_SOURCE_RULES = (
    Rule(
        cel="has(self.destination) || has(self.destinationFrom)",
        holds=lambda spec: "destination" in spec or "destinationFrom" in spec,
        field="destination",
        message="is missing",
        remedy="Write the URL of the listener, or name its Secret in destinationFrom.",
    ),
    Rule(
        cel="!has(self.destination) || !has(self.destinationFrom)",
        holds=lambda spec: "destination" not in spec or "destinationFrom" not in spec,
        field="destinationFrom",
        message="names a URL in a Secret beside the one in destination",
        remedy="Remove one of the two.",
    ),
)

_is_plain = whole(PLAIN)
_is_loopback = whole(LOOPBACK)


def _tls_is_used(spec: JSONObject) -> bool:
    return "tls" not in spec or not _is_plain(spec.get("destination", ""))


def _credentials_stay_secret(spec: JSONObject) -> bool:
    url = spec.get("destination", "")
    return "credentials" not in spec or not _is_plain(url) or _is_loopback(url)


#: Rules over the whole spec of a destination. Of a URL in a Secret the deliverer asks them.
SECURITY_RULES = (
    Rule(
        cel="!has(self.tls) || !has(self.destination) || "
        f"!{cel_matches('self.destination', PLAIN)}",
        holds=_tls_is_used,
        field="tls",
        message="has no effect on a destination that is not https",
        remedy="Write https:// in destination, or remove tls.",
    ),
    Rule(
        cel="!has(self.credentials) || !has(self.destination) || "
        f"!{cel_matches('self.destination', PLAIN)} || "
        f"{cel_matches('self.destination', LOOPBACK)}",
        holds=_credentials_stay_secret,
        field="credentials",
        message="would travel readable by anyone on the way, since destination is not https",
        remedy="Write https:// in destination. (Plain http may carry them to loopback only.)",
    ),
)
