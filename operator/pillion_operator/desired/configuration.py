"""The Secrets with the rendered configuration of an IndicationService. Pure."""

import base64
import hashlib
import hmac

from pillion_operator.cluster.types import SECRET, Object
from pillion_operator.desired.metadata import managed
from pillion_operator.names import (
    CONFIGURATION_TYPE,
    OPERATOR_TOKEN,
    RENDERED,
    REVISION_ANNOTATION,
    configuration_secret,
)
from pillion_sidecar.config.rendered import Rendered
from pillion_sidecar.config.schema import CREDENTIALS_LABEL


def configuration_secrets(service: Object, rendered: Rendered, *, token: str) -> tuple[Object, ...]:
    """One Secret for each file of the configuration, in order; ``token`` is in the first."""
    metadata = service["metadata"]
    secrets: list[Object] = []
    for part, (file, content) in enumerate(rendered.files):
        head = managed(
            SECRET,
            configuration_secret(metadata["name"], part),
            service=service,
            # Seen by the one watch on Secrets; no destination may use it, which takes "true".
            labels={CREDENTIALS_LABEL: RENDERED},
            annotations={REVISION_ANNOTATION: rendered.revision},
        )
        data = {file: _encoded(content)}
        if part == 0:
            data[OPERATOR_TOKEN] = _encoded(token.encode())
        secrets.append({**head, "type": CONFIGURATION_TYPE, "data": data})
    return tuple(secrets)


def operator_token(key: bytes, namespace: str, service: str) -> str:
    """The bearer token by which the operator may ask the deliverers of a service for their queues.

    Whoever reads the token of one service learns nothing of another's.
    """
    return hmac.new(key, f"{namespace}/{service}".encode(), hashlib.sha256).hexdigest()


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
