"""The console: what is served, and that it asks nobody else."""

import asyncio
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pillion_sidecar.console import routes
from support.resources import destination
from support.running import ANYWHERE, resources, running

FOLDER = Path(routes.__file__).parent
PAGE, SCRIPT, STYLE = (FOLDER / f"console.{kind}" for kind in ("html", "js", "css"))
HOSTILE = {"Origin": "http://attacker.example", "Sec-Fetch-Site": "cross-site"}


@pytest.fixture
async def client() -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    app = web.Application()
    routes.add_console_routes(app, has_root=True)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "file", "content_type"),
    [
        ("/console", PAGE, "text/html"),
        ("/console.js", SCRIPT, "text/javascript"),
        ("/console.css", STYLE, "text/css"),
    ],
)
async def test_each_file_is_served_with_a_policy_that_allows_its_own_address_alone(
    client: TestClient,  # type: ignore[type-arg]
    path: str,
    file: Path,
    content_type: str,
) -> None:
    answer = await client.get(path)
    expected = await asyncio.to_thread(file.read_bytes)
    assert (answer.status, await answer.read()) == (200, expected)
    assert answer.headers["Content-Type"] == f"{content_type}; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "Set-Cookie" not in answer.headers
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";")
    )
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }


async def test_the_page_of_a_cluster_differs_in_one_word() -> None:
    app = web.Application()
    routes.add_console_routes(app, has_root=True, for_cluster=True)
    async with TestClient(TestServer(app)) as client, client.get("/console") as answer:
        page = PAGE.read_text(encoding="utf-8")
        assert await answer.text() == page.replace('data-of="deliverer"', 'data-of="cluster"')


async def test_the_root_leads_to_it_by_a_relative_address(client: TestClient) -> None:  # type: ignore[type-arg]
    answer = await client.get("/", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (302, "console")


async def test_it_is_where_the_administration_is(tmp_path: Path) -> None:
    folder = tmp_path / "resources"
    folder.mkdir()
    async with running(folder, *resources(destination("siem")), administration=ANYWHERE) as run:
        deliverer = run.deliverer
        assert (await run.ask(f"{deliverer.administration_url}/")).document.startswith("<!doctype")
        assert (await run.get("/console")).status == 404
        assert (await run.ask(f"{deliverer.telemetry_url}/console")).status == 404


async def test_at_the_intake_the_root_stays_that_of_publishers(tmp_path: Path) -> None:
    async with running(tmp_path, *resources(destination("siem"))) as run:
        assert (await run.get("/console")).status == 200
        assert (await run.get("/")).status == 405


async def test_a_link_on_another_page_opens_it_and_that_page_still_gets_no_data(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, *resources(destination("siem"))) as run:
        intake = run.deliverer.intake_url
        assert (await run.ask(f"{intake}/console", **HOSTILE)).status == 200
        assert (await run.ask(f"{intake}/v1/queues", **HOSTILE)).status == 403


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.named: list[str] = []
        self._is_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_code = tag in ("script", "style")
        for name, value in attrs:
            if name in ("src", "href", "action", "srcset"):
                self.urls.append(value or "")
            if name == "style" or name.startswith("on"):
                self.inline.append(name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("for", "aria-labelledby", "aria-describedby"):
                self.named.append(value or "")

    def handle_data(self, data: str) -> None:
        if self._is_code and data.strip():
            self.inline.append(data)

    def handle_endtag(self, _: str) -> None:
        self._is_code = False


def _parsed() -> _Page:
    page = _Page()
    page.feed(PAGE.read_text(encoding="utf-8"))
    return page


def test_every_address_in_its_files_is_relative() -> None:
    assert set(_parsed().urls) == {"#main", "#/", "data:,", "console.css", "console.js"}
    script = SCRIPT.read_text(encoding="utf-8")
    asked = set(re.findall(r"""(?:ask|post)\(["`](?:\$\{(?:view\.)?base\})?([^"`$]+)""", script))
    paths = {"v1/cluster", "v1/queues", "v1/outcomes", "v1/outcomes/redrive", "v1/pending"}
    assert asked == paths
    for text in (script, STYLE.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8")):
        assert re.findall(r"(?:https?:|wss?:|url\(|@import|[\"'(=]//)[^\s]*", text) == []


def test_nothing_runs_that_is_not_in_the_script() -> None:
    assert _parsed().inline == []
    script = SCRIPT.read_text(encoding="utf-8")
    way_to_markup = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(|DOMParser"
    assert re.findall(way_to_markup, script) == []
    assert re.findall(r"localStorage|sessionStorage|indexedDB|cookie", script) == []


def test_every_name_of_the_page_is_there_once() -> None:
    page = _parsed()
    assert len(page.ids) == len(set(page.ids))
    assert set(page.named) <= set(page.ids)
    used = set(re.findall(r"\$\(\"([\w-]+)\"\)", SCRIPT.read_text(encoding="utf-8")))
    assert used <= set(page.ids)
