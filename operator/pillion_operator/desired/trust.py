"""Certificates and keys in the objects of a service, for publishers and gateways. Pure."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pillion_operator.certificates.authority import (
    CA_CERTIFICATE,
    CERTIFICATE,
    KEY,
    BadMaterial,
    pair_in,
)
from pillion_operator.certificates.secret_store import decoded, encoded
from pillion_operator.certificates.tls import KeyPair
from pillion_operator.cluster.ownership import belongs, managed
from pillion_operator.cluster.types import CONFIG_MAP, SECRET, Object
from pillion_operator.names import (
    GATEWAY_CA,
    RENDERED,
    TOKEN_KEYS,
    configuration_secret,
    gateway,
    headless,
    tls_secret,
)
from pillion_sidecar.config.schema import CLASSES_LABEL, CREDENTIALS_LABEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The trust material of one service. None: not known, or not for this service."""

    #: The authorities of gateways, in PEM.
    gateway_ca: bytes | None = None
    #: The keys that verify publishers' tokens, for a gateway.
    token_keys: bytes | None = None
    #: A gateway's certificate.
    serving: KeyPair | None = None

    @property
    def mark(self) -> str:
        """A digest: pods are annotated when it changes."""
        parts = (self.gateway_ca, self.token_keys, self.serving and self.serving.certificate)
        return hashlib.sha256(b"\0".join(part or b"" for part in parts)).hexdigest()[:16]


NOTHING = Trust()


def hosts(service: Object) -> tuple[str, ...]:
    """Return a gateway's names and addresses: of its Service, of its pods behind the headless
    Service, and of a forwarded port."""
    metadata = service["metadata"]
    name, namespace = gateway(metadata["name"]), metadata["namespace"]
    of_pods = f"*.{headless(metadata['name'])}.{namespace}.svc"
    within = f"{name}.{namespace}"
    return (
        *(name, within, f"{within}.svc", f"{within}.svc.cluster.local"),
        *(of_pods, f"{of_pods}.cluster.local"),
        *("localhost", "127.0.0.1", "::1"),
    )


def standing(service: Object, live: Iterable[Object]) -> Trust:
    name = service["metadata"]["name"]
    own = {
        body["metadata"]["name"]: decoded(body)
        for body in live
        if body["kind"] == SECRET.kind and belongs(body, service)
    }
    first = own.get(configuration_secret(name, 0), {})
    return Trust(
        gateway_ca=first.get(GATEWAY_CA),
        token_keys=first.get(TOKEN_KEYS),
        serving=_pair(own.get(tls_secret(name), {})),
    )


def trust_objects(service: Object, trust: Trust) -> Sequence[Object]:
    """Return the objects with a gateway's certificate and with the CAs for its publishers."""
    made = []
    if trust.serving is not None:
        made.append(_tls_secret(service, trust.serving, trust.gateway_ca or b""))
    if trust.gateway_ca is not None:
        head = managed(
            CONFIG_MAP,
            gateway(service["metadata"]["name"]),
            service=service,
            # The watch on ConfigMaps selects this label; a service may only use the value "true".
            labels={CLASSES_LABEL: RENDERED},
        )
        made.append({**head, "data": {CA_CERTIFICATE: trust.gateway_ca.decode()}})
    return made


def _tls_secret(service: Object, serving: KeyPair, bundle: bytes) -> Object:
    head = managed(
        SECRET,
        tls_secret(service["metadata"]["name"]),
        service=service,
        # The watch on Secrets selects this label; a destination may only use the value "true".
        labels={CREDENTIALS_LABEL: RENDERED},
    )
    data = {CERTIFICATE: serving.certificate, KEY: serving.key, CA_CERTIFICATE: bundle}
    return {**head, "type": "kubernetes.io/tls", "data": encoded(data)}


def _pair(data: dict[str, bytes]) -> KeyPair | None:
    try:
        return pair_in(data, CERTIFICATE, KEY)
    except BadMaterial:
        return None
