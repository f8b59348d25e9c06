"""The API server, as far as the operator needs it: a thin face of the official client.

Paths are known, so nothing is discovered; objects stay the JSON that they are.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient

from pillion_operator.cluster.types import Object, ResourceType, type_of
from pillion_operator.names import FIELD_MANAGER

#: Objects to a page of a list.
PAGE = 500
#: Seconds until a request is given up.
REQUEST_TIMEOUT = 30

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
#: What documents come as; a set of keys in nothing but the latter.
DOCUMENTS = "application/json, application/jwk-set+json"


class ApiError(Exception):
    def __init__(
        self, status: int, reason: str, message: str, *, retry_after: float | None = None
    ) -> None:
        """``status`` is that of HTTP, ``reason`` the API server's CamelCase word (``Conflict``)."""
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NotFound(ApiError):
    """There is no such object, or its namespace or kind is gone."""


class Conflict(ApiError):
    """Somebody else has written the object meanwhile, or it is there already."""


#: What a request may fail with: the API server refuses, or it cannot be reached.
FAILURES = (ApiError, aiohttp.ClientError, TimeoutError, OSError)


class Api:
    """The API server. All methods raise ApiError where it refuses, and OSError-like client errors
    (``aiohttp.ClientError``, ``TimeoutError``) where it cannot be reached.
    """

    def __init__(self, client: ApiClient, *, may_write: Callable[[], bool] = lambda: True) -> None:
        """``may_write``: asked before each request that writes; ApiError where it says no."""
        self._client = client
        self._may_write = may_write
        #: Requests that write, by verb: what a change costs.
        self.writes = dict.fromkeys(("apply", "patch", "create", "replace", "delete"), 0)

    def only_while(self, may_write: Callable[[], bool]) -> "Api":
        """The same API server, for one who writes only while ``may_write`` says so."""
        other = Api(self._client, may_write=may_write)
        other.writes = self.writes
        return other

    async def get(self, kind: ResourceType, namespace: str | None, name: str) -> Object | None:
        try:
            return await self._request("get", kind.path(namespace, name))
        except NotFound:
            return None

    async def served(self, api_version: str) -> frozenset[str]:
        """The plural names of the kinds that are served under an API version; none where it is
        not known.
        """
        try:
            answer = await self._request("get", f"/apis/{api_version}")
        except NotFound:
            return frozenset()
        return frozenset(resource["name"] for resource in answer["resources"])

    async def writable(self, api_version: str) -> frozenset[str]:
        """The plural names of the kinds of which objects can be made: of one whose definition is
        being deleted, none can."""
        try:
            answer = await self._request("get", f"/apis/{api_version}")
        except NotFound:
            return frozenset()
        return frozenset(one["name"] for one in answer["resources"] if "create" in one["verbs"])

    async def list(
        self, kind: ResourceType, namespace: str | None = None, *, label_selector: str | None = None
    ) -> list[Object]:
        """All objects of a namespace, or of the cluster, page by page."""
        items: list[Object] = []
        token: str | None = None
        while True:
            page = await self._request(
                "get",
                kind.path(namespace),
                query={"labelSelector": label_selector, "limit": PAGE, "continue": token},
            )
            items.extend(page.get("items") or ())
            token = page["metadata"].get("continue")
            if not token:
                return items

    async def document(self, path: str) -> bytes:
        """What the API server answers under a path that is no object's."""
        # Keys of tokens are application/jwk-set+json, which plain JSON does not stand for.
        return await self._answer("get", path, accept="*/*")

    async def apply(self, body: Object) -> Object:
        """Make the object so, by server-side apply; what others own is taken over."""
        metadata = body["metadata"]
        self.writes["apply"] += 1
        return await self._request(
            "patch",
            type_of(body).path(metadata.get("namespace"), metadata["name"]),
            body,
            content_type=APPLY_PATCH,
            query={"force": "true"},
        )

    async def patch(
        self,
        kind: ResourceType,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
    ) -> Object:
        """Change an object: a JSON object is a merge patch, a list a JSON patch."""
        content_type = MERGE_PATCH if isinstance(body, Mapping) else JSON_PATCH
        path = kind.path(namespace, name) + (f"/{subresource}" if subresource else "")
        self.writes["patch"] += 1
        return await self._request("patch", path, body, content_type=content_type)

    async def create(
        self,
        body: Object,
        *,
        namespace: str | None = None,
        path: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Make a new object. ``path`` stands for subresources, such as a pod's eviction.

        ``dry_run``: it is only returned as it would be, after all admission.
        """
        place = namespace or body["metadata"].get("namespace")
        self.writes["create"] += 1
        return await self._request(
            "post",
            path or type_of(body).path(place),
            body,
            query={"dryRun": "All" if dry_run else None},
        )

    async def replace(self, body: Object) -> Object:
        """Write an object whole. With its resourceVersion, Conflict says that it has changed."""
        metadata = body["metadata"]
        self.writes["replace"] += 1
        path = type_of(body).path(metadata.get("namespace"), metadata["name"])
        return await self._request("put", path, body)

    async def delete(
        self, kind: ResourceType, namespace: str | None, name: str, *, uid: str | None = None
    ) -> None:
        """Delete an object, if it still has this ``uid``; one that is gone already is no error."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        self.writes["delete"] += 1
        with contextlib.suppress(NotFound):
            await self._request("delete", kind.path(namespace, name), body)

    async def _request(
        self, method: str, path: str, body: Any = None, **more: Any
    ) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self._answer(method, path, body, **more))
        return answer

    async def _answer(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] = MappingProxyType({}),
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        if method != "get" and not self._may_write():
            raise ApiError(503, "NotLeading", "the Lease is not renewed: nothing is written")
        writes = {"fieldManager": FIELD_MANAGER} if method in ("post", "put", "patch") else {}
        named = {name: value for name, value in query.items() if value is not None}
        request = await self._client.param_serialize(
            method.upper(),
            path,
            query_params=list((named | writes).items()),
            header_params={"Accept": accept, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = await self._client.call_api(*request, _request_timeout=REQUEST_TIMEOUT)
        content: bytes = await answer.response.read()
        if not 200 <= answer.status <= 299:
            raise _api_error(answer.status, answer.reason, content, answer.headers)
        return content


def _api_error(
    status: int, phrase: str | None, content: bytes, headers: Mapping[str, str]
) -> ApiError:
    try:
        told = json.loads(content)
        reason, message = str(told.get("reason") or ""), str(told.get("message") or "")
        retry_after = (told.get("details") or {}).get("retryAfterSeconds")
    except (ValueError, AttributeError):
        # Something between here and the API server may answer what is no Status at all.
        message = content.decode(errors="replace")[:300]
        reason, retry_after = phrase or "", None
    if retry_after is None:
        # The API server's own flow control says it in the header alone, and in plain text.
        retry_after = _seconds(headers.get("Retry-After"))
    kind = {404: NotFound, 409: Conflict}.get(status, ApiError)
    return kind(status, reason, message, retry_after=retry_after)


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, is not used by API servers."""
    return float(header) if header is not None and header.isdecimal() else None
