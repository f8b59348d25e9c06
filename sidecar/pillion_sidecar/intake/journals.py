"""``POST /v1/journals/{session}``: a writer claims, continues and reads the copy of its journal.
``GET /v1/journals``: which copies are kept.

A gateway serves its copies until its listeners close: what is drained meanwhile publishes nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from pillion_sidecar.auth.principal import IS_FROM_GATEWAY, PRINCIPAL, namespace_of
from pillion_sidecar.http_errors import check_names, refuse, unavailable
from pillion_sidecar.intake.bodies import BodyError, BodyReader, refuse_encoding
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.limits import RequestSlot
from pillion_sidecar.telemetry.parameters import limit_of

if TYPE_CHECKING:
    # They import the files of stores, which a sidecar does not need.
    from pillion_sidecar.stores.copies import StoreError
    from pillion_sidecar.stores.namespaces import ListedSession, NamespaceStores
    from pillion_sidecar.wire.journals import JournalCopyPage

JOURNALS_PATH = "/v1/journals"
JOURNAL_PATH = f"{JOURNALS_PATH}/{{session}}"
LIST_PARAMETERS = ("after", "limit")
#: Seconds of Retry-After while the disk refuses.
RETRY_AFTER = 1.0
NO_COPIES = (
    "this deliverer keeps no copies of journals: set journalCopies in an IndicationService whose"
    " deliverer.mode is Gateway, and start its gateway again"
)
#: Results of requests that are no refusals of the store.
OK, BODY, DISK = "ok", "body", "disk"
#: The verb of a request that cannot be read.
NO_VERB = "none"


class JournalRoutes:
    def __init__(self, context: IntakeContext, *, reader: BodyReader) -> None:
        self._context = context
        self._reader = reader

    def are_open(self) -> bool:
        return self._context.stores is not None

    async def change(self, request: web.Request, slot: RequestSlot) -> web.StreamResponse:
        """Answer once what was asked is on disk."""
        stores = self._context.stores
        if stores is None:
            return refuse(404, NO_COPIES)
        check_names(request, ())
        # Late: it imports the files of stores.
        from pillion_sidecar.stores.messages import CONTENT_TYPE, MAXIMUM_REQUEST

        refusal = refuse_encoding(request)
        if refusal is None and request.content_type != CONTENT_TYPE:
            refusal = refuse(
                415, f"Content-Type: {request.content_type[:80]!r}; send {CONTENT_TYPE}"
            )
        if refusal is not None:
            stores.requests[NO_VERB, BODY] += 1
            return refusal
        try:
            # Held until it is on disk.
            with self._reader.holding(request) as held:
                body = await self._reader.whole(request, held, maximum=MAXIMUM_REQUEST)
                return await _perform(stores, request, body)
        except BodyError as error:
            stores.requests[NO_VERB, BODY] += 1
            return refuse(error.status, str(error))

    async def list(self, request: web.Request) -> web.StreamResponse:
        """Answer the copies of the namespace of the request's token."""
        stores = self._context.stores
        if stores is None:
            return refuse(404, NO_COPIES)
        check_names(request, LIST_PARAMETERS)
        return await list_copies(stores, request, own=True, namespace=namespace_of(request))


async def list_copies(
    stores: "NamespaceStores",
    request: web.Request,
    *,
    own: bool = False,
    namespace: str | None = None,
) -> web.StreamResponse:
    """``own``: only those of ``namespace``, which is None without tokens."""
    from pillion_sidecar.stores.copies import StoreError
    from pillion_sidecar.wire.journals import DEFAULT_SESSIONS, MOST_SESSIONS

    limit = limit_of(request, default=DEFAULT_SESSIONS, most=MOST_SESSIONS)
    after, _, session = request.query.get("after", "").partition("/")
    try:
        if own:
            found = await stores.sessions_of(namespace, after=session, limit=limit)
        else:
            found = await stores.sessions(after=(after, session), limit=limit)
    except OSError as error:
        return _disk_refuses(error)
    except StoreError as error:
        return refuse(500, str(error))
    body = msgspec.json.encode(_page(found, limit=limit))
    return web.Response(body=body, content_type="application/json")


def _page(found: "Sequence[ListedSession]", *, limit: int) -> "JournalCopyPage":
    from pillion_sidecar.stores.namespaces import ANY_NAMESPACE
    from pillion_sidecar.wire.journals import JournalCopy, JournalCopyPage

    copies = [
        JournalCopy(
            namespace=None if namespace == ANY_NAMESPACE else namespace,
            session=one.session,
            claimant=one.epoch.claimant,
            epoch=one.epoch.number,
            service_account=one.account or None,
            bytes=one.size,
            end=f"{one.end:x}",
            idle_seconds=round(one.idle_seconds, 3),
        )
        for namespace, one in found
    ]
    last = found[-1] if len(found) >= limit else None
    return JournalCopyPage(
        journals=copies, next=None if last is None else f"{last.namespace}/{last.status.session}"
    )


async def _perform(
    stores: "NamespaceStores", request: web.Request, body: bytes
) -> web.StreamResponse:
    from pillion_sidecar.stores.copies import Copy, StoreError
    from pillion_sidecar.stores.messages import CONTENT_TYPE, decode_request, encode_copy, verb_of

    principal = request.get(PRINCIPAL)
    account: str | None = "" if principal is None else principal.service_account
    if request.get(IS_FROM_GATEWAY):
        # A gateway adopts sessions of its namespace, whoever began them.
        account = None
    verb = NO_VERB
    try:
        asked = decode_request(body)
        verb = verb_of(asked)
        answer = await stores.perform(
            namespace_of(request), request.match_info["session"], asked, account=account
        )
    except StoreError as error:
        return _refuse(stores, verb, error)
    except OSError as error:
        stores.requests[verb, DISK] += 1
        return _disk_refuses(error)
    stores.requests[verb, OK] += 1
    if isinstance(answer, Copy):
        return web.Response(body=encode_copy(answer), content_type=CONTENT_TYPE)
    return web.Response(body=answer, content_type="application/octet-stream")


def _refuse(stores: "NamespaceStores", verb: str, error: "StoreError") -> web.Response:
    from pillion_sidecar.stores.messages import REFUSALS, refusal_details, refusal_name

    name = refusal_name(error)
    stores.requests[verb, name] += 1
    details = refusal_details(error)
    return refuse(REFUSALS[name].status, str(error), error=name, **details)


def _disk_refuses(error: OSError) -> web.Response:
    reason = f"the store's disk refuses: {error.strerror or error}"
    return unavailable(reason, retry_after=RETRY_AFTER)
