"""By what publishers and gateways know each other, in the objects of a service. Pure."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm

from pillion_operator.certificates.authority import CA_CERTIFICATE, CERTIFICATE, KEY, checked
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
    """What goes into the objects of one service. What is None is not known, or not for it."""

    #: The authorities of gateways, in PEM.
    gateway_ca: bytes | None = None
    #: What a gateway verifies publishers' tokens with.
    token_keys: bytes | None = None
    #: A gateway's certificate.
    serving: KeyPair | None = None

    @property
    def mark(self) -> str:
        """The same for the same: pods that were told of one need not be told again."""
        parts = (self.gateway_ca, self.token_keys, self.serving and self.serving.certificate)
        return hashlib.sha256(b"\0".join(part or b"" for part in parts)).hexdigest()[:16]


#: Nothing is known of it.
NOTHING = Trust()


def hosts(service: Object) -> tuple[str, ...]:
    """The names and addresses that a gateway is reached by: its Service, its pods behind the
    headless one, and a forwarded port."""
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
    """What stands in the service's live objects."""
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
    """A gateway's certificate, and what its publishers trust; nothing of what is not known."""
    made = []
    if trust.serving is not None:
        made.append(_tls_secret(service, trust.serving, trust.gateway_ca or b""))
    if trust.gateway_ca is not None:
        head = managed(
            CONFIG_MAP,
            gateway(service["metadata"]["name"]),
            service=service,
            # Seen by the one watch on ConfigMaps; no service may use it, which takes "true".
            labels={CLASSES_LABEL: RENDERED},
        )
        made.append({**head, "data": {CA_CERTIFICATE: trust.gateway_ca.decode()}})
    return made


def _tls_secret(service: Object, serving: KeyPair, bundle: bytes) -> Object:
    head = managed(
        SECRET,
        tls_secret(service["metadata"]["name"]),
        service=service,
        # Seen by the one watch on Secrets; no destination may use it, which takes "true".
        labels={CREDENTIALS_LABEL: RENDERED},
    )
    data = {CERTIFICATE: serving.certificate, KEY: serving.key, CA_CERTIFICATE: bundle}
    return {**head, "type": "kubernetes.io/tls", "data": encoded(data)}


def _pair(data: dict[str, bytes]) -> KeyPair | None:
    try:
        return checked(data[CERTIFICATE], data[KEY])
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        # Whatever it is, it is none of ours.
        return None
