"""A listener's TLS and authentication, and what its protocol asks of a destination."""

import json
import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import combinations

from pillion_sidecar.config.schema.common import LABELLED, reference, secret_key_reference
from pillion_sidecar.config.schema.oauth2 import OAuth2
from pillion_sidecar.config.schema.urls import (
    HOSTED,
    LOOPBACK,
    NAMED,
    NOT_SECURE,
    PLAIN,
    is_loopback,
    listed,
    one_of_schemes,
)
from pillion_sidecar.config.signing import SigningKey
from pillion_sidecar.config.usm import SNMPCredentials
from pillion_sidecar.fields import (
    Field,
    JSONObject,
    ListOf,
    Rule,
    cel_matches,
    declared,
    required,
    resource,
    structure,
    text_matching,
    whole,
)
from pillion_sidecar.protocols import Protocol, Scheme, URLForm, schemes_of


def protocol_rules(protocols: Iterable[Protocol]) -> tuple[Rule, ...]:
    """Rules over the spec of a destination: what its protocol refuses and others accept."""
    known = tuple(protocols)
    schemes = schemes_of(known)
    kinds = dict.fromkeys(kind for protocol in known for kind in protocol.credentials)
    rules = []
    for protocol in known:
        if {one.name for one in protocol.schemes} != {one.name for one in schemes}:
            rules.append(_scheme_rule(protocol, known=schemes))
        place = NAMED if None in protocol.ports.values() else HOSTED
        usual = f"{one_of_schemes(protocol.schemes)}://{place}"
        rules += [_form_rule(protocol, form, when=usual) for form in protocol.url_forms]
        rules += [_kind_rule(protocol, kind) for kind in kinds if kind not in protocol.credentials]
        rules += [_required_rule(protocol, kind) for kind in protocol.required_credentials]
        if protocol.options is not None:
            rules.append(_options_rule(protocol))
        if protocol.options_required:
            rules.append(_options_required_rule(protocol))
        rules += protocol.rules
    if not all(protocol.takes_proxy for protocol in known):
        rules.append(_proxy_rule(known))
    return tuple(rules)


def _proxy_rule(protocols: Iterable[Protocol]) -> Rule:
    names = tuple(protocol.name for protocol in protocols if protocol.takes_proxy)
    return Rule(
        cel=f"!has(self.proxy) || self.protocol in {json.dumps(names)}",
        holds=lambda spec: "proxy" not in spec or spec["protocol"] in names,
        field="proxy",
        message="has no effect, since the protocol is not over HTTP",
        remedy="Remove it, or choose another protocol.",
    )


def _scheme_rule(protocol: Protocol, *, known: Collection[Scheme]) -> Rule:
    form = URLForm(
        regex=f"{one_of_schemes(protocol.schemes)}://.*",
        message=f"has a scheme that {protocol.name} does not have",
        remedy=f"Begin it with {listed(protocol.schemes)}.",
    )
    return _form_rule(protocol, form, when=f"{one_of_schemes(known)}://.*")


def _form_rule(protocol: Protocol, form: URLForm, *, when: str) -> Rule:
    """``when``: other URLs break a rule for all protocols."""
    concerned, fits = whole(when), whole(form.regex)
    return Rule(
        cel=f"self.protocol != {json.dumps(protocol.name)} || !has(self.destination) || "
        f"!{cel_matches('self.destination', when)} || "
        f"{cel_matches('self.destination', form.regex)}",
        holds=lambda spec: (
            spec["protocol"] != protocol.name
            or "destination" not in spec
            or not concerned(spec["destination"])
            or fits(spec["destination"])
        ),
        field="destination",
        message=form.message,
        remedy=form.remedy,
    )


def _options_rule(protocol: Protocol) -> Rule:
    name = protocol.options_name
    return Rule(
        cel=f"self.protocol == {json.dumps(protocol.name)} || !has(self.{name})",
        holds=lambda spec: spec["protocol"] == protocol.name or name not in spec,
        field=name,
        message=f"has options of protocol {protocol.name}, which is not the protocol",
        remedy=f"Remove it, or set protocol to {protocol.name}.",
    )


def _options_required_rule(protocol: Protocol) -> Rule:
    name = protocol.options_name
    return Rule(
        cel=f"self.protocol != {json.dumps(protocol.name)} || has(self.{name})",
        holds=lambda spec: spec["protocol"] != protocol.name or name in spec,
        field=name,
        message=f"is missing, and protocol {protocol.name} needs it",
        remedy="Write it.",
    )


def _required_rule(protocol: Protocol, kind: str) -> Rule:
    return Rule(
        cel=f"self.protocol != {json.dumps(protocol.name)} || (has(self.credentials) && "
        f"has(self.credentials.{kind}))",
        holds=lambda spec: spec["protocol"] != protocol.name or kind in spec.get("credentials", {}),
        field="credentials",
        message=f"has no {kind}, which {protocol.name} needs",
        remedy=f"Name the Secret in credentials.{kind}.",
    )


def _kind_rule(protocol: Protocol, kind: str) -> Rule:
    return Rule(
        cel=f"self.protocol != {json.dumps(protocol.name)} || !has(self.credentials) || "
        f"!has(self.credentials.{kind})",
        holds=lambda spec: (
            spec["protocol"] != protocol.name or kind not in spec.get("credentials", {})
        ),
        field="credentials",
        message=f"holds {kind}, which {protocol.name} cannot send",
        remedy="Remove it, or choose another protocol.",
    )


@resource
class TLSOptions:
    """PEM bytes come from Secrets."""

    verify: bool = declared(
        default=True,
        name="insecureSkipVerify",
        json_default=False,
        convert=operator.not_,
        description="Whether to accept any certificate. For tests only: an attacker on the "
        "network path can then read and forge everything.",
    )
    server_name: str | None = declared(
        default=None,
        type=text_matching(
            "[A-Za-z0-9.:_-]+",
            max_length=253,
            message="is not a host name",
            remedy="Write the name in the listener's certificate.",
        ),
        assumed="the host of `destination`",
        description="The name that the listener's certificate must contain, if it is not the "
        "host of the URL.",
    )
    #: Accept a subject's common name if there is no subjectAltName.
    allow_common_name: bool = declared(
        default=False,
        # No default: earlier deliverers refuse unknown fields.
        assumed="false",
        description="Whether to accept a certificate without subjectAltName that names the "
        "listener only in the common name (CN) of its subject. RFC 9525 forbids it, "
        "so the default refuses such a certificate. An IP address must be in "
        "subjectAltName.",
    )
    ca_certificates: bytes | None = declared(
        default=None,
        name="caSecretRef",
        type=secret_key_reference("the certificates, in PEM", key="ca.crt"),
        assumed="the authorities that the system trusts",
        description=f"The Secret, {LABELLED}, with the listener's certificate authorities, "
        "instead of those that the system trusts.",
    )
    client_certificate: bytes | None = declared(
        default=None,
        name="clientCertificateSecretRef",
        type=reference("Secret"),
        description=f"The Secret of type kubernetes.io/tls, {LABELLED}, with the tls.crt "
        "and tls.key that the deliverer presents to the listener.",
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
    """At most one of basic (username and password), bearer (token) and OAuth 2.0 is set."""

    username: str | None = None
    password: str | None = None
    bearer_token: str | None = None
    oauth2: OAuth2 | None = None
    #: For the body of a request.
    api_key: str | None = None
    signing: tuple[SigningKey, ...] = ()
    snmp: SNMPCredentials | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


#: Kinds of credentials that are sent, and all.
_IN_HEADER = ("basic", "bearer", "oauth2")
_SENT = (*_IN_HEADER, "apiKey")
_KINDS = (*_SENT, "signing", "snmp")
MOST_SIGNING_SECRETS = 5

BASIC = structure(
    required(
        "secretRef",
        reference("Secret"),
        f"The Secret, {LABELLED}, with the keys username and password.",
    )
)
BEARER = structure(
    required(
        "secretRef",
        secret_key_reference("the token", key="token"),
        f"The Secret, {LABELLED}, with the token.",
    )
)
CREDENTIALS = structure(
    Field(
        "basic",
        BASIC,
        "A user name and a password (RFC 7617).",
    ),
    Field(
        "bearer",
        BEARER,
        "A token (RFC 6750).",
    ),
    Field(
        "oauth2",
        structure(OAuth2),
        "A client of OAuth 2.0 (RFC 6749, client credentials grant): the deliverer gets a bearer "
        "token from the token endpoint, and another one before it expires.",
    ),
    Field(
        "apiKey",
        structure(
            required(
                "secretRef",
                secret_key_reference("the key", key="key"),
                f"The Secret, {LABELLED}, with the key.",
            )
        ),
        "A key that is sent in the body: the routing key of PagerDuty, or ${apiKey} of a template.",
    ),
    Field(
        "signing",
        structure(
            required(
                "secretRefs",
                ListOf(
                    item=secret_key_reference("the signing secret", key="secret"),
                    max_items=MOST_SIGNING_SECRETS,
                    atomic=True,
                ),
                f"The Secrets, {LABELLED}, with the signing secrets: one, or several while they "
                "are replaced. A request has a signature of each.",
            ),
            rules=(
                Rule(
                    cel="size(self.secretRefs) > 0",
                    holds=lambda signing: len(signing["secretRefs"]) > 0,
                    field="secretRefs",
                    message="is empty",
                    remedy="Name the Secret with the signing secret.",
                ),
            ),
        ),
        "The secrets that sign requests (Standard Webhooks). They are not sent.",
    ),
    Field(
        "snmp",
        structure(
            required(
                "secretRef",
                reference("Secret"),
                f"The Secret, {LABELLED}, with the key community for v2c; with the keys username, "
                "authPassphrase and privPassphrase for v3.",
            )
        ),
        "The community of SNMP v2c, which is sent readable, or the user of v3.",
    ),
    rules=(
        Rule(
            cel=" || ".join(f"has(self.{kind})" for kind in _KINDS),
            holds=lambda credentials: len(credentials) > 0,
            message=f"holds none of {', '.join(_KINDS)}",
            remedy="Write one of them, or remove credentials.",
        ),
        Rule(
            cel=" && ".join(
                f"(!has(self.{one}) || !has(self.{other}))"
                for one, other in combinations(_IN_HEADER, 2)
            ),
            holds=lambda credentials: sum(kind in credentials for kind in _IN_HEADER) <= 1,
            message="holds more than one of basic, bearer and oauth2",
            remedy="Keep one of them.",
        ),
    ),
)

URL_SOURCE = structure(
    required(
        "secretKeyRef",
        secret_key_reference("the URL", key="url"),
        f"The Secret, {LABELLED}, with the URL.",
    )
)

#: A URL is written, or it is in a Secret.
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
        message="names a second URL besides destination",
        remedy="Remove one of the two.",
    ),
)

_is_not_secure = whole(NOT_SECURE)
_is_plain = whole(PLAIN)


def _tls_is_used(spec: JSONObject) -> bool:
    return "tls" not in spec or not _is_not_secure(spec.get("destination", ""))


def _credentials_stay_secret(spec: JSONObject) -> bool:
    url = spec.get("destination", "")
    is_sent = any(kind in spec.get("credentials", {}) for kind in _SENT)
    is_local = is_loopback(url) and "url" not in spec.get("proxy", {})
    return not is_sent or not _is_plain(url) or is_local


#: Rules over a destination's spec; the deliverer checks a URL in a Secret.
SECURITY_RULES = (
    Rule(
        cel="!has(self.tls) || !has(self.destination) || "
        f"!{cel_matches('self.destination', NOT_SECURE)}",
        holds=_tls_is_used,
        field="tls",
        message="has no effect on a destination without TLS",
        remedy="Begin destination with a scheme that has TLS, such as https://, or remove tls.",
    ),
    Rule(
        cel="!has(self.credentials) || "
        f"!({' || '.join(f'has(self.credentials.{kind})' for kind in _SENT)}) || "
        f"!has(self.destination) || !{cel_matches('self.destination', PLAIN)} || "
        f"({cel_matches('self.destination', LOOPBACK)} && "
        "!(has(self.proxy) && has(self.proxy.url)))",
        holds=_credentials_stay_secret,
        field="credentials",
        message="would be sent unencrypted, since destination is without TLS",
        remedy="Begin destination with a scheme that has TLS, such as https://. (Without TLS they "
        "may be sent to loopback only, without a proxy.)",
    ),
)
