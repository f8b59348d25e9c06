"""Requests that a web page has a browser send, to a listener that asks for no token.

A browser on the machine of a deliverer reaches its loopback listener: by a form of any page, or by
a name that its owner points at loopback (DNS rebinding). It says so itself, in ``Origin``,
``Sec-Fetch-Site`` and ``Host``.
"""

import ipaddress
from urllib.parse import urlsplit

from aiohttp import web

_OF_THE_PAGE_ITSELF = ("none", "same-origin")


class OriginPolicy:
    """Tells requests of foreign pages from others, at one listener."""

    def __init__(self, host: str) -> None:
        """``host``: where it listens, as the settings say."""
        self._own = _plain(host)
        self._is_loopback = _is_loopback(self._own)

    def refuse_page(self, request: web.BaseRequest) -> str | None:
        """Return why a request is refused; None where no page of another origin sent it.

        Enough for requests that a browser sends with ``Origin``: all but GET and HEAD.
        """
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None and site not in _OF_THE_PAGE_ITSELF:
            return f"Sec-Fetch-Site: {site[:40]!r}; a web page may not ask for this"
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_own_origin(origin, request.headers.get("Host")):
            return f"Origin: {origin[:80]!r} is not where this is; a web page may not ask for this"
        return None

    def refuse(self, request: web.BaseRequest) -> str | None:
        """Return why a request is refused; None where neither a page of another origin sent it, nor
        its Host is a name that may have been pointed here."""
        host = request.headers.get("Host")
        if host and not self._is_own(_name_of(host)):
            return (
                f"Host: {host[:80]!r} is not where this listens; ask for localhost, or for"
                f" {self._own or 'its address'}"
            )
        return self.refuse_page(request)

    def _is_own_origin(self, origin: str, host: str | None) -> bool:
        scheme, _, authority = origin.partition("://")
        is_here = host is not None and authority.lower() == host.lower()
        return scheme in ("http", "https") and is_here and self._is_own(_name_of(authority))

    def _is_own(self, name: str) -> bool:
        if name == self._own or _is_loopback(name):
            return True
        # Bound elsewhere on purpose: names of its network have no dot, and a name that somebody
        # points here has one. An address cannot be pointed anywhere.
        return not self._is_loopback and bool(name) and (_is_address(name) or "." not in name)


def _name_of(authority: str) -> str:
    try:
        return _plain(urlsplit(f"//{authority}").hostname or "")
    except ValueError:
        return "?."


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
