"""The key from which all deliverers' bearer tokens are derived: one Secret of the operator."""

import base64
import binascii
import secrets

from pillion_operator.cluster.api import Api, Conflict
from pillion_operator.cluster.types import SECRET, Object
from pillion_operator.names import MANAGED_BY, MANAGED_BY_LABEL

#: The key of the Secret's data, and its bytes.
KEY = "token-key"
BYTES = 32


async def token_key(api: Api, *, namespace: str, name: str) -> bytes:
    """The key, made where there is none. Raises what :class:`Api` raises."""
    secret = await api.get(SECRET, namespace, name)
    known = _read(secret)
    if known is not None:
        return known
    key = secrets.token_bytes(BYTES)
    data = {KEY: base64.b64encode(key).decode()}
    if secret is not None:
        await api.patch(SECRET, namespace, name, {"data": data})
        return key
    try:
        await api.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "namespace": namespace,
                    "name": name,
                    "labels": {MANAGED_BY_LABEL: MANAGED_BY},
                },
                "data": data,
            }
        )
    except Conflict:
        # Another replica was quicker; its key is as good.
        return await token_key(api, namespace=namespace, name=name)
    return key


def _read(secret: Object | None) -> bytes | None:
    """The key, or None where there is none that is long enough to be one."""
    text = ((secret or {}).get("data") or {}).get(KEY)
    if not text:
        return None
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return key if len(key) >= BYTES else None
