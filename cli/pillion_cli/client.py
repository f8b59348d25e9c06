"""An HTTP client for a deliverer or gateway: one connection, no redirects, no retry.

The caller decides whether to repeat a publish request without an answer.
"""

import http.client
import json
import re
import select
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from pillion_cli.exits import CommandError, Exit

#: Maximum size of a token file (bytes).
MOST_TOKEN_BYTES = 16 * 1024
#: RFC 6750, 2.1. An error about any other header value would quote it.
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
#: Defaults of the options, only for an https URL.
CA_VARIABLE, TOKEN_VARIABLE = "PILLION_CA", "PILLION_TOKEN_FILE"
#: Characters of a Location that are shown.
MOST_PLACE = 200
#: The default address of a deliverer's intake.
DEFAULT_URL = "http://127.0.0.1:8288"
#: http.client raises for these characters in a URL.
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")
#: Maximum characters of a request's path and query; a deliverer reads a line of 8,190 bytes.
MOST_TARGET = 8_000
#: Beyond it JSON's numbers are no longer exact.
LARGEST_COUNT = 2**53
#: Maximum size of an answer (bytes); 10,000 refused lines take 3 MB.
MAXIMUM_ANSWER = 64 * 1024 * 1024


class Access:
    def __init__(
        self,
        *,
        ca: Path | None = None,
        token_file: Path | None = None,
        ca_name: str = "--ca",
        token_name: str = "--token-file",
    ) -> None:
        """The names are those of the options or variables, for messages."""
        self._ca = ca
        self._token_file = token_file
        self._ca_name = ca_name
        self._token_name = token_name

    def check(self, scheme: str, url: str) -> None:
        """Raise :class:`CommandError` for credentials without an https URL."""
        if scheme == "https":
            return
        for option, given in ((self._ca_name, self._ca), (self._token_name, self._token_file)):
            if given is not None:
                raise CommandError(
                    f"{option} needs an https URL, and {url!r} is not one", code=Exit.USAGE
                )

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._ca)
        except ssl.SSLError:
            raise CommandError(
                f"{self._ca_name} {self._ca}: no certificates in PEM", code=Exit.USAGE
            ) from None
        except OSError as error:
            raise CommandError(
                f"{self._ca_name} {self._ca}: {error.strerror}", code=Exit.USAGE
            ) from None
        # RFC 9525 6.3: a name counts in subjectAltName only.
        context.hostname_checks_common_name = False
        return context

    def headers(self) -> dict[str, str]:
        """Return the headers with the current token. Raises :class:`CommandError`."""
        if self._token_file is None:
            return {}
        try:
            with self._token_file.open("rb") as file:
                token = file.read(MOST_TOKEN_BYTES + 1).strip()
        except OSError as error:
            raise CommandError(f"{self._token_name} {self._token_file}: {error.strerror}") from None
        if len(token) > MOST_TOKEN_BYTES or _TOKEN.fullmatch(token) is None:
            raise CommandError(f"{self._token_name} {self._token_file}: no valid token")
        return {"Authorization": f"Bearer {token.decode('ascii')}"}


class Unreachable(CommandError):
    """The deliverer cannot be reached, or did not answer."""


class Refused(CommandError):
    """The deliverer refused a request, and would refuse it again."""


class NoDeliverer(Refused):
    """Something else answered."""

    def __init__(self, why: object) -> None:
        super().__init__(
            f"the answer is not from a deliverer: {why}; check the address: --server, --context or"
            " --pod"
        )


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    #: Retry-After, if it is in seconds.
    retry_after: float | None = None
    #: Pillion-Unreached: why the exported indication goes to no listener.
    unreached: str | None = None
    #: What to write instead, if the URL has a path.
    remedy: str | None = None
    #: All headers, by their names in small letters.
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> dict[str, Any] | None:
        """None if the body is no JSON object."""
        try:
            decoded = json.loads(self.body, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return None
        return decoded if isinstance(decoded, dict) else None

    def document(self, *statuses: int) -> dict[str, Any]:
        """Return the JSON object. Raises :class:`Refused` for another status, and
        :class:`NoDeliverer` for another body."""
        if self.status not in (statuses or (200,)):
            raise self.refusal()
        content = self.json()
        if content is None:
            raise NoDeliverer(f"HTTP {self.status} without a JSON object")
        return content

    def refusal(self) -> Refused:
        remedy = "; --token-file names the file with the token" if self.status == 401 else ""
        if 300 <= self.status < 400:
            place = self.headers.get("location", "")
            to = f" to {_shown(place[:MOST_PLACE])}" if place else ""
            remedy = f"; a redirect{to} is not followed: give the deliverer's own address"
        return Refused(f"HTTP {self.status}: {self.text()}{remedy}")

    def text(self) -> str:
        """Return the ``reason`` of a JSON body, or the first 500 bytes of the body."""
        content = self.json()
        if content is not None and isinstance(content.get("reason"), str):
            reason = str(content["reason"])
            if self.remedy is not None and self.status == 404 and " serves no " in reason:
                # The deliverer suggests a path, which the client has appended already.
                return f"{reason.partition(';')[0]}; {self.remedy}"
            return reason
        text = self.body[:500].decode(errors="replace").strip()
        return text or "(no text)"


class DelivererClient:
    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        access: Access | None = None,
        named_by: str = "--server or PILLION_SERVER",
        shown: str | None = None,
    ) -> None:
        """``timeout`` (seconds) is for each read and write; ``named_by`` is the option of the URL,
        and ``shown`` what stands for it in texts.

        Raises :class:`CommandError` for an invalid URL.
        """
        whole, parts = read_url(url)
        #: For texts.
        self.url = shown or whole
        host, port = parts.hostname, parts.port
        assert host is not None
        self._access = access or Access()
        self._named_by = named_by
        self._access.check(parts.scheme, self.url)
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
        """Raises :class:`Unreachable`."""
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
        try:
            target = f"{self._prefix}{quote(path)}" + (f"?{urlencode(given)}" if given else "")
        except UnicodeEncodeError:
            # A word of the command line in another encoding.
            text = "an argument is not UTF-8: write it in the encoding of the terminal, as UTF-8"
            raise CommandError(text, code=Exit.USAGE) from None
        if len(target) > MOST_TARGET:
            text = f"an argument is too long: a request has {MOST_TARGET:,} characters at most"
            raise CommandError(text, code=Exit.USAGE)
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
            remedy=f"give {self._named_by} without a path" if self._prefix else None,
            headers={name.lower(): value for name, value in response.getheaders()},
        )

    def _drop_stale_connection(self) -> None:
        """Close a connection that the peer has closed: the fate of a request on it is unknown."""
        sock = self._connection.sock
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def count_of(document: Mapping[str, Any], name: str) -> int:
    """Return a count of an answer. Raises :class:`NoDeliverer`."""
    if not is_count(document.get(name)):
        raise NoDeliverer(f"{name} is not what it should be")
    return int(document[name])


def read_url(url: str) -> tuple[str, SplitResult]:
    """Parse a URL or HOST:PORT. Raises :class:`CommandError`."""
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError as error:
        raise _no_url(url, str(error)) from None
    usable = parts.scheme in ("http", "https") and parts.hostname and port != 0
    if not usable or (whole != url and port is None) or _UNPRINTABLE.search(whole):
        raise _no_url(url, "write http or https and a host, or HOST:PORT")
    if "@" in parts.netloc:
        text = "write no user name or password; --token-file names the file with a token"
        raise _no_url(url, text)
    if "?" in whole or "#" in whole:
        raise _no_url(re.split("[?#]", url)[0], "write it without ? and #, and what follows")
    return whole, parts


def _shown(url: str) -> str:
    if "@" not in url:
        return url
    from pillion_sidecar.config.problems import without_password  # a hook waits for each import

    return without_password(url)


def _no_url(url: str, why: str) -> CommandError:
    return CommandError(
        f"{_shown(url)!r} is not a URL such as {DEFAULT_URL}: {why}", code=Exit.USAGE
    )


def _why(url: str, error: Exception, named_by: str) -> str:
    if isinstance(error, http.client.IncompleteRead):
        come = len(error.partial)
        if come >= MAXIMUM_ANSWER:
            return f"the answer of {url} is longer than {MAXIMUM_ANSWER:,} bytes"
        return (
            f"no answer from {url}: it broke off after {come:,} bytes; try again, and read the log"
            " of the deliverer, or of a proxy before it"
        )
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return f"no answer from {url}: it does not speak HTTP; name another with {named_by}"
    if isinstance(error, ConnectionRefusedError):
        return (
            f"no deliverer listens at {url} (connection refused): start one with `pillion sidecar`,"
            f" or name another with {named_by}"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        return f"the certificate of {url} is not valid: {why}; name its CA certificates with --ca"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return f"{url} does not use TLS: write http:// instead of https://"
    told = error.strerror if isinstance(error, OSError) else str(error)
    why = told or str(error) or type(error).__name__
    # A listener that answers late is the right one.
    other = f"; name another with {named_by}" if isinstance(error, socket.gaierror) else ""
    return f"no answer from {url}: {why}{other}"


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.strip().isdecimal() else None
