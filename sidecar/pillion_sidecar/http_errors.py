"""Refused requests, answered with JSON that has a ``reason``."""

import ipaddress
import math
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from aiohttp import web

#: Characters of a name that an error quotes.
MOST_SHOWN = 40
#: Seconds of Retry-After while the history cannot be read.
UNREAD_RETRY_AFTER = 1
_ANY = "*"
_SAME_SITE = ("none", "same-origin")


def refuse(status: int, reason: str, **more: Any) -> web.Response:
    return web.json_response({"reason": reason, **more}, status=status)


def unavailable(reason: str, *, retry_after: float) -> web.Response:
    """Answer 503: the request is valid, but cannot be served now."""
    response = refuse(503, reason)
    set_retry_after(response, retry_after)
    return response


def history_unread(error: OSError) -> web.Response:
    """Answer 503: the files of the history cannot be read."""
    return unavailable(unread_reason(error), retry_after=UNREAD_RETRY_AFTER)


def unread_reason(error: OSError) -> str:
    return f"the history cannot be read: {error.strerror or error}"


def set_retry_after(response: web.StreamResponse, seconds: float) -> None:
    """In whole seconds, at least one."""
    response.headers["Retry-After"] = str(max(1, math.ceil(seconds)))


# ---------------------------------------------------------------------- query parameters


class ParameterError(Exception):
    """A parameter or header is wrong; the text names it and the remedy. Answered 400."""


def check_names(request: web.Request, known: Collection[str]) -> None:
    """Raise :class:`ParameterError` for an unknown or repeated parameter, and for one that is not
    UTF-8."""
    query = request.query
    raw = request.rel_url.raw_query_string
    if "%" in raw or not raw.isascii():
        _check_encoding(raw)
    names = set(query)
    if len(names) == len(query) and names.issubset(known):
        return
    seen: set[str] = set()
    for name, _ in query.items():
        if name not in known:
            remedy = suggest(name, known)
            raise ParameterError(f"{name[:MOST_SHOWN]!r}: there is no such parameter; {remedy}")
        if name in seen:
            raise ParameterError(f"{name}: is given more than once; give it once")
        seen.add(name)


def _check_encoding(raw: str) -> None:
    # The parsed query replaces such bytes, and then different values would be the same.
    for part in raw.split("&"):
        name = part.partition("=")[0]
        try:
            unquote_to_bytes(part.encode("utf-8", "surrogateescape")).decode()
        except UnicodeError:
            shown = name[:MOST_SHOWN]
            raise ParameterError(f"{shown!r}: is not UTF-8; percent-encode UTF-8") from None


def suggest(text: str, known: Collection[str]) -> str:
    """Return the remedy for an unknown name: the nearest known one, else all."""
    if not known:
        return "leave it out, since nothing can be chosen here"
    near = get_close_matches(text[:MOST_SHOWN].lower(), sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"use {', '.join(sorted(known))}"


# ---------------------------------------------------------------------- web pages


class OriginPolicy:
    """Refuses requests of foreign web pages at a listener without tokens.

    A browser on the deliverer's machine reaches its loopback listener from any page's form, or by
    DNS rebinding; ``Origin``, ``Sec-Fetch-Site`` and ``Host`` show this.
    """

    def __init__(self, host: str) -> None:
        self._own = _plain(host)
        self._is_loopback = _is_loopback(self._own)

    def refuse_page(self, request: web.BaseRequest) -> web.Response | None:
        """Answer 403 to a page of another origin. Sufficient for methods with ``Origin``: all but
        GET and HEAD."""
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None and site not in _SAME_SITE:
            return refuse(403, f"Sec-Fetch-Site: {site[:40]!r}; a web page may not ask for this")
        origin = request.headers.get("Origin")
        if origin is None or self._is_own_origin(origin, request.headers.get("Host")):
            return None
        return refuse(
            403, f"Origin: {origin[:80]!r} is not where this is; a web page may not ask for this"
        )

    def refuse(self, request: web.BaseRequest) -> web.Response | None:
        """Like :meth:`refuse_page`, and answer 403 to a Host that may be rebound."""
        host = request.headers.get("Host")
        if host and not self._is_own(_name_of(host)):
            return refuse(
                403,
                f"Host: {host[:80]!r} is not where this listens; ask for localhost, or for"
                f" {self._own or 'its address'}",
            )
        return self.refuse_page(request)

    def _is_own_origin(self, origin: str, host: str | None) -> bool:
        scheme, _, authority = origin.partition("://")
        is_here = host is not None and authority.lower() == host.lower()
        return scheme in ("http", "https") and is_here and self._is_own(_name_of(authority))

    def _is_own(self, name: str) -> bool:
        if name == self._own or _is_loopback(name):
            return True
        # Not on loopback: names of its network have no dot, unlike a rebound name. An address
        # cannot be rebound.
        return not self._is_loopback and bool(name) and (_is_address(name) or "." not in name)


def _name_of(authority: str) -> str:
    """The host of a Host header; ``?.``, which nobody has, for what is no host and port."""
    try:
        parts = urlsplit(f"//{authority}")
        if parts.port == 0 or parts.netloc != authority or "@" in authority:
            return "?."
    except ValueError:
        return "?."
    return _plain(parts.hostname or "")


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    if _is_address(name):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


# ---------------------------------------------------------------------- unknown paths


def answer_the_rest(listeners: Mapping[str, web.Application]) -> None:
    """Answer 404 and 405 with a reason, in each application, by listener's name.

    A last route instead of a middleware, which would cost served requests time. Call it after all
    other routes are added.
    """
    served = {name: _Served(app) for name, app in listeners.items()}
    for name, app in listeners.items():
        app.router.add_route(_ANY, "/{rest:(?s:.*)}", _Rest(name, served).answer)


class _Served:
    def __init__(self, app: web.Application) -> None:
        self._methods = {
            resource: sorted({route.method for route in resource})
            for resource in app.router.resources()
        }
        self.paths = sorted({resource.canonical for resource in self._methods})

    def methods(self, path: str) -> list[str]:
        found: set[str] = set()
        for resource, methods in self._methods.items():
            info = resource.get_info()
            pattern = info.get("pattern")
            if info.get("path") == path or (pattern is not None and pattern.fullmatch(path)):
                found.update(methods)
        return sorted(found)


class _Rest:
    def __init__(self, name: str, served: Mapping[str, _Served]) -> None:
        self._name = name
        self._served = served

    async def answer(self, request: web.Request) -> web.Response:
        shown = repr(request.path[:MOST_SHOWN])
        methods = self._served[self._name].methods(request.path)
        if methods:
            allowed = ", ".join(methods)
            reason = f"{shown} is not served by {request.method:.20}; use {allowed}"
            answer = refuse(HTTPStatus.METHOD_NOT_ALLOWED, reason)
            answer.headers["Allow"] = allowed
            return answer
        reason = f"the {self._name} address serves no {shown}; {self._remedy(request.path)}"
        return refuse(HTTPStatus.NOT_FOUND, reason)

    def _remedy(self, path: str) -> str:
        for name, served in self._served.items():
            if served.methods(path):
                return f"ask the {name} address (--{name})"
        return suggest(path, self._served[self._name].paths)
