"""``/v1/adoptions`` for the operator, and the copies of journals that it finds the sessions in.
What adopts is imported with the first order."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from pillion_sidecar.clock import Timers
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.gateway_access import GatewayAccess
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.http_errors import refuse
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.journals import (
    JOURNALS_PATH,
    LIST_PARAMETERS,
    NO_COPIES,
    list_copies,
)
from pillion_sidecar.journal_runtime import JournalFolder
from pillion_sidecar.telemetry.administration import OperatorGuard
from pillion_sidecar.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pillion_sidecar.adoption_runtime import Adoptions


PATH = "/v1/adoptions"
#: Results in the metrics, of adoptions and of indications.
DONE, FAILED = "done", "failed"
TAKEN, DUPLICATE, REFUSED = "taken", "duplicate", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelivererParts:
    """What a deliverer has for its adoptions."""

    context: IntakeContext
    timers: Timers
    observer: Metrics
    journal: JournalFolder
    access: GatewayAccess
    #: None before the first.
    configuration: Callable[[], Configuration | None]
    handlers: Callable[[], HandlerRegistry | None]


class AdoptionRoutes:
    def __init__(self, parts: DelivererParts) -> None:
        self._parts = parts
        self._adoptions: Adoptions | None = None
        #: By result.
        self._ended = Counter[str](dict.fromkeys((DONE, FAILED), 0))
        self._indications = Counter[str](dict.fromkeys((TAKEN, DUPLICATE, REFUSED), 0))

    def add_to(self, app: web.Application, guard: OperatorGuard) -> None:
        if self._parts.access.tokens is not None:
            # From zero: a counter that begins with 1 has no increase.
            self._parts.observer.watch(adoptions=(self._ended, self._indications))
        listed = guard.guarded(self._list_copies, *LIST_PARAMETERS)
        app.router.add_get(JOURNALS_PATH, listed, allow_head=False)
        app.router.add_post(PATH, guard.guarded(self._order))
        app.router.add_get(PATH, guard.guarded(self._list), allow_head=False)

    async def close(self) -> None:
        if self._adoptions is not None:
            await self._adoptions.close()

    async def _order(self, request: web.Request) -> web.StreamResponse:
        """Answer 202 with the status; the same order again tells how far it is."""
        from pillion_sidecar.wire.adoptions import MAXIMUM_ORDER, OrderError, encode, read_order

        size = request.content_length
        if size is None or size > MAXIMUM_ORDER:
            return refuse(413, f"send an order of at most {MAXIMUM_ORDER} bytes with its length")
        try:
            order = read_order(await request.read())
        except OrderError as error:
            return refuse(400, str(error))
        try:
            status = self._open().order(order)
        except OrderError as error:
            return refuse(409, str(error))
        return _json(encode(status), status=202)

    def _open(self) -> "Adoptions":
        """Raises OrderError."""
        if self._adoptions is None:
            # Late: only a gateway that adopts has a use for it.
            from pillion_sidecar.adoption_runtime import open_adoptions

            parts = self._parts
            self._adoptions = open_adoptions(
                context=parts.context,
                timers=parts.timers,
                observer=parts.observer,
                folder=parts.journal.path,
                journal_room=lambda: parts.journal.room,
                namespace=lambda: parts.access.namespace,
                configuration=parts.configuration,
                handlers=parts.handlers,
                ended=self._ended,
                indications=self._indications,
            )
            parts.observer.watch(adoptions=(self._ended, self._indications))
        return self._adoptions

    async def _list_copies(self, request: web.Request) -> web.StreamResponse:
        """Answer the copies of the gateway's own namespace: those that gateways adopt."""
        stores = self._parts.context.stores
        if stores is None:
            return refuse(404, NO_COPIES)
        return await list_copies(stores, request, own=True, namespace=self._parts.access.namespace)

    async def _list(self, _: web.Request) -> web.StreamResponse:
        from pillion_sidecar.wire.adoptions import AdoptionPage, encode

        known = [] if self._adoptions is None else self._adoptions.statuses
        return _json(encode(AdoptionPage(adoptions=known)))


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")
