"""The connection to the deliverer: one for each task, kept alive, speaking HTTP/1.1.

It retries nothing by itself. After a failure the next request connects anew; whoever must know
that (the deliverer may have been restarted in between) compares ``connections``.
"""

import http.client
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlencode

from pyspark_pillion.access import Access, Address
from pyspark_pillion.answers import Reply
from pyspark_pillion.errors import ProtocolError

#: The longest answer that is read: 10,000 refused lines take a fraction of it.
LONGEST_ANSWER = 16 * 1024 * 1024

#: What a request that may be repeated fails with: no connection, a broken one, or no answer.
FAILURES = (OSError, http.client.HTTPException)


class Deliverer:
    """A deliverer's intake. Not for use by several threads."""

    def __init__(self, address: Address, *, timeout: float, access: Access | None = None) -> None:
        """Raises one of FAILURES where there is no authority to trust."""
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
        """Connect, unless connected. Raises one of FAILURES."""
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
