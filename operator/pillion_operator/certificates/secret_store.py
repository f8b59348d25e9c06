"""A Secret in which the operator keeps its own keys."""

import base64
import binascii
from collections.abc import Mapping

from pillion_operator.cluster.api import Api, Conflict
from pillion_operator.cluster.types import SECRET, Object
from pillion_operator.names import MANAGED_BY, MANAGED_BY_LABEL


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
        try:
            if found is None:
                await self._api.create(
                    {
                        "apiVersion": "v1",
                        "kind": "Secret",
                        "metadata": {
                            "name": self._name,
                            "namespace": self._namespace,
                            "labels": {MANAGED_BY_LABEL: MANAGED_BY},
                        },
                        "type": self._type,
                        "data": encoded(data),
                    }
                )
            else:
                # The resourceVersion detects a conflict. The type cannot change.
                head = {**found, "apiVersion": "v1", "kind": "Secret"}
                await self._api.replace({**head, "data": encoded(data)})
        except Conflict:
            return False
        return True


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
