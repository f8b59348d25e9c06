"""The OpenAPI document: every route is in it and no other, each listener serves it, and the
reference page is made from it."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from generate_http_reference import PAGE, http_page
from pillion_sidecar.openapi import PATH, openapi_document
from support.resources import destination
from support.running import ANYWHERE, Running, resources, running

METHODS = frozenset({"delete", "get", "patch", "post", "put"})
DOCUMENT = openapi_document()
#: What answers 404 and 405 with a reason.
REST = "/{rest}"


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Running]:
    """A deliverer with every listener and every route."""
    token = tmp_path / "token"
    token.write_text("secret")
    folder = tmp_path / "resources"
    folder.mkdir()
    given: dict[str, Any] = {"administration": ANYWHERE, "operator_token_file": token}
    given["operator_console"] = True
    async with running(folder, *resources(destination("siem")), **given) as run:
        yield run


def _routes(app: web.Application) -> set[tuple[str, str]]:
    return {
        ("post" if route.method == "*" else route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.resource.canonical != REST
    }


async def test_the_document_has_every_route_and_no_other(run: Running) -> None:
    routes = set().union(*map(_routes, run.deliverer._applications().values()))
    described = {
        (method, path)
        for path, item in DOCUMENT["paths"].items()
        for method in METHODS & item.keys()
    }
    assert {(method, path) for method, path in routes if method != "head"} == described
    heads = {path for method, path in routes if method == "head"}
    assert heads < {path for method, path in described if method == "get"}


async def test_every_listener_serves_the_document(run: Running) -> None:
    deliverer = run.deliverer
    for url in (deliverer.intake_url, deliverer.administration_url, deliverer.telemetry_url):
        answer = await run.ask(url + PATH)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.document == DOCUMENT
        async with aiohttp.ClientSession() as session, session.head(url + PATH) as head:
            assert (head.status, await head.read()) == (200, b"")
            assert head.headers["Content-Length"] == answer.headers["Content-Length"]


def test_enumerations_and_structs_come_from_the_source() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert "queue-full" in schemas["DiscardReason"]["enum"]
    assert schemas["RelayOrigin"]["additionalProperties"] is False
    assert "sequenceNumber" in schemas["Discard"]["properties"]


def _references(part: Any) -> set[str]:
    found = set(re.findall(r"'#/components/([^']+)'", repr(part)))
    assert found
    return found


def test_every_component_is_used_and_every_reference_leads_to_one() -> None:
    components = {
        f"{kind}/{name}"
        for kind, named in DOCUMENT["components"].items()
        if kind != "securitySchemes"
        for name in named
    }
    # The lines of NDJSON are named in prose: OpenAPI 3.1 has no schema for them.
    assert components - _references(DOCUMENT) == {"schemas/RelayedIndication"}
    assert _references(DOCUMENT) <= components


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == http_page()
