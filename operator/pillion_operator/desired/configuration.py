import hashlib
import hmac
import re

from pillion_operator.certificates.gateways import NOTHING, Trust
from pillion_operator.certificates.secret_store import encoded
from pillion_operator.cluster.ownership import managed
from pillion_operator.cluster.types import SECRET, Object, annotations_of
from pillion_operator.names import (
    CONFIGURATION_TYPE,
    GATEWAY_CA,
    LEVEL_ANNOTATION,
    OPERATOR_TOKEN,
    RENDERED,
    REVISION_ANNOTATION,
    TOKEN_KEYS,
    configuration_secret,
)
from pillion_sidecar.config.levels import FIRST_LEVEL, LEVEL
from pillion_sidecar.config.rendered import Rendered
from pillion_sidecar.config.schema import CREDENTIALS_LABEL


def configuration_secrets(
    service: Object, rendered: Rendered, *, token: str, trust: Trust = NOTHING, level: int = LEVEL
) -> tuple[Object, ...]:
    """One Secret for each file of the configuration, in order. The first also holds ``token`` and
    the deliverers' part of ``trust``; neither makes a revision. ``level`` is the schema level."""
    beside = {OPERATOR_TOKEN: token.encode()}
    if trust.gateway_ca is not None:
        beside[GATEWAY_CA] = trust.gateway_ca
    if trust.token_keys is not None:
        beside[TOKEN_KEYS] = trust.token_keys
    metadata = service["metadata"]
    secrets: list[Object] = []
    for part, (file, content) in enumerate(rendered.files):
        head = managed(
            SECRET,
            configuration_secret(metadata["name"], part),
            service=service,
            # Selected by the watch on Secrets; a destination may only use the value "true".
            labels={CREDENTIALS_LABEL: RENDERED},
            annotations={REVISION_ANNOTATION: rendered.revision, LEVEL_ANNOTATION: str(level)},
        )
        data = {file: content, **(beside if part == 0 else {})}
        secrets.append({**head, "type": CONFIGURATION_TYPE, "data": encoded(data)})
    return tuple(secrets)


def level_of(secret: Object | None) -> int:
    """The schema level of a Secret's configuration; without a Secret, this version's."""
    if secret is None:
        return LEVEL
    text = annotations_of(secret).get(LEVEL_ANNOTATION, "")
    # A manual edit gets what every deliverer can read.
    return int(text) if re.fullmatch("[1-9][0-9]{0,3}", text) else FIRST_LEVEL


def operator_token(key: bytes, namespace: str, service: str) -> str:
    """Derive the bearer token for a service's queues; it reveals nothing of another service's."""
    return hmac.new(key, f"{namespace}/{service}".encode(), hashlib.sha256).hexdigest()
