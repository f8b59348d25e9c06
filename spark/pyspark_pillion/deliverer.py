"""The connection of a task to its deliverer: one, kept alive, over HTTP/1.1 or HTTPS.

It does not retry. After a failure the next request opens a new connection; ``connections`` counts
them, since the deliverer may have been restarted in between.

The kubelet renews the token's file on each pod of the job. A task reads it for each request, so no
option, plan, log or page of Spark contains a token.
"""

import http.client
import json
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode

from pyspark_pillion.errors import PillionError, ProtocolError

#: Reasons why an accepted indication goes to no listener.
UNREACHED = ("unrouted", "ended", "suppressed")


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer: status, header fields by lower-cased name, body (bounded)."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def retry_after(self) -> float:
        """In seconds; 0 without the header or for a date."""
        try:
            return max(0.0, float(self.headers.get("retry-after", "0")))
        except ValueError:
            return 0.0

    def document(self) -> Mapping[str, Any]:
        """Raises ProtocolError unless the body is a JSON object."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ProtocolError(f"HTTP {self.status} without a JSON object: {self.excerpt()}")
        return found

    def excerpt(self) -> str:
        return shortened(self.body.decode("utf-8", "replace"), most=300) or "(empty)"


def shortened(text: str, *, most: int = 160) -> str:
    """The text on one line of at most ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused line, by its number in the request."""

    line: int
    status: int
    reason: str
    field: str = ""
    destination: str = ""

    @property
    def for_now(self) -> bool:
        """Whether the line may be accepted later."""
        return self.status == 429


@dataclass(frozen=True, slots=True)
class Accepted:
    """The outcome of the lines of one request. Lines from ``unread_from`` on were not read."""

    accepted: int
    duplicate: int
    refused: tuple[Refused, ...]
    unread_from: int
    #: Accepted lines that go to no listener, by reason.
    unreached: Mapping[str, int] = field(default_factory=dict)
    #: The deliverer's instance of this publisher; "" with deliverers of the first release.
    instance: str = ""
    #: Duplicates that go again to listeners that had missed them.
    redelivered: int = 0


def read_accepted(reply: Reply, *, sent: int) -> Accepted:
    """Read the answer to ``sent`` lines. Raises ProtocolError unless it counts each line once."""
    document = reply.document()
    unread, refused = document.get("unreadFrom"), document.get("refused") or []
    if not isinstance(refused, list):
        raise ProtocolError(f"the answer's refused is no list: {reply.excerpt()}")
    answer = Accepted(
        accepted=_count(document, "accepted"),
        duplicate=_count(document, "duplicate"),
        refused=tuple(_refused(item) for item in refused),
        unread_from=sent if unread is None else _count(document, "unreadFrom"),
        unreached=_unreached(document),
        instance=str(document.get("instance") or ""),
        redelivered=_count(document, "redelivered"),
    )
    numbers = {refused.line for refused in answer.refused}
    read = answer.accepted + answer.duplicate + len(numbers)
    good = len(numbers) == len(answer.refused) and all(n < answer.unread_from for n in numbers)
    if not good or answer.unread_from > sent or read != answer.unread_from:
        raise ProtocolError(f"the answer to {sent} lines does not add up: {reply.excerpt()}")
    return answer


def _unreached(document: Mapping[str, Any]) -> dict[str, int]:
    return {reason: count for reason in UNREACHED if (count := _count(document, reason))}


def _count(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProtocolError(f"the answer's {key} is {value!r}, not a count")
    return value


def _refused(item: Any) -> Refused:
    if not isinstance(item, dict):
        raise ProtocolError(f"the answer's refused has {item!r}, not an object")
    return Refused(
        line=_count(item, "line"),
        status=_count(item, "status"),
        reason=str(item.get("reason") or ""),
        field=str(item.get("field") or ""),
        destination=str(item.get("destination") or ""),
    )


@dataclass(frozen=True, slots=True)
class Flushed:
    """The progress of a publisher's indications at all destinations.

    ``discarded`` counts by (destination, reason); ``waiting`` counts pending indications by
    destination, and the originals of duplicates. ``accepted`` counts each row once, however often
    it was sent; None with earlier deliverers, which do not tell.
    """

    complete: bool
    delivered: int
    discarded: Mapping[tuple[str, str], int]
    waiting: Mapping[str, int]
    accepted: int | None = None
    #: Of the accepted ones, as in :class:`Accepted`.
    unreached: Mapping[str, int] = field(default_factory=dict)


def read_flushed(reply: Reply) -> Flushed:
    """Read the answer to a flush. Raises ProtocolError."""
    document = reply.document()
    complete, destinations = document.get("complete"), document.get("destinations") or {}
    if not isinstance(complete, bool) or not isinstance(destinations, dict):
        raise ProtocolError(f"this is no answer to a flush: {reply.excerpt()}")
    delivered = 0
    discarded: dict[tuple[str, str], int] = {}
    waiting: dict[str, int] = {}
    for name, counts in destinations.items():
        reasons = counts.get("discarded") or {} if isinstance(counts, dict) else None
        if not isinstance(reasons, dict):
            raise ProtocolError(f"this is no answer to a flush: {reply.excerpt()}")
        delivered += _count(counts, "delivered")
        discarded |= {(name, reason): _count(reasons, reason) for reason in reasons}
        if pending := _count(counts, "pending"):
            waiting[name] = pending
    if originals := _count(document, "pendingOriginals"):
        waiting["originals of duplicates"] = originals
    discarded = {key: count for key, count in discarded.items() if count}
    accepted = _count(document, "accepted") if "accepted" in document else None
    return Flushed(complete, delivered, discarded, waiting, accepted, _unreached(document))


#: Maximum size of a token file (bytes).
LONGEST_TOKEN = 16 * 1024
#: RFC 6750, 2.1. An error about any other header value would quote it.
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
#: Maximum size of an answer (bytes); 10,000 refused lines take 3 MB.
LONGEST_ANSWER = 16 * 1024 * 1024
#: Failures after which a request may be repeated: no connection, a broken one, or no answer.
FAILURES = (OSError, http.client.HTTPException)


class Address(NamedTuple):
    host: str
    port: int
    #: Whether to use TLS, as for a gateway.
    encrypted: bool = False


class AccessError(PillionError, OSError):
    """The token or the CA file is not usable. Retried, since the files may be renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    ca_file: str | None = None
    token_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Raises AccessError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except ssl.SSLError:
            raise AccessError(f"option caFile: {self.ca_file}: no certificates in PEM") from None
        except OSError as error:
            raise AccessError(f"option caFile: {self.ca_file}: {error.strerror}") from None
        # RFC 9525 6.3: a name counts in subjectAltName only.
        context.hostname_checks_common_name = False
        return context

    def headers(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        try:
            with open(self.token_file, "rb") as file:
                token = file.read(LONGEST_TOKEN + 1).strip()
        except OSError as error:
            raise AccessError(f"option tokenFile: {self.token_file}: {error.strerror}") from None
        if len(token) > LONGEST_TOKEN or _TOKEN.fullmatch(token) is None:
            raise AccessError(f"option tokenFile: {self.token_file}: no valid token")
        return {"Authorization": f"Bearer {token.decode('ascii')}"}


class Deliverer:
    """A deliverer's intake. Not for use by several threads."""

    def __init__(self, address: Address, *, timeout: float, access: Access | None = None) -> None:
        """Raises one of FAILURES without a usable CA file."""
        self._access = access or Access()
        host, port = address.host, address.port
        if address.encrypted:
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=self._access.context()
            )
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=timeout)
        self.connections = 0

    @property
    def address(self) -> str:
        return f"{self._http.host}:{self._http.port}"

    def connect(self) -> None:
        if self._http.sock is None:
            self._http.connect()
            self.connections += 1

    def post(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Return the answer, of any status. Raises one of FAILURES or ProtocolError, and closes the
        connection.
        """
        try:
            self.connect()
            shown = {**(headers or {}), **self._access.headers()}
            return self._exchange(f"{path}?{urlencode(query)}", body, shown)
        except (*FAILURES, ProtocolError):
            self.close()
            raise

    def _exchange(self, target: str, body: bytes, headers: dict[str, str]) -> Reply:
        # A refusal (413, 503) may come, and the connection end, before the request is read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._http.request("POST", target, body=body, headers=headers)
        answer = self._http.getresponse()
        content = answer.read(LONGEST_ANSWER + 1)
        if len(content) > LONGEST_ANSWER:
            raise ProtocolError(f"an answer of more than {LONGEST_ANSWER} bytes")
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, fields, content)

    def close(self) -> None:
        self._http.close()
