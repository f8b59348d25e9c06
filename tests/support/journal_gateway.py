"""A gateway that keeps copies of journals."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pillion_sidecar.auth.token_middleware import TokenMiddleware
from pillion_sidecar.auth.tokens import parse_keys
from pillion_sidecar.config.schema.service import AllowedPublisher
from pillion_sidecar.journal.workers import ThreadWorker
from pillion_sidecar.stores.copies import Copy, StoreError
from pillion_sidecar.stores.messages import (
    CONTENT_TYPE,
    Request,
    decode_copy,
    decode_refusal,
    encode_request,
)
from pillion_sidecar.stores.namespaces import NamespaceFolders, NamespaceStores
from pillion_sidecar.stores.store import StoreLimits
from pillion_sidecar.telemetry.gateway import GatewayMetrics
from pillion_sidecar.testing import FakeTime
from support.intake import Door
from support.resources import JSON
from support.stores import SESSION, RecordingNamespaces
from support.token_issuer import NOW, TokenIssuer

LIMITS = StoreLimits(maximum_bytes=1 << 20, maximum_sessions=2)


class JournalGateway:
    """The intake of a gateway that keeps copies, over real HTTP, and a client for it."""

    def __init__(
        self,
        folders: NamespaceFolders | None = None,
        *,
        limits: StoreLimits = LIMITS,
        tokens: bool = False,
    ) -> None:
        self.recorded = RecordingNamespaces()
        self.worker = ThreadWorker(
            name="stores",
            call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe,
        )
        stores = NamespaceStores(
            folders or self.recorded, limits, worker=self.worker, clock=FakeTime()
        )
        self.stores = stores
        self.issuer = TokenIssuer()
        self.door = Door(stores=stores, guarding=self._guard if tokens else None)

    def _guard(self, time: FakeTime) -> TokenMiddleware:
        time.step(NOW - time.time())
        self.guarding = TokenMiddleware(
            clock=time,
            timers=time,
            publishers=lambda: (
                AllowedPublisher(namespace="team"),
                AllowedPublisher(namespace="other"),
            ),
            observer=GatewayMetrics(),
            proven=lambda *_: None,
            has_proven=lambda _: False,
        )
        self.guarding.use_keys(parse_keys(self.issuer.document(), name="keys"))
        return self.guarding

    async def ask(
        self,
        request: Request | bytes,
        *,
        session: str = SESSION,
        namespace: str | None = None,
        account: str = "spark",
        content_type: str = CONTENT_TYPE,
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": content_type}
        if namespace is not None:
            headers |= self.authorized(namespace, account=account)
        async with self.door.session.post(
            f"{self.door.url}/v1/journals/{session}",
            data=request if isinstance(request, bytes) else encode_request(request),
            headers=headers,
        ) as response:
            return response.status, await response.read()

    def shut(self, reason: str) -> None:
        """Answer 503 from now on, as without a configuration."""
        self.door.context.stores = None
        self.door.gate.close(reason)

    def open(self) -> None:
        self.door.context.stores = self.stores
        self.door.gate.open()

    def authorized(self, namespace: str, *, account: str = "spark") -> dict[str, str]:
        token = self.issuer.token(namespace=namespace, account=account)
        return {"Authorization": f"Bearer {token}"}

    async def listed(self, query: str = "", *, namespace: str | None = None) -> JSON:
        headers = {} if namespace is None else self.authorized(namespace)
        url = f"{self.door.url}/v1/journals{query}"
        async with self.door.session.get(url, headers=headers) as response:
            assert response.status == 200, await response.text()
            document: JSON = await response.json()
            return document

    async def copy(self, request: Request, **given: Any) -> Copy:
        status, body = await self.ask(request, **given)
        assert status == 200, body
        return decode_copy(body)

    async def refused(self, request: Request | bytes, **given: Any) -> tuple[int, StoreError]:
        status, body = await self.ask(request, **given)
        error = decode_refusal(body)
        assert error is not None, body
        return status, error


@asynccontextmanager
async def opened(gateway: JournalGateway) -> AsyncIterator[JournalGateway]:
    try:
        async with gateway.door.open():
            yield gateway
    finally:
        gateway.worker.close()
