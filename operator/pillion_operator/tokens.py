"""The key of all deliverers' bearer tokens, in a Secret of the operator."""

import secrets

from pillion_operator.certificates.secret_store import KeptSecret, decoded, encoded
from pillion_operator.cluster.api import Api
from pillion_operator.cluster.types import SECRET

#: The key of the Secret's data, and the minimum bytes of its value.
KEY = "token-key"
BYTES = 32


async def token_key(api: Api, *, namespace: str, name: str) -> bytes:
    """Return the key, made if there is none; raises the errors of :class:`Api`."""
    kept = KeptSecret(api, namespace=namespace, name=name, type="Opaque")
    while True:
        found = await kept.read()
        known = decoded(found).get(KEY, b"")
        if len(known) >= BYTES:
            return known
        key = secrets.token_bytes(BYTES)
        if found is not None:
            # The operator's role allows patching this Secret, not replacing it.
            await api.patch(SECRET, namespace, name, {"data": encoded({KEY: key})})
            return key
        if await kept.write(found, {KEY: key}):
            return key
        # Another replica was faster: read its key.
