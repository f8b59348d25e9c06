"""Serves the console: a page, its script and its style sheet.

The files have no data, so they are answered to everybody; what they show comes from the
administration API, which checks each request.
"""

import asyncio
from functools import partial
from pathlib import Path

from aiohttp import web

_FOLDER = Path(__file__).parent
#: The file of each path, and its content type.
_FILES = {
    "/console": ("console.html", "text/html"),
    "/console.css": ("console.css", "text/css"),
    "/console.js": ("console.js", "text/javascript"),
}
#: By this attribute the script knows whose page it is.
_DELIVERER = b'data-of="deliverer"'
_CLUSTER = b'data-of="cluster"'
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def add_console_routes(app: web.Application, *, has_root: bool, for_cluster: bool = False) -> None:
    """Mount ``/console`` with its two files; with ``has_root``, redirect ``/`` to it. The page
    ``for_cluster`` shows all deliverers of the operator that serves it, and asks for a token."""
    marks = _CLUSTER if for_cluster else _DELIVERER
    for path, (name, content_type) in _FILES.items():
        app.router.add_get(path, partial(_answer, _FOLDER / name, content_type, marks))
    if has_root:
        app.router.add_get("/", _redirect)


async def _answer(file: Path, content_type: str, marks: bytes, _: web.Request) -> web.Response:
    body = await asyncio.to_thread(file.read_bytes)
    if content_type == "text/html":
        body = body.replace(_DELIVERER, marks, 1)
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_HEADERS)


async def _redirect(_: web.Request) -> web.Response:
    # Relative: a proxy may serve it below a path of its own.
    return web.Response(status=302, headers={"Location": "console"})
