"""Credentials, certificates and URLs from Secrets, and the faults of destinations.

Only a labelled Secret may be used; otherwise an author of a destination could send any Secret of
the namespace to a URL of their choice. No problem shows the content of a Secret. A fault concerns
one destination (S0.8): it holds its queue and does not refuse the configuration (decision 22).
"""

import contextlib
import os
import re
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pillion_sidecar.config.addresses import AddressPolicy, host_of, parse_host
from pillion_sidecar.config.parsing import Resource, Resources, Secret
from pillion_sidecar.config.problems import ADDRESS_NOT_PERMITTED, Problem
from pillion_sidecar.config.schema import CREDENTIALS_LABEL
from pillion_sidecar.config.schema.destination import (
    LISTENER_DESTINATION,
    DestinationFault,
    HoldCause,
)
from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.config.schema.oauth2 import OAuth2
from pillion_sidecar.config.schema.proxy import Proxy
from pillion_sidecar.config.schema.urls import URL
from pillion_sidecar.config.signing import SigningKey, SigningKeyError, parse_signing_key
from pillion_sidecar.config.usm import (
    LONGEST_COMMUNITY,
    LONGEST_USERNAME,
    SHORTEST_PASSPHRASE,
    SNMPCredentials,
    make_user,
)
from pillion_sidecar.config.validation import Complaints, Path, check
from pillion_sidecar.fields import Rule, build
from pillion_sidecar.protocols import PROTOCOLS
from pillion_sidecar.protocols.snmp import SecurityLevel, SNMPOptions, SNMPVersion

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"
_TOKEN = re.compile(r"[!-~]+")
_MAKE_PAIR = "Make it with kubectl create secret tls."
UNUSABLE = "CredentialsUnusable"


class CertificateError(Exception): ...


def load_authorities(context: ssl.SSLContext, pem: bytes) -> None:
    """Raises CertificateError."""
    try:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise CertificateError("it holds no certificates in PEM") from None


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes | None) -> None:
    """Raises CertificateError."""
    with _in_memory(certificate) as certificate_path, _in_memory(key or b"") as key_path:
        try:
            # The empty password keeps an encrypted key from asking for one on the terminal.
            context.load_cert_chain(certificate_path, key_path if key else None, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or "not a certificate and its key in PEM"
            raise CertificateError(reason.replace("_", " ").lower()) from None


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield a path to ``content`` in memory: OpenSSL reads only paths, and keys must not be on
    disk."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.set_blocking(descriptor, False)
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


class SecretReader:
    def __init__(self, resources: Resources, resource: Resource, at: Path = ("spec",)) -> None:
        """``at``: what has the references, such as a destination's spec."""
        self._secrets = resources.secrets
        self._problems = resources.problems
        self._resource = resource
        self._at = at
        spec: Any = resource.spec
        for step in at[1:]:
            spec = spec[step]
        self._spec: Mapping[str, Any] = spec
        self._users = "destinations" if len(at) == 1 else at[1]
        #: Those of this resource.
        self._told = set[Problem]()

    def _is_sound(self, field: str) -> bool:
        """Below the spec, the caller has looked."""
        is_below = len(self._at) > 1
        return field in self._spec and (is_below or field not in self._resource.flawed)

    def tls(self) -> TLSOptions:
        if not self._is_sound("tls"):
            return TLSOptions()
        spec = self._spec["tls"]
        certificate, key = self._client_certificate(spec)
        return build(
            TLSOptions,
            spec,
            ca_certificates=self._authorities(spec, (*self._at, "tls")),
            client_certificate=certificate,
            client_key=key,
        )

    def credentials(self) -> Credentials | None:
        if not self._is_sound("credentials"):
            return None
        spec = self._spec["credentials"]
        username, password = self._basic(spec)
        return Credentials(
            username=username,
            password=password,
            bearer_token=self._bearer(spec),
            oauth2=self._oauth2(spec),
            api_key=self._api_key(spec),
            signing=tuple(self._signing(spec)),
            snmp=self._snmp(spec),
        )

    def proxy(self) -> Proxy | None:
        if not self._is_sound("proxy"):
            return None
        spec = self._spec["proxy"]
        credentials = None
        if "secretRef" in spec:
            username, password = self._account(spec["secretRef"], (*self._at, "proxy", "secretRef"))
            credentials = Credentials(username=username, password=password)
        return build(Proxy, spec, credentials=credentials)

    def _basic(self, spec: Mapping[str, Any]) -> tuple[str | None, str | None]:
        if "basic" not in spec:
            return None, None
        path: Path = (*self._at, "credentials", "basic", "secretRef")
        return self._account(spec["basic"]["secretRef"], path)

    def _account(self, reference: Mapping[str, Any], path: Path) -> tuple[str | None, str | None]:
        username = self._text(reference, path, "username")
        if username is not None and ":" in username:
            message = "its key username holds a colon"
            self._complain(path, reference, message, "RFC 7617 forbids it.", UNUSABLE)
        return username, self._text(reference, path, "password")

    def _bearer(self, spec: Mapping[str, Any]) -> str | None:
        if "bearer" not in spec:
            return None
        path: Path = (*self._at, "credentials", "bearer", "secretRef")
        return self._token(spec["bearer"]["secretRef"], path)

    def _oauth2(self, spec: Mapping[str, Any]) -> OAuth2 | None:
        if "oauth2" not in spec:
            return None
        given = spec["oauth2"]
        base: Path = (*self._at, "credentials", "oauth2")
        texts = [
            self._text(given["secretRef"], (*base, "secretRef"), key)
            for key in ("clientId", "clientSecret")
        ]
        authorities = self._authorities(given, base)
        if None in texts:
            return None
        return build(
            OAuth2,
            given,
            client_id=texts[0],
            client_secret=texts[1],
            ca_certificates=authorities,
        )

    def _api_key(self, spec: Mapping[str, Any]) -> str | None:
        if "apiKey" not in spec:
            return None
        reference = spec["apiKey"]["secretRef"]
        path: Path = (*self._at, "credentials", "apiKey", "secretRef")
        return self._text(reference, path, reference["key"])

    def _signing(self, spec: Mapping[str, Any]) -> Iterator[SigningKey]:
        references = spec["signing"]["secretRefs"] if "signing" in spec else ()
        for number, reference in enumerate(references):
            path: Path = (*self._at, "credentials", "signing", "secretRefs", number)
            text = self._text(reference, path, reference["key"])
            if not text or not text.isprintable():
                continue
            try:
                yield parse_signing_key(text)
            except SigningKeyError as error:
                message = f"the signing secret in its key {reference['key']} {error.message}"
                self._complain(path, reference, message, error.remedy, UNUSABLE)

    def _snmp(self, spec: Mapping[str, Any]) -> SNMPCredentials | None:
        """None: there are none, or they cannot be used."""
        if "snmp" not in spec or "snmp" in self._resource.flawed:
            return None
        options = build(SNMPOptions, self._spec.get("snmp", {}))
        reference = spec["snmp"]["secretRef"]
        if options.version is SNMPVersion.V2C:
            community = self._snmp_text(reference, "community", most=LONGEST_COMMUNITY)
            return None if community is None else SNMPCredentials(community=community)
        encrypts = options.security_level is SecurityLevel.ENCRYPTED
        name = self._snmp_text(reference, "username", most=LONGEST_USERNAME)
        auth = self._snmp_text(reference, "authPassphrase", least=SHORTEST_PASSPHRASE)
        priv = None
        if encrypts:
            priv = self._snmp_text(reference, "privPassphrase", least=SHORTEST_PASSPHRASE)
        if name is None or auth is None or (encrypts and priv is None):
            return None
        user = make_user(name, options.auth_protocol, auth_passphrase=auth, priv_passphrase=priv)
        return SNMPCredentials(user=user)

    def _snmp_text(
        self, reference: Mapping[str, str], key: str, *, least: int = 1, most: int = 1024
    ) -> str | None:
        """``least`` and ``most``: bytes. None: it cannot be used."""
        path: Path = (*self._at, "credentials", "snmp", "secretRef")
        text = self._text(reference, path, key)
        if not text or not text.isprintable():
            return None
        if least <= len(text.encode()) <= most:
            return text
        message = f"its key {key} has less than {least} or more than {most} bytes"
        remedy = "Write a text of this length, as the receiver has it."
        self._complain(path, reference, message, remedy, UNUSABLE)
        return None

    def url(self, addresses: AddressPolicy) -> str | None:
        """Return the URL in the Secret of ``destinationFrom``, or None. It is checked like a
        written one; no problem shows any part of it."""
        if not self._is_sound("destinationFrom"):
            return None
        path: Path = (*self._at, "destinationFrom", "secretKeyRef")
        reference = self._spec["destinationFrom"]["secretKeyRef"]
        value = self._bytes(reference, path, reference["key"])
        if value is None:
            return None
        # `echo` adds a newline at the end. Bytes outside ASCII break a rule below.
        url = value.decode("latin-1").removesuffix("\n").removesuffix("\r")
        spec = {**self._spec}
        del spec["destinationFrom"]
        # Rules over a spec that is flawed cannot be asked. It is asked again when it is mended.
        rules = () if self._resource.flawed else LISTENER_DESTINATION.spec.rules
        faults = tuple(_url_faults(url, spec, rules, addresses))
        for reason, message, remedy in faults:
            message = f"the URL in its key {reference['key']} {message}"
            self._complain(path, reference, message, remedy, reason)
        return None if faults else url

    def _authorities(self, spec: Mapping[str, Any], path: Path) -> bytes | None:
        if "caSecretRef" not in spec:
            return None
        path = (*path, "caSecretRef")
        reference = spec["caSecretRef"]
        pem = self._bytes(reference, path, reference["key"])
        if pem is not None and not _are_certificates(pem):
            self._complain(
                path,
                reference,
                f"its key {reference['key']} holds no certificates in PEM",
                "Put the authority's certificates there.",
                UNUSABLE,
            )
        return pem

    def _client_certificate(self, spec: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
        if "clientCertificateSecretRef" not in spec:
            return None, None
        path: Path = (*self._at, "tls", "clientCertificateSecretRef")
        reference = spec["clientCertificateSecretRef"]
        found = []
        for key, marker in (("tls.crt", _CERTIFICATE), ("tls.key", _KEY)):
            pem = self._bytes(reference, path, key)
            found.append(pem)
            if pem is not None and marker not in pem:
                message = f"its key {key} is not in PEM"
                self._complain(path, reference, message, _MAKE_PAIR, UNUSABLE)
                return None, None
        certificate, private_key = found
        if certificate is not None and private_key is not None:
            self._check_pair(path, reference, certificate, private_key)
        return certificate, private_key

    def _check_pair(
        self, path: Path, reference: Mapping[str, str], certificate: bytes, key: bytes
    ) -> None:
        if not hasattr(os, "memfd_create"):
            # Not Linux: nothing is delivered here, and a key must not be on a disk.
            return
        try:
            load_client_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key)
        except CertificateError as error:
            message = f"its keys tls.crt and tls.key are no certificate and its key: {error}"
            self._complain(path, reference, message, _MAKE_PAIR, UNUSABLE)

    def _token(self, reference: Mapping[str, str], path: Path) -> str | None:
        key = reference["key"]
        token = self._text(reference, path, key)
        if token and token.isprintable() and not is_bearer_token(token):
            message = f"its key {key} holds spaces or characters outside ASCII, as no token does"
            self._complain(path, reference, message, "Write the token alone.", UNUSABLE)
        return token

    def _text(self, reference: Mapping[str, str], path: Path, key: str) -> str | None:
        value = self._bytes(reference, path, key)
        if value is None:
            return None
        try:
            # `echo` adds a newline at the end.
            text = value.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            text = ""
        if not text or not text.isprintable():
            message = f"its key {key} is empty, or holds what no header may hold"
            remedy = "Write a text without control characters."
            self._complain(path, reference, message, remedy, UNUSABLE)
        return text

    def _bytes(self, reference: Mapping[str, str], path: Path, key: str) -> bytes | None:
        secret = self._permitted(reference["name"], path)
        if secret is None:
            return None
        if key not in secret.data:
            known = ", ".join(sorted(secret.data)) or "none"
            self._complain(
                path, reference, f"has no key {key}", f"Its keys are: {known}.", UNUSABLE
            )
        return secret.data.get(key)

    def _permitted(self, name: str, path: Path) -> Secret | None:
        secret = self._secrets.get(name)
        if secret is None:
            known = ", ".join(sorted(self._secrets)) or "none"
            self._complain(
                path, {"name": name}, "no such Secret", f"Secrets here: {known}.", "NotFound"
            )
            return None
        if not secret.permitted:
            self._complain(
                path,
                {"name": name},
                f"this Secret may not be used by {self._users}",
                f'Label it {CREDENTIALS_LABEL}: "true" if it is meant to be sent out.',
                "CredentialsNotPermitted",
            )
            return None
        return secret

    def _complain(
        self,
        path: Path,
        reference: Mapping[str, str],
        message: str,
        remedy: str,
        reason: str = "Invalid",
    ) -> None:
        problem: Problem = self._resource.place.problem(
            reason, (*path, "name"), reference["name"], message, remedy
        )
        # Two keys of one Secret are read; report a missing Secret once.
        if problem not in self._told:
            self._told.add(problem)
            self._problems.append(problem)


def _url_faults(
    url: str, spec: Mapping[str, Any], rules: Iterable[Rule], addresses: AddressPolicy
) -> Iterator[tuple[str, str, str]]:
    """Yield reason, message and remedy of each fault of a URL from a Secret."""
    found: list[tuple[str, str, str]] = []
    complaints = Complaints(lambda _reason, _path, _value, *told: found.append((UNUSABLE, *told)))
    check(URL, url, (), complaints)
    if found:
        yield from found
        return
    for rule in rules:
        if not rule.holds({**spec, "destination": url}):
            where = "" if rule.field == "destination" else f"does not fit: {rule.field} "
            yield UNUSABLE, f"{where}{rule.message}", rule.remedy
    if addresses.check_url(url) is not None:
        yield (
            ADDRESS_NOT_PERMITTED,
            "names a host that is not allowed here",
            "Use the address of a remote listener, or allow this kind of address when you start "
            "the deliverer.",
        )


def is_bearer_token(token: str) -> bool:
    """Whether a header can carry a token (RFC 9110 5.5)."""
    return _TOKEN.fullmatch(token) is not None


def _are_certificates(pem: bytes) -> bool:
    try:
        load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pem)
    except CertificateError:
        return False
    return True


#: Fields of ``spec`` without which nothing can be sent.
_CAUSES = {
    "destination": HoldCause.DESTINATION,
    "destinationFrom": HoldCause.DESTINATION,
    "protocol": HoldCause.PROTOCOL,
    "tls": HoldCause.CERTIFICATES,
    "credentials": HoldCause.CREDENTIALS,
    "proxy": HoldCause.DESTINATION,
    **{one.options_name: HoldCause.DESTINATION for one in PROTOCOLS.values() if one.options},
}


def may_be_built(resource: Resource) -> bool:
    return resource.valid or (bool(resource.spec) and resource.flawed <= _CAUSES.keys())


def hold_faulty(
    resources: Resources, may_be_held: Collection[str] | None
) -> dict[str, DestinationFault]:
    """Turn the problems of destinations that may be held (None: all) into warnings; return their
    faults."""
    users = _users(resources)
    faults: dict[str, DestinationFault] = {}
    held: dict[Problem, None] = {}
    for problem in resources.problems:
        found = _faults(problem, resources, users)
        if found and (may_be_held is None or found.keys() <= set(may_be_held)):
            held[problem] = None
            for name, fault in found.items():
                faults.setdefault(name, fault)
    resources.problems[:] = [one for one in resources.problems if one not in held]
    resources.warnings.extend(f"{one} Its destination is held until then." for one in held)
    return faults


def _faults(
    problem: Problem, resources: Resources, users: Mapping[str, Mapping[str, HoldCause]]
) -> dict[str, DestinationFault]:
    kind, _, name = problem.resource.partition("/")
    if kind == "ListenerDestination":
        resource = resources.by_kind[kind].get(name)
        cause = None if resource is None else _cause(problem, resource)
        if cause is None or resource is None or not may_be_built(resource):
            return {}
        return {name: DestinationFault(cause, _line(problem))}
    if kind == "Secret" and problem.reason == "Invalid":
        # Two Secrets with one name concern all users of the name.
        line = f"Secret {name}: {_line(problem)}"
        return {user: DestinationFault(cause, line) for user, cause in users.get(name, {}).items()}
    return {}


def _cause(problem: Problem, resource: Resource) -> HoldCause | None:
    if problem.reason == ADDRESS_NOT_PERMITTED and _may_be_host(resource.spec.get("destination")):
        return HoldCause.ADDRESS
    if problem.field.startswith("spec.proxy.secretRef"):
        return HoldCause.CREDENTIALS
    root, _, rest = problem.field.partition(".")
    return _CAUSES.get(rest.partition(".")[0]) if root == "spec" else None


def _may_be_host(url: str | None) -> bool:
    if url is None:
        return True
    try:
        parse_host(host_of(url))
    except ValueError:
        return False
    return True


def _line(problem: Problem) -> str:
    return f"{problem.field}: {problem.message}. {problem.remedy}"


def _users(resources: Resources) -> dict[str, dict[str, HoldCause]]:
    users: dict[str, dict[str, HoldCause]] = {}
    for name, resource in resources.by_kind["ListenerDestination"].items():
        if not may_be_built(resource):
            continue
        for field in ("destinationFrom", "tls", "credentials", "proxy"):
            cause = HoldCause.CREDENTIALS if field == "proxy" else _CAUSES[field]
            for secret in _secret_names(resource.spec.get(field)):
                users.setdefault(secret, {}).setdefault(name, cause)
    return users


def _secret_names(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _secret_names(item)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key == "name" and isinstance(inner, str):
            yield inner
        yield from _secret_names(inner)
