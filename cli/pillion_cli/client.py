"""An HTTP client for a deliverer: one connection, one request at a time, nothing followed.

It never repeats a request by itself: whether a publish that got no answer may be sent again is for
the caller to say.
"""

import http.client
import json
import re
import select
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from pillion_cli.access import Access
from pillion_cli.exits import CommandError, Exit

#: The default address of a deliverer's intake.
DEFAULT_URL = "http://127.0.0.1:8288"
#: What no URL holds; http.client raises for it.
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")
#: Bytes of an answer that are read; 10,000 refused lines take some 3 MB.
MAXIMUM_ANSWER = 64 * 1024 * 1024


class Unreachable(CommandError):
    """The deliverer cannot be reached, or did not answer."""


class Refused(CommandError):
    """The deliverer answered that it will not, for a reason that waiting does not mend."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    #: Seconds, where the answer has a Retry-After in seconds.
    retry_after: float | None = None
    #: Why what was exported goes to no listener: the Pillion-Unreached header.
    unreached: str | None = None

    def json(self) -> dict[str, Any] | None:
        """The body as a JSON object; None where it is not one."""
        try:
            decoded = json.loads(self.body)
        except ValueError:
            return None
        return decoded if isinstance(decoded, dict) else None

    def text(self) -> str:
        """The body for people, cut short: its reason, where it is JSON that has one."""
        content = self.json()
        if content is not None and isinstance(content.get("reason"), str):
            return str(content["reason"])
        text = self.body[:500].decode(errors="replace").strip()
        return text or "(no text)"


class DelivererClient:
    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        access: Access | None = None,
        named_by: str = "--to or PILLION_URL",
    ) -> None:
        """``timeout`` is in seconds, for each read and write. ``named_by``: what names the URL.

        Raises :class:`CommandError` for a URL that is not one.
        """
        self.url, parts = read_url(url)
        host, port = parts.hostname, parts.port
        assert host is not None
        self._access = access or Access()
        self._named_by = named_by
        self._access.check(self.url)
        self._prefix = parts.path.rstrip("/")
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=self._access.context()
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Answer:
        return self._request("GET", path, query or {}, None, {})

    def post(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send something, once. Raises :class:`Unreachable`."""
        return self._request("POST", path, query or {}, body, headers or {})

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Answer:
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{self._prefix}{quote(path)}" + (f"?{urlencode(given)}" if given else "")
        self._drop_stale_connection()
        shown = {**headers, **self._access.headers()}
        try:
            self._connection.request(method, target, body=body, headers=shown)
            response = self._connection.getresponse()
            content = response.read(MAXIMUM_ANSWER)
            if response.length:
                raise http.client.IncompleteRead(content, response.length)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Unreachable(_why(self.url, error, self._named_by)) from error
        if not response.isclosed():
            self._connection.close()
        return Answer(
            response.status,
            content,
            retry_after=_seconds(response.getheader("Retry-After")),
            unreached=response.getheader("Pillion-Unreached"),
        )

    def _drop_stale_connection(self) -> None:
        """Close a kept connection that the peer has closed: a request on it would be lost, and
        nobody could say whether it had arrived."""
        sock = self._connection.sock
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()


def read_url(url: str) -> tuple[str, SplitResult]:
    """Return a URL, or HOST:PORT as one, and its parts. Raises :class:`CommandError`."""
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError as error:
        raise _no_url(url, str(error)) from None
    usable = parts.scheme in ("http", "https") and parts.hostname and port != 0
    if not usable or (whole != url and port is None) or _UNPRINTABLE.search(whole):
        raise _no_url(url, "write http or https and a host, or HOST:PORT")
    return whole, parts


def _no_url(url: str, why: str) -> CommandError:
    return CommandError(f"{url!r} is not a URL such as {DEFAULT_URL}: {why}", code=Exit.USAGE)


def _why(url: str, error: Exception, named_by: str) -> str:
    if isinstance(error, ConnectionRefusedError):
        return (
            f"no deliverer listens at {url} (connection refused): start one with `pillion sidecar`,"
            f" or name another with {named_by}"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        return f"the certificate of {url} is not accepted: {why}; name its authorities with --ca"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return f"{url} does not speak TLS: write http:// in place of https://"
    told = error.strerror if isinstance(error, OSError) else str(error)
    return f"no answer from {url}: {told or str(error) or type(error).__name__}"


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.strip().isdecimal() else None
