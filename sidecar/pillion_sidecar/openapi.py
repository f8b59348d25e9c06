"""``GET /v1/openapi.json`` of each listener, in OpenAPI 3.1.

``openapi.yaml`` describes the routes; enumerations and structs come from the source. Built by the
first request.
"""

import asyncio
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from pillion_sidecar.config.schema.destination import HoldCause
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.history.handed_over import PartAnswer
from pillion_sidecar.history.outcome import Discard, OutcomeResult
from pillion_sidecar.indication import DiscardReason, Unreached
from pillion_sidecar.wire.diagnosis import (
    DelivererStatus,
    EndpointPage,
    Explanation,
    PendingAnswer,
    PendingLine,
    TrialAnswer,
)
from pillion_sidecar.wire.journals import JournalCopyPage
from pillion_sidecar.wire.outcomes import OutcomeLine, RedriveAnswer
from pillion_sidecar.wire.relay import RelayOrigin

PATH = "/v1/openapi.json"
_SOURCE = Path(__file__).with_suffix(".yaml")
_ENUMERATIONS: tuple[type[StrEnum], ...] = (
    DeliveryResult,
    DiscardReason,
    HoldCause,
    OutcomeResult,
    Unreached,
)
_STRUCTS = (
    DelivererStatus,
    Discard,
    EndpointPage,
    Explanation,
    JournalCopyPage,
    OutcomeLine,
    PartAnswer,
    PendingAnswer,
    RedriveAnswer,
    RelayOrigin,
    TrialAnswer,
)
_REFERENCE = "#/components/schemas/{name}"


def openapi_document() -> dict[str, Any]:
    # Late: the deliverer itself has no use for it.
    from pillion_sidecar.wire.adoptions import AdoptionOrder, AdoptionPage

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, Any] = yaml.load(_SOURCE.read_bytes(), Loader=loader)
    document["info"]["version"] = version("pillion")
    schemas = document["components"]["schemas"]
    for enumeration in _ENUMERATIONS:
        schemas[enumeration.__name__]["enum"] = [member.value for member in enumeration]
    _, structs = msgspec.json.schema_components(
        (*_STRUCTS, AdoptionOrder, AdoptionPage), ref_template=_REFERENCE
    )
    schemas |= structs
    # A body is passed on as it was published.
    for line in (OutcomeLine, PendingLine):
        schemas[line.__name__]["properties"]["indication"] = {
            "$ref": _REFERENCE.format(name="Indication")
        }
    return document


@cache
def _encoded() -> bytes:
    return msgspec.json.encode(openapi_document())


async def _answer(request: web.Request) -> web.Response:
    # In a thread: the first request reads and converts the file.
    body = await asyncio.to_thread(_encoded)
    return web.Response(body=body, content_type="application/json")


def add_openapi_route(app: web.Application) -> None:
    """The document has no secret, so only a gateway's middleware asks for a token."""
    app.router.add_get(PATH, _answer)
