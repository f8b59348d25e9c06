"""Polls one deliverer: ``GET http://POD_IP:8289/v1/queues`` with a bearer token. Answers are not
trusted: no redirects, no decompression, and limits on bytes, pages and seconds."""

import ipaddress
from collections.abc import Mapping
from http import HTTPStatus

import aiohttp

from pillion_operator.clock import Clock, within
from pillion_operator.polling.reports import NO_TOKEN, Answer, Unreachable, report_of
from pillion_sidecar.wire.queues import AnswerError, QueuePage, read_page

TELEMETRY_PORT = 8289
#: Maximum connections; the poller stays below it, because waiting for one counts as time.
MOST_CONNECTIONS = 32
#: Seconds until the connection is open, and until the answer is complete.
CONNECT_TIMEOUT = 2.0
TOTAL_TIMEOUT = 5.0
#: Queues per page, bytes per page, and pages: as many queues as a configuration may have
#: destinations (10,000), some of them draining.
PAGE = 500
LARGEST_PAGE = 1024 * 1024
MOST_PAGES = 24
_CHUNK = 64 * 1024


class DelivererClient:
    """Needs a running event loop; ``aclose()`` ends it."""

    def __init__(self, *, clock: Clock, port: int = TELEMETRY_PORT) -> None:
        self._clock = clock
        self._port = port
        self._session = _session()

    async def aclose(self) -> None:
        await self._session.close()

    async def poll(self, pod: str, *, address: str, token: str) -> Answer:
        at = self._clock.time()
        try:
            url = f"http://{_host(address)}:{self._port}/v1/queues"
            pages = await within(self._clock, TOTAL_TIMEOUT, self._pages(url, token))
        except (AnswerError, TimeoutError, aiohttp.ClientError, OSError) as error:
            return Unreachable(pod=pod, reason=_reason(error), since=at)
        return report_of(pod, pages, at=at)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        address: str,
        token: str,
        seconds: float,
        most: int,
        body: bytes | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return the status, the headers and the body of at most ``most`` bytes; ``path`` is
        percent-encoded, and ``body`` is JSON. Raises AnswerError, TimeoutError, aiohttp.ClientError
        and OSError."""
        url = f"http://{_host(address)}:{self._port}{path}"

        async def answer() -> tuple[int, Mapping[str, str], bytes]:
            async with self._session.request(
                method,
                url,
                params=query,
                data=body,
                headers=_bearer(token) | _described(body),
                allow_redirects=False,
            ) as response:
                return response.status, response.headers, await _read(response, most)

        return await within(self._clock, seconds, answer())

    async def _pages(self, url: str, token: str) -> list[QueuePage]:
        pages: list[QueuePage] = []
        after = ""
        for _ in range(MOST_PAGES):
            page = read_page(await self._body(url, token, after))
            pages.append(page)
            if page.next is None:
                return pages
            if page.next <= after:
                raise AnswerError("next is not after the page before")
            after = page.next
        raise AnswerError(f"the answer is longer than {MOST_PAGES} pages")

    async def _body(self, url: str, token: str, after: str) -> bytes:
        parameters = {"limit": str(PAGE)}
        if after:
            parameters["after"] = after
        async with self._session.get(
            url,
            params=parameters,
            headers=_bearer(token),
            allow_redirects=False,
        ) as response:
            if response.status == HTTPStatus.UNAUTHORIZED:
                raise AnswerError(NO_TOKEN)
            if response.status != HTTPStatus.OK:
                raise AnswerError(f"HTTP {response.status}")
            return await _read(response, LARGEST_PAGE)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _described(body: bytes | None) -> dict[str, str]:
    return {} if body is None else {"Content-Type": "application/json"}


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > most:
            raise AnswerError(f"a page is larger than {most} bytes")
    return bytes(body)


def _session() -> aiohttp.ClientSession:
    """Without kept connections, cookies and the environment's proxies."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=MOST_CONNECTIONS,
            force_close=True,
            # Unused, as hosts are addresses; the default may start a thread.
            resolver=aiohttp.ThreadedResolver(),
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
        # A few bytes could unpack to any number. A compressed answer is refused as invalid JSON.
        auto_decompress=False,
        trust_env=False,
    )


def _host(address: str) -> str:
    """Raises AnswerError for an address that no pod has."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        raise AnswerError("the pod's address is not an IP address") from None
    real = getattr(known, "ipv4_mapped", None) or known
    if real.is_link_local or real.is_multicast or real.is_unspecified:
        # Clouds serve their metadata there, and a pod's status may name any address.
        raise AnswerError("the pod's address is none that a pod may have")
    return f"[{known}]" if known.version == 6 else str(known)


def _reason(error: Exception) -> str:
    """One line that is equal for equal errors, so that a repetition is no change."""
    if isinstance(error, AnswerError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return "connection refused" if refused else "no connection"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        return "the answer is not HTTP"
    return "the connection broke"
