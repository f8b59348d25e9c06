"""The connection of a task to its deliverer: one, kept alive, over HTTP/1.1 or HTTPS.

It does not retry. After a failure the next request opens a new connection; ``connections`` counts
them, since the deliverer may have been restarted in between.

The kubelet renews the token's file on each pod of the job. A task reads it for each request, so no
option, plan, log or page of Spark contains a token.
"""

import http.client
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from pyspark_pillion.answers import Reply
from pyspark_pillion.errors import PillionError, ProtocolError

#: Bytes of a token's file that are read.
LONGEST_TOKEN = 16 * 1024
#: RFC 6750, 2.1. An error about any other header value would quote it.
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
#: The longest answer that is read: 10,000 refused lines take a fraction of it.
LONGEST_ANSWER = 16 * 1024 * 1024
#: What a request that may be repeated fails with: no connection, a broken one, or no answer.
FAILURES = (OSError, http.client.HTTPException)


class Address(NamedTuple):
    host: str
    port: int
    #: Whether it speaks TLS, as a gateway does.
    encrypted: bool = False


class AccessError(PillionError, OSError):
    """The token or the CA file cannot be used. It is retried, since the files may be renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    ca_file: str | None = None
    token_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return what a gateway's certificate is verified with. Raises AccessError."""
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
        """Raises one of FAILURES where there is no usable CA file."""
        self._access = access or Access()
        host, port = address.host, address.port
        if address.encrypted:
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=self._access.context()
            )
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=timeout)
        #: How many connections have been made.
        self.connections = 0

    @property
    def address(self) -> str:
        """``HOST:PORT``, for messages."""
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
        """Send a request and return its answer, whatever its status.

        Raises one of FAILURES, after which the connection is closed, or ProtocolError where the
        answer is longer than any deliverer's.
        """
        try:
            self.connect()
            shown = {**(headers or {}), **self._access.headers()}
            return self._exchange(f"{path}?{urlencode(query)}", body, shown)
        except (*FAILURES, ProtocolError):
            self.close()
            raise

    def _exchange(self, target: str, body: bytes, headers: dict[str, str]) -> Reply:
        # Who refuses a request (413, 503) may answer and close before it has been read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._http.request("POST", target, body=body, headers=headers)
        answer = self._http.getresponse()
        content = answer.read(LONGEST_ANSWER + 1)
        if len(content) > LONGEST_ANSWER:
            raise ProtocolError(f"an answer of more than {LONGEST_ANSWER} bytes")
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, fields, content)

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        self._http.close()
