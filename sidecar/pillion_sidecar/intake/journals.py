"""``POST /v1/journals/{session}``: a writer claims, continues and reads the copy of its journal."""

from aiohttp import web

from pillion_sidecar.http_errors import check_names, refuse, unavailable
from pillion_sidecar.intake.bodies import BodyError, BodyReader, refuse_encoding
from pillion_sidecar.intake.limits import RequestSlot
from pillion_sidecar.stores.copies import Copy, StoreError
from pillion_sidecar.stores.messages import (
    CONTENT_TYPE,
    JOURNALS_PATH,
    MAXIMUM_REQUEST,
    REFUSALS,
    decode_request,
    encode_copy,
    refusal_details,
    refusal_name,
)
from pillion_sidecar.stores.namespaces import NamespaceStores

PATH = f"{JOURNALS_PATH}{{session}}"
#: Seconds of Retry-After while the disk refuses.
RETRY_AFTER = 1.0


class JournalDoor:
    def __init__(self, stores: NamespaceStores, *, reader: BodyReader) -> None:
        self._stores = stores
        self._reader = reader

    async def answer(self, request: web.Request, slot: RequestSlot) -> web.StreamResponse:
        """Answer once what was asked is on disk."""
        check_names(request, ())
        refusal = refuse_encoding(request)
        if refusal is not None:
            return refusal
        if request.content_type != CONTENT_TYPE:
            return refuse(415, f"Content-Type: {request.content_type[:80]!r}; send {CONTENT_TYPE}")
        try:
            # Held until it is on disk.
            with self._reader.holding(request) as held:
                body = await self._reader.whole(request, held, maximum=MAXIMUM_REQUEST)
                return await self._perform(slot.namespace, request.match_info["session"], body)
        except BodyError as error:
            return refuse(error.status, str(error))

    async def _perform(
        self, namespace: str | None, session: str, body: bytes
    ) -> web.StreamResponse:
        try:
            answer = await self._stores.perform(namespace, session, decode_request(body))
        except StoreError as error:
            name = refusal_name(error)
            details = refusal_details(error)
            return refuse(REFUSALS[name].status, str(error), error=name, **details)
        except OSError as error:
            reason = f"the store's disk refuses: {error.strerror or error}"
            return unavailable(reason, retry_after=RETRY_AFTER)
        if isinstance(answer, Copy):
            return web.Response(body=encode_copy(answer), content_type=CONTENT_TYPE)
        return web.Response(body=answer, content_type="application/octet-stream")
