"""A Secret in which the operator keeps its own keys."""

import base64
import binascii
import logging
import secrets
from collections.abc import Mapping

from pillion_operator.certificates.authority import Authority, BadMaterial
from pillion_operator.cluster.api import Api, Conflict
from pillion_operator.cluster.types import SECRET, Object
from pillion_operator.names import MANAGED_BY, MANAGED_BY_LABEL

logger = logging.getLogger("pillion.operator")

#: The entry of the Secret with the key of all deliverers' bearer tokens, and its minimum bytes.
TOKEN_KEY = "token-key"
TOKEN_KEY_BYTES = 32


class KeptSecret:
    """A Secret; a write replaces only the version that was read."""

    def __init__(self, api: Api, *, namespace: str, name: str, type: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._type = type

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def read(self) -> Object | None:
        return await self._api.get(SECRET, self._namespace, self._name)

    async def write(self, found: Object | None, data: Mapping[str, bytes]) -> bool:
        """Replace ``found`` (None: create it); return False if it has changed meanwhile. Raises
        the errors of :class:`Api`."""
        content = {"apiVersion": "v1", "kind": "Secret", "data": encoded(data)}
        try:
            if found is None:
                labels = {MANAGED_BY_LABEL: MANAGED_BY}
                metadata = {"name": self._name, "namespace": self._namespace, "labels": labels}
                head = {"metadata": metadata, "type": self._type}
                await self._api.create({**head, **content})
            else:
                # The resourceVersion detects a conflict. The type cannot change.
                await self._api.replace({**found, **content})
        except Conflict:
            return False
        return True

    def authority(self, found: Object | None, *, extra: Mapping[str, str]) -> Authority | None:
        """Return the authority in the Secret; log one that cannot be used, and return None."""
        try:
            return Authority.from_data(decoded(found))
        except BadMaterial as error:
            logger.warning("Secret %s: %s; the leader writes it anew", self, error, extra=extra)
            return None


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode("ascii") for name, value in data.items()}


def decoded(secret: Object | None) -> dict[str, bytes]:
    """Skips values that are no base64."""
    data = ((secret or {}).get("data")) or {}
    found = {}
    for name, value in data.items():
        try:
            found[name] = base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            continue
    return found


async def token_key(api: Api, *, namespace: str, name: str) -> bytes:
    """Return the key, made if there is none; raises the errors of :class:`Api`."""
    kept = KeptSecret(api, namespace=namespace, name=name, type="Opaque")
    while True:
        found = await kept.read()
        known = decoded(found).get(TOKEN_KEY, b"")
        if len(known) >= TOKEN_KEY_BYTES:
            return known
        key = secrets.token_bytes(TOKEN_KEY_BYTES)
        if found is not None:
            # The operator's role allows patching this Secret, not replacing it.
            await api.patch(SECRET, namespace, name, {"data": encoded({TOKEN_KEY: key})})
            return key
        if await kept.write(found, {TOKEN_KEY: key}):
            return key
        # Another replica was faster: read its key.
