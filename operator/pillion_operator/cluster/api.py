"""A thin client of the API server on top of the official one. Paths are known, so there is no
discovery; objects stay JSON."""

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient

from pillion_operator.cluster.types import Object, ResourceType, type_of
from pillion_operator.names import FIELD_MANAGER

logger = logging.getLogger("pillion.operator")

#: Objects per page.
PAGE = 500
#: Request timeout in seconds.
REQUEST_TIMEOUT = 30

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class ApiError(Exception):
    def __init__(
        self, status: int, reason: str, message: str, *, retry_after: float | None = None
    ) -> None:
        """``reason`` is the API server's CamelCase word, such as ``Conflict``."""
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NotFound(ApiError):
    """The object, its namespace or its kind does not exist."""


class Conflict(ApiError):
    """The object has changed meanwhile, or exists already."""


#: The API server refuses, or is unreachable.
FAILURES = (ApiError, aiohttp.ClientError, TimeoutError, OSError)


async def succeeds(
    work: Awaitable[None],
    what: str,
    *,
    extra: Mapping[str, str],
    errors: tuple[type[Exception], ...] = FAILURES,
) -> bool:
    """Await ``work``; return False after one of the ``errors``, which is logged as ``what``."""
    try:
        await work
    except errors as error:
        cause = str(error) or type(error).__name__
        logger.warning("%s: %s; it is tried again", what, cause, extra=extra)
        return False
    return True


class Api:
    """The API server. All methods raise ApiError when it refuses, and connection errors (see
    ``FAILURES``) when it is unreachable."""

    def __init__(
        self,
        client: ApiClient,
        *,
        may_write: Callable[[], bool] = lambda: True,
        wrote: Callable[[str], None] = lambda _verb: None,
    ) -> None:
        """``may_write`` is checked before each write; False raises ApiError. ``wrote`` is called
        with the verb of each."""
        self._client = client
        self._may_write = may_write
        self._wrote = wrote

    def only_while(self, may_write: Callable[[], bool]) -> "Api":
        """A copy for a caller that writes only while ``may_write`` returns True."""
        return Api(self._client, may_write=may_write, wrote=self._wrote)

    async def get(self, kind: ResourceType, namespace: str | None, name: str) -> Object | None:
        try:
            return await self._request("get", kind.path(namespace, name))
        except NotFound:
            return None

    async def served(self, api_version: str, *, verb: str = "get") -> frozenset[str]:
        """The plural names of an API version's kinds that are served with a verb; empty if it is
        unknown. Without ``create`` are those with a definition that is being deleted."""
        try:
            answer = await self._request("get", f"/apis/{api_version}")
        except NotFound:
            return frozenset()
        return frozenset(one["name"] for one in answer["resources"] if verb in one["verbs"])

    async def list(
        self, kind: ResourceType, namespace: str | None = None, *, label_selector: str | None = None
    ) -> list[Object]:
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
        # Plain JSON does not include application/jwk-set+json.
        return await self._answer("get", path, accept="*/*")

    async def apply(self, body: Object) -> Object:
        """Server-side apply; takes over fields of other owners."""
        metadata = body["metadata"]
        self._wrote("apply")
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
        """A JSON object is a merge patch, a list a JSON patch."""
        content_type = MERGE_PATCH if isinstance(body, Mapping) else JSON_PATCH
        path = kind.path(namespace, name) + (f"/{subresource}" if subresource else "")
        self._wrote("patch")
        return await self._request("patch", path, body, content_type=content_type)

    async def create(
        self,
        body: Object,
        *,
        namespace: str | None = None,
        path: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """``path`` names a subresource, such as a pod's eviction. With ``dry_run`` the API server
        only returns the object as admission would leave it."""
        place = namespace or body["metadata"].get("namespace")
        self._wrote("create")
        return await self._request(
            "post",
            path or type_of(body).path(place),
            body,
            query={"dryRun": "All" if dry_run else None},
        )

    async def review(self, path: str, body: Object) -> Object:
        """Ask a question that the API server answers and does not store, such as a TokenReview;
        allowed for those that may not write."""
        return await self._request("post", path, body, reads=True)

    async def replace(self, body: Object) -> Object:
        """With a resourceVersion, raises Conflict if the object has changed."""
        metadata = body["metadata"]
        self._wrote("replace")
        path = type_of(body).path(metadata.get("namespace"), metadata["name"])
        return await self._request("put", path, body)

    async def delete(
        self, kind: ResourceType, namespace: str | None, name: str, *, uid: str | None = None
    ) -> None:
        """Delete an object if it still has this ``uid``; a missing one is no error."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        self._wrote("delete")
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
        reads: bool = False,
    ) -> bytes:
        reads = reads or method == "get"
        if not reads and not self._may_write():
            raise ApiError(503, "NotLeading", "the Lease is not renewed: nothing is written")
        manages = not reads and method in ("post", "put", "patch")
        writes = {"fieldManager": FIELD_MANAGER} if manages else {}
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
        # A proxy may answer something other than a Status.
        message = content.decode(errors="replace")[:300]
        reason, retry_after = phrase or "", None
    if retry_after is None:
        # The API server's flow control answers plain text, and says it in the header only.
        retry_after = _seconds(headers.get("Retry-After"))
    kind = {404: NotFound, 409: Conflict}.get(status, ApiError)
    return kind(status, reason, message, retry_after=retry_after)


def _seconds(header: str | None) -> float | None:
    """API servers never use the header's other form, a date."""
    return float(header) if header is not None and header.isdecimal() else None
