"""A listener's URL, TLS and authentication. DSP1054 assumes http for a Destination without scheme.
Pillion refuses it: silently doing without TLS is mostly a mistake."""

import json
import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pillion_sidecar.config.schema.common import reference, secret_key_reference
from pillion_sidecar.config.signing import SigningKey
from pillion_sidecar.fields import (
    Field,
    JSONObject,
    ListOf,
    Rule,
    Text,
    cel_matches,
    declared,
    matching,
    required,
    resource,
    structure,
    text_matching,
    unlike,
    whole,
)
from pillion_sidecar.protocols import PROTOCOLS, Protocol, Scheme, URLForm, schemes_of

_SCHEMES = schemes_of(PROTOCOLS.values())


def _one_of(schemes: Iterable[Scheme]) -> str:
    names = {scheme.name for scheme in schemes}
    pairs = {name for name in names if f"{name}s" in names}
    single = names - pairs - {f"{name}s" for name in pairs}
    return f"(?i:{'|'.join(sorted([*(f'{name}s?' for name in pairs), *single]))})"


def _listed(schemes: Iterable[Scheme]) -> str:
    *others, last = (f"{scheme.name}://" for scheme in schemes)
    return f"{', '.join(others)} or {last}" if others else last


_HTTP = tuple(scheme for scheme in _SCHEMES if scheme.name in ("http", "https"))
# Each deliverer judges which texts with two colons are IPv6 addresses.
_HOST = r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_REST = "([/?#].*)?"
#: A name or a path behind ``://``.
_NAMED = f"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?{_REST}|/[^/?#].*)"
_LOOPBACK = r"((?i:localhost)|127\.[0-9]+\.[0-9]+\.[0-9]+|\[::1\])"

_NETWORK = tuple(one for one in _SCHEMES if one.port is not None)
#: URLs without TLS, those of them that name a host, and those on this machine.
NOT_SECURE = f"{_one_of(one for one in _SCHEMES if not one.is_secure)}://.*"
PLAIN = f"{_one_of(one for one in _NETWORK if not one.is_secure)}://.*"
LOOPBACK = f"{_one_of(_NETWORK)}://{_LOOPBACK}(:[0-9]*)?{_REST}"


def _url_rules(schemes: tuple[Scheme, ...], *, credentials: str) -> tuple[Rule, ...]:
    """Rules of URLs with one of ``schemes``; ``credentials``: the remedy for a user name in it."""
    scheme = f"{_one_of(schemes)}://"
    return (
        matching(
            r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*",
            message="holds a character that no URL may hold",
            remedy="Write spaces and letters outside ASCII as %XX, "
            "and an international host name in its xn-- form.",
        ),
        matching(
            f"{scheme}.*",
            message=f"does not begin with {_listed(schemes)}",
            remedy="Write the scheme in front of the host, such as https://host/path.",
        ),
        matching(
            f"{scheme}[^/?#@]*{_REST}",
            when=f"{scheme}.*",
            message="holds a user name or password",
            remedy=credentials,
        ),
        matching(
            "[^#]*",
            message="holds a fragment (#), which is never sent",
            remedy="Remove it, or write # as %23.",
        ),
        *_host_rules([one for one in schemes if one.port is not None]),
        *_name_rules([one for one in schemes if one.port is None]),
    )


def _host_rules(schemes: Collection[Scheme]) -> tuple[Rule, ...]:
    """Rules of URLs with a host."""
    scheme = f"{_one_of(schemes)}://"
    return (
        matching(
            f"{scheme}{_HOST}(:[^/?#]*)?{_REST}",
            when=f"{scheme}[^/?#@]*{_REST}",
            message="names no host",
            remedy="Write a host name of letters, digits, '-', '_' and single dots, an IPv4 "
            "address, or an IPv6 address in brackets.",
        ),
        matching(
            f"{scheme}{_HOST}:{_PORT}{_REST}",
            when=f"{scheme}{_HOST}:[^/?#@]*{_REST}",
            message="names a port outside 1 to 65535",
            remedy="Write a port in this range, or none for the default of the protocol.",
        ),
    )


def _name_rules(schemes: Collection[Scheme]) -> tuple[Rule, ...]:
    """Rules of URLs with a name or a path instead of a host."""
    if not schemes:
        return ()
    scheme = f"{_one_of(schemes)}://"
    return (
        matching(
            f"{scheme}{_NAMED}",
            when=f"{scheme}[^/?#@]*{_REST}",
            message="names nothing",
            remedy="Write a name of letters, digits, '-', '_' and '.' after ://, or a path after "
            ":///.",
        ),
    )


URL = Text(
    min_length=1,
    max_length=2048,
    rules=_url_rules(
        _SCHEMES,
        credentials="Put them into a Secret, and name it in credentials.basic.",
    ),
)

#: A prefix has scheme, host, port and first path segments of a URL.
PREFIX = Text(
    min_length=1,
    max_length=2048,
    rules=(
        *_url_rules(_HTTP, credentials="Remove them: callbacks carry none."),
        matching(
            r"[^?]*",
            message="holds a query (?), which a prefix cannot have",
            remedy="Remove the query.",
        ),
        unlike(
            r".*%(2[eEfF]|5[cC]).*|.*/\.\.?(/.*)?",
            message="holds a dot segment, or an encoded dot, slash or backslash",
            remedy="Write the path without them; paths are compared as written.",
        ),
    ),
)


def protocol_rules(protocols: Iterable[Protocol]) -> tuple[Rule, ...]:
    """Rules over the spec of a destination: what its protocol refuses and others accept."""
    known = tuple(protocols)
    schemes = schemes_of(known)
    kinds = dict.fromkeys(kind for protocol in known for kind in protocol.credentials)
    rules = []
    for protocol in known:
        if {one.name for one in protocol.schemes} != {one.name for one in schemes}:
            rules.append(_scheme_rule(protocol, known=schemes))
        names = f"{_one_of(protocol.schemes)}://{_NAMED}"
        rules += [_form_rule(protocol, form, when=names) for form in protocol.url_forms]
        rules += [_kind_rule(protocol, kind) for kind in kinds if kind not in protocol.credentials]
        rules += [_required_rule(protocol, kind) for kind in protocol.required_credentials]
        if protocol.options is not None:
            rules.append(_options_rule(protocol))
        if protocol.options_required:
            rules.append(_options_required_rule(protocol))
        rules += protocol.rules
    return tuple(rules)


def _scheme_rule(protocol: Protocol, *, known: Collection[Scheme]) -> Rule:
    form = URLForm(
        regex=f"{_one_of(protocol.schemes)}://.*",
        message=f"has a scheme that {protocol.name} does not have",
        remedy=f"Begin it with {_listed(protocol.schemes)}.",
    )
    return _form_rule(protocol, form, when=f"{_one_of(known)}://.*")


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


_LABELLED = 'labelled pillion.dev/credentials: "true"'


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
        description=f"The Secret, {_LABELLED}, with the listener's certificate authorities, "
        "instead of those that the system trusts.",
    )
    client_certificate: bytes | None = declared(
        default=None,
        name="clientCertificateSecretRef",
        type=reference("Secret"),
        description=f"The Secret of type kubernetes.io/tls, {_LABELLED}, with the tls.crt "
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
    """At most one of basic (username and password) and bearer (token) is set."""

    username: str | None = None
    password: str | None = None
    bearer_token: str | None = None
    #: For the body of a request.
    api_key: str | None = None
    signing: tuple[SigningKey, ...] = ()

    def __repr__(self) -> str:
        return "Credentials(…)"


#: Kinds of credentials that are sent, and all.
_SENT = ("basic", "bearer", "apiKey")
_KINDS = (*_SENT, "signing")
MOST_SIGNING_SECRETS = 5

CREDENTIALS = structure(
    Field(
        "basic",
        structure(
            required(
                "secretRef",
                reference("Secret"),
                f"The Secret, {_LABELLED}, with the keys username and password.",
            )
        ),
        "A user name and a password (RFC 7617).",
    ),
    Field(
        "bearer",
        structure(
            required(
                "secretRef",
                secret_key_reference("the token", key="token"),
                f"The Secret, {_LABELLED}, with the token.",
            )
        ),
        "A token (RFC 6750).",
    ),
    Field(
        "apiKey",
        structure(
            required(
                "secretRef",
                secret_key_reference("the key", key="key"),
                f"The Secret, {_LABELLED}, with the key.",
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
                f"The Secrets, {_LABELLED}, with the signing secrets: one, or several while they "
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
    rules=(
        Rule(
            cel=" || ".join(f"has(self.{kind})" for kind in _KINDS),
            holds=lambda credentials: len(credentials) > 0,
            message=f"holds none of {', '.join(_KINDS)}",
            remedy="Write one of them, or remove credentials.",
        ),
        Rule(
            cel="!has(self.basic) || !has(self.bearer)",
            holds=lambda credentials: "basic" not in credentials or "bearer" not in credentials,
            message="holds both basic and bearer",
            remedy="Remove one of the two.",
        ),
    ),
)

URL_SOURCE = structure(
    required(
        "secretKeyRef",
        secret_key_reference("the URL", key="url"),
        f"The Secret, {_LABELLED}, with the URL.",
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
_is_loopback = whole(LOOPBACK)


def _tls_is_used(spec: JSONObject) -> bool:
    return "tls" not in spec or not _is_not_secure(spec.get("destination", ""))


def _credentials_stay_secret(spec: JSONObject) -> bool:
    url = spec.get("destination", "")
    is_sent = any(kind in spec.get("credentials", {}) for kind in _SENT)
    return not is_sent or not _is_plain(url) or _is_loopback(url)


#: Rules over a destination's spec; the deliverer checks a URL in a Secret.
SECURITY_RULES = (
    Rule(
        cel="!has(self.tls) || !has(self.destination) || "
        f"!{cel_matches('self.destination', NOT_SECURE)}",
        holds=_tls_is_used,
        field="tls",
        message="has no effect on a destination without TLS",
        remedy="Write https:// in destination, or remove tls.",
    ),
    Rule(
        cel="!has(self.credentials) || "
        f"!({' || '.join(f'has(self.credentials.{kind})' for kind in _SENT)}) || "
        f"!has(self.destination) || !{cel_matches('self.destination', PLAIN)} || "
        f"{cel_matches('self.destination', LOOPBACK)}",
        holds=_credentials_stay_secret,
        field="credentials",
        message="would be sent unencrypted, since destination is without TLS",
        remedy="Write https:// in destination. (Plain http may carry them to loopback only.)",
    ),
)
